// A planned end of a switch: nothing is open in it any more, and whoever comes in its place goes
// on.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace iswitch::switchctl {

/// Asks switchd; nothing and one line in `error` where it is refused or not there.
using Ask = std::function<std::optional<nlohmann::json>(const nlohmann::json&, std::string& error)>;

/// Halts every running job at a moment when no sum is open (nor, below a parent, waits for it), and
/// ends switchd. `say` gets one line a stage. Empty, or one line: then switchd runs on, and so do
/// its jobs. Where no such moment comes within the timeout: `anyway` ends it with sums open, whose
/// contributions members send again.
struct DrainOptions {
  double timeout_seconds = 30;
  bool anyway = false;
};
std::string drain(const Ask& ask, const std::function<void(const std::string&)>& say,
                  const DrainOptions& options);

}  // namespace iswitch::switchctl
