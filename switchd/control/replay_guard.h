// Exactly-once for the requests of one job: each source's last request is remembered, so that a
// repetition is answered again without being done again, and an older one is refused.
#pragma once

#include <cstddef>

#include "switchd/control/lru_table.h"
#include "switchd/control/place.h"
#include "wire/control.h"

namespace iswitch::control {

class ReplayGuard {
 public:
  static constexpr std::size_t default_capacity = 1024;
  explicit ReplayGuard(std::size_t capacity = default_capacity) : last_(capacity) {}

  /// Ping and Help may be repeated, reordered and outstanding several at a time.
  static bool covers(wire::Action action) {
    return action != wire::Action::ping && action != wire::Action::help;
  }

  enum class Verdict : std::uint8_t {
    fresh,        ///< do it
    in_progress,  ///< the same request; its answer will come
    answered,     ///< the same request; answer as before
    refused,      ///< nonce not newer than the last one
  };
  struct Finding {
    Verdict verdict = Verdict::fresh;
    wire::Status status = wire::Status::ok;  ///< answered: what it was answered with
  };
  /// Changes nothing.
  Finding check(const Place& source, const wire::ControlHeader& request);

  /// `request` is being done: it replaces what its source asked before.
  void begin(const Place& source, const wire::ControlHeader& request);
  /// `request` is done. False: its source has made a newer one meanwhile and waits for that alone.
  bool finish(const Place& source, const wire::ControlHeader& request, wire::Status status);

 private:
  struct Last {
    std::uint64_t nonce = 0;
    std::uint32_t request_id = 0;
    wire::Action action = wire::Action::ping;
    bool done = false;
    wire::Status status = wire::Status::ok;
    bool is(const wire::ControlHeader& request) const;
  };
  LruTable<Last> last_;
};

}  // namespace iswitch::control
