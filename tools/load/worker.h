// One emulated worker: the agent's engine, which has all the rules, and a stream of all-reduces
// whose results are checked.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "agent/engine/engine.h"
#include "tools/load/gradients.h"
#include "tools/load/histogram.h"
#include "tools/load/link.h"

namespace iswitch::load {

/// What all workers of a run count together.
struct Tally {
  Histogram segments;    ///< ns from a contribution's first sending to its result's arrival
  Histogram operations;  ///< ns from when an operation was due to its end
  std::uint64_t operations_done = 0;  ///< by all workers, as the following
  std::uint64_t elements_checked = 0;
  std::uint64_t elements_wrong = 0;
  std::string first_wrong;  ///< one line
};

struct WorkerOptions {
  std::uint16_t number = 0;  ///< the wanted member id
  std::uint16_t job = 1;
  std::vector<std::uint8_t> key;
  Time operation_timeout = 10 * second;
};

class Worker {
 public:
  Worker(const WorkerOptions& options, Link& link, const wire::Ipv4& switch_ip,
         std::uint16_t switch_port, Time now);

  agent::Engine& engine() { return engine_; }
  const agent::Engine& engine() const { return engine_; }

  /// Once the job runs: its segment size decides what the link holds.
  void begin(const Gradients& gradients, unsigned most_outstanding);
  bool may_submit() const;
  /// The next operation, due at `due`.
  void submit(Time due, Time now);
  std::uint64_t submitted() const { return submitted_; }
  bool idle() const { return outstanding_.empty(); }

  void receive(const agent::Received& received, Time now, Tally& tally);
  /// Timers, completions, and what may be sent. An operation that has failed ends the run: its
  /// error, one line.
  std::string turn(Time now, Tally& tally);

 private:
  struct Operation {
    agent::OperationId id = 0;
    std::uint64_t number = 0;
    Time due = 0;
  };

  std::vector<float>& output_of(std::uint64_t operation) {
    return outputs_[operation % outputs_.size()];
  }
  void transmit(Time now);
  void note_sent(const agent::Outgoing& datagram, Time now);
  std::string finish(const agent::Completion& completion, Time now, Tally& tally);

  WorkerOptions options_;
  Link& link_;
  agent::Engine engine_;
  const Gradients* gradients_ = nullptr;
  std::uint64_t submitted_ = 0;
  std::deque<Operation> outstanding_;
  unsigned most_outstanding_ = 0;
  // Of operation n: n % size. An odd number of them: what is left of the operation that had one
  // before is of the other set of gradients, and wrong.
  std::vector<std::vector<float>> outputs_;
  std::vector<agent::Outgoing> batch_;
  struct Sent {
    std::uint32_t round = 0;
    Time at = 0;  ///< 0: nothing is waited for
  };
  std::vector<Sent> sent_;  // by segment
};

}  // namespace iswitch::load
