#include "tools/rl/exchanges/switch_exchange.h"

#include <iswitch/agent.h>

#include <sstream>

#include "tools/rl/exchanges/agent_failure.h"

namespace iswitch::rl {
namespace {

class SwitchExchange final : public Exchange {
 public:
  SwitchExchange(std::unique_ptr<Agent> agent, std::size_t size, std::uint32_t fingerprint)
      : agent_(std::move(agent)), size_(size) {
    operation_.tag = fingerprint;
  }

  std::size_t rank() const override { return agent_->rank(); }
  std::size_t size() const override { return size_; }

  Failure leave() override { return failure_of(agent_->leave()); }

  std::string details_json() const override {
    const AgentStatistics counted = agent_->statistics();
    std::ostringstream text;
    text << "{\"contributions_sent\": " << counted.contributions_sent
         << ", \"retransmissions\": " << counted.retransmissions
         << ", \"results\": " << counted.results
         << ", \"duplicate_results\": " << counted.duplicate_results
         << ", \"gradient_bytes_sent\": " << counted.gradient_bytes_sent
         << ", \"gradient_bytes_received\": " << counted.gradient_bytes_received
         << ", \"partial_sums\": " << partial_ << ", \"resets\": " << counted.resets
         << ", \"resumes\": " << counted.resumes
         << ", \"smoothed_rtt_us\": " << counted.smoothed_rtt.count() / 1000
         << ", \"segment_bytes\": " << agent_->segment_bytes() << "}";
    return text.str();
  }

 protected:
  Failure do_sum(std::span<float> values) override {
    return finish([&] { return agent_->all_reduce(values, values, Reduce::sum, operation_); });
  }
  Failure do_mean(std::span<float> values) override {
    return finish([&] { return agent_->all_reduce(values, values, Reduce::mean, operation_); });
  }
  Failure do_broadcast(std::span<float> values, std::size_t root) override {
    return finish(
        [&] { return agent_->broadcast(values, static_cast<std::uint16_t>(root), operation_); });
  }

 private:
  /// A reset that came between two operations is told by the next one, so that none of the old
  /// generation is issued in the new.
  template <class Issue>
  Failure finish(Issue issue) {
    Handle handle = issue();
    const AgentError error = handle.wait();
    if (!error && handle.partial()) ++partial_;
    return failure_of(error);
  }

  std::unique_ptr<Agent> agent_;
  std::size_t size_;
  OperationOptions operation_;
  std::uint64_t partial_ = 0;  ///< sums that were sent before all had contributed
};

}  // namespace

AgentOptions agent_options_of(const SwitchOptions& options) {
  AgentOptions agent_options;
  agent_options.switch_address = options.switch_address;
  agent_options.job = options.job;
  agent_options.rank = options.rank;
  agent_options.member = options.member;
  agent_options.local_address = options.local_address;
  agent_options.local_port = options.local_port;
  agent_options.key_file = options.key_file;
  agent_options.join_timeout = options.join_timeout;
  agent_options.operation_timeout = options.timeout;
  agent_options.resume_within = options.resume_within;
  return agent_options;
}

std::variant<std::unique_ptr<Exchange>, Failure> join_switch(const SwitchOptions& options) {
  AgentOptions agent_options = agent_options_of(options);
  agent_options.background_thread =
      false;  // a worker computes or exchanges, never both: spare the hand-over
  auto agent = Agent::join(agent_options);
  if (!agent) return failure_of(agent.error());
  const std::size_t size = options.member ? options.size : (*agent)->size_expected();
  if ((*agent)->rank() >= size)
    return Failure{FailureKind::exchange,
                   "this worker has rank " + std::to_string((*agent)->rank()) + " in a job of " +
                       std::to_string(size) + ": workers must be numbered from 0"};
  return std::make_unique<SwitchExchange>(std::move(*agent), size, options.fingerprint);
}

}  // namespace iswitch::rl
