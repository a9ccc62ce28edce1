// A failure as a value, with what the worker does about it.
#pragma once

#include <cstdint>
#include <string>

namespace iswitch::rl {

/// The exit code of the worker, but for `reset`, which is mended by starting a new generation.
enum class FailureKind : std::uint8_t {
  none = 0,
  machine = 1,      ///< a file, a library or the network does not do what is needed
  usage = 2,        ///< a flag, a name or a value that makes no sense
  member_lost = 3,  ///< another worker stopped contributing
  switch_gone = 4,  ///< the switch does not answer
  exchange = 5,     ///< any other failure of the exchange (mismatch, halted, refused)
  diverged = 6,     ///< the training produced numbers that are not finite
  reset = 7,        ///< the job was reset: state is shared again and training goes on
};

/// True when there is one. `text` is one line: what happened, where, what to do.
struct [[nodiscard]] Failure {
  FailureKind kind = FailureKind::none;
  std::string text;
  explicit operator bool() const { return kind != FailureKind::none; }
};

}  // namespace iswitch::rl
