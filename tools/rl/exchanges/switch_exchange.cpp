#include "tools/rl/exchanges/switch_exchange.h"

#include <iswitch/agent.h>

#include <sstream>

namespace iswitch::rl {
namespace {

FailureKind kind_of(AgentErrorCode code) {
  switch (code) {
    case AgentErrorCode::none:
      return FailureKind::none;
    case AgentErrorCode::job_reset:
      return FailureKind::reset;
    case AgentErrorCode::timed_out:
      return FailureKind::member_lost;
    case AgentErrorCode::switch_gone:
      return FailureKind::switch_gone;
    case AgentErrorCode::bad_argument:
      return FailureKind::usage;
    case AgentErrorCode::system:
      return FailureKind::machine;
    default:
      return FailureKind::exchange;
  }
}

Failure failure_of(const AgentError& error) {
  Failure failure{kind_of(error.code), error.text};
  if (error.code == AgentErrorCode::mismatch)
    failure.text += " (do all workers run the same algorithm, environment and parameters?)";
  return failure;
}

class SwitchExchange final : public Exchange {
 public:
  SwitchExchange(std::unique_ptr<Agent> agent, std::uint32_t fingerprint)
      : agent_(std::move(agent)) {
    operation_.tag = fingerprint;
  }

  std::size_t rank() const override { return agent_->rank(); }
  std::size_t size() const override { return agent_->size_expected(); }

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
  OperationOptions operation_;
  std::uint64_t partial_ = 0;  ///< sums that were sent before all had contributed
};

}  // namespace

std::variant<std::unique_ptr<Exchange>, Failure> join_switch(const SwitchOptions& options) {
  AgentOptions agent_options;
  agent_options.switch_address = options.switch_address;
  agent_options.job = options.job;
  agent_options.rank = options.rank;
  agent_options.local_address = options.local_address;
  agent_options.local_port = options.local_port;
  agent_options.key_file = options.key_file;
  agent_options.join_timeout = options.join_timeout;
  agent_options.operation_timeout = options.timeout;
  agent_options.background_thread =
      false;  // a worker computes or exchanges, never both: spare the hand-over
  auto agent = Agent::join(agent_options);
  if (!agent) return failure_of(agent.error());
  if ((*agent)->rank() >= (*agent)->size_expected())
    return Failure{FailureKind::exchange, "the switch made this worker member " +
                                              std::to_string((*agent)->rank()) + " of a job of " +
                                              std::to_string((*agent)->size_expected()) +
                                              ": members must be numbered from 0"};
  return std::make_unique<SwitchExchange>(std::move(*agent), options.fingerprint);
}

}  // namespace iswitch::rl
