#include "tools/load/worker.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>

#include "wire/header.h"

namespace iswitch::load {

namespace {

constexpr std::size_t transmit_batch = agent::FrameDevice::burst;

std::uint32_t random_incarnation() {
  std::uint32_t value = 0;
  static_cast<void>(!getrandom(&value, sizeof value, 0));
  return value;
}

agent::EngineOptions engine_options(const WorkerOptions& options, const Link& link,
                                    wire::Ipv4 switch_ip, std::uint16_t switch_port, Time now) {
  const Link::Address own = link.address(options.number);
  agent::EngineOptions engine;
  engine.job = options.job;
  engine.wanted_member = options.number;
  engine.max_segment_bytes = wire::largest_segment(link.mtu());
  engine.incarnation = random_incarnation();
  engine.key = options.key;
  engine.own_ip = own.ip;
  engine.own_port = own.port;
  engine.switch_ip = switch_ip;
  engine.switch_port = switch_port;
  engine.start_unix_microseconds =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  engine.start_time = now;
  engine.receive_datagrams = link.receive_datagrams(engine.max_segment_bytes);
  return engine;
}

/// The header of a data packet of this type.
std::optional<wire::Header> data_header(Bytes message, wire::Type type) {
  wire::Message parsed;
  if (wire::parse_message(message, parsed) != wire::Fault::none || parsed.header.type != type) {
    return std::nullopt;
  }
  return parsed.header;
}

}  // namespace

Worker::Worker(const WorkerOptions& options, Link& link, const wire::Ipv4& switch_ip,
               std::uint16_t switch_port, Time now)
    : options_(options),
      link_(link),
      engine_(engine_options(options, link, switch_ip, switch_port, now)),
      batch_(transmit_batch) {}

void Worker::begin(const Gradients& gradients, unsigned most_outstanding) {
  gradients_ = &gradients;
  most_outstanding_ = most_outstanding;
  outputs_.assign(most_outstanding | 1u, std::vector<float>(gradients.sum(0).size()));
  sent_.assign(engine_.job().slots, Sent{});
  engine_.limit_receive_datagrams(link_.receive_datagrams(engine_.job().segment_bytes));
}

bool Worker::may_submit() const {
  return outstanding_.size() < most_outstanding_ &&
         (outstanding_.empty() || outstanding_.front().number + outputs_.size() > submitted_);
}

void Worker::submit(Time due, Time now) {
  Operation operation;
  operation.number = submitted_++;
  operation.due = due;
  agent::Request request;
  request.input = gradients_->of(options_.number, operation.number);
  request.output = output_of(operation.number);
  request.deadline = now + options_.operation_timeout;
  operation.id = engine_.submit(request, now);
  outstanding_.push_back(operation);
}

void Worker::receive(const agent::Received& received, Time now, Tally& tally) {
  if (const auto header = data_header(received.datagram, wire::Type::result);
      header && header->segment < sent_.size()) {
    Sent& sent = sent_[header->segment];
    if (sent.at != 0 && sent.round == header->round) {
      tally.segments.add(static_cast<std::uint64_t>(std::max<Time>(now - sent.at, 0)));
      sent.at = 0;
    }
  }
  engine_.receive(received.datagram, received.ecn, now);
}

std::string Worker::turn(Time now, Tally& tally) {
  engine_.tick(now);
  transmit(now);
  while (const auto completion = engine_.take_completion()) {
    if (std::string problem = finish(*completion, now, tally); !problem.empty()) return problem;
  }
  return {};
}

void Worker::transmit(Time now) {
  while (link_.has_room(options_.number)) {
    const std::size_t count = engine_.transmit(batch_, now);
    if (count == 0) return;
    for (std::size_t i = 0; i < count; ++i) note_sent(batch_[i], now);
    link_.send(options_.number, {batch_.data(), count});
  }
}

/// A retransmission does not begin a new latency.
void Worker::note_sent(const agent::Outgoing& datagram, Time now) {
  const auto header =
      data_header({datagram.head.data(), datagram.head_size}, wire::Type::contribution);
  if (!header || header->segment >= sent_.size()) return;
  Sent& sent = sent_[header->segment];
  if (sent.round == header->round && (header->flags & wire::flag::retransmit) != 0) return;
  sent = {header->round, now};
}

std::string Worker::finish(const agent::Completion& completion, Time now, Tally& tally) {
  const auto found = std::find_if(outstanding_.begin(), outstanding_.end(),
                                  [&](const Operation& one) { return one.id == completion.id; });
  if (found == outstanding_.end()) return {};
  const std::string who = "worker " + std::to_string(options_.number) + ", operation " +
                          std::to_string(found->number) + ": ";
  if (completion.error) return who + completion.error.text;
  if (completion.partial) return who + "a segment was completed before its threshold was met";
  tally.operations.add(static_cast<std::uint64_t>(std::max<Time>(now - found->due, 0)));
  ++tally.operations_done;
  const std::vector<float>& output = output_of(found->number);
  const Gradients::Verdict verdict = gradients_->check(output, found->number);
  tally.elements_checked += output.size();
  tally.elements_wrong += verdict.wrong;
  if (verdict.wrong != 0 && tally.first_wrong.empty()) {
    tally.first_wrong = who + "element " + std::to_string(verdict.first) + " is " +
                        std::to_string(verdict.found) + " and should be " +
                        std::to_string(verdict.expected) + ", " + std::to_string(verdict.wrong) +
                        " of " + std::to_string(output.size()) + " elements are wrong";
  }
  outstanding_.erase(found);
  return {};
}

}  // namespace iswitch::load
