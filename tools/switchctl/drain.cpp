#include "tools/switchctl/drain.h"

#include <unistd.h>

#include <chrono>
#include <vector>

namespace iswitch::switchctl {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr unsigned look_every_us = 20'000;
/// What was on its way when the job was halted arrives within that.
constexpr unsigned settle_us = 100'000;

class Drain {
 public:
  Drain(const Ask& ask, const std::function<void(const std::string&)>& say)
      : ask_(ask), say_(say) {}

  std::string run(const DrainOptions& options) {
    const auto end = Clock::now() + std::chrono::duration<double>(options.timeout_seconds);
    if (!find_jobs()) return error_;
    say_("draining " + std::to_string(jobs_.size()) + " running jobs");
    bool quiet = halt_when_quiet();
    while (!quiet && error_.empty() && Clock::now() < end) {
      usleep(look_every_us);
      quiet = halt_when_quiet();
    }
    if (!error_.empty()) return give_up();
    if (!quiet && !options.anyway) return still_open();
    say_(quiet ? "halted, nothing is open" : "sums are open; members send again what is in them");
    // A Halt holds at the parent and would outlast this switch.
    if (quiet && has_parent_ && !set_halted(false)) return give_up();
    if (!request({{"command", "pause"}})) return give_up();
    say_("switchd ends; start it again, or its standby, and the jobs go on");
    return {};
  }

 private:
  /// False: there is an open sum, and the jobs run. Halted with sums open, those would never be
  /// complete: agents hold what is missing.
  bool halt_when_quiet() {
    if (open() != 0 || !set_halted(true)) return false;
    usleep(settle_us);
    if (open() == 0) return true;
    set_halted(false);
    return false;
  }

  std::string still_open() {
    const std::size_t sums = open();
    if (!error_.empty()) return give_up();
    return "not drained: " + std::to_string(sums) +
           " sums are open, as before; wait for a pause of the training, or end it with --anyway: "
           "members send again what is open";
  }

  std::optional<json> request(const json& wish) { return ask_(wish, error_); }

  bool find_jobs() {
    const auto reply = request({{"command", "jobs"}});
    if (!reply) return false;
    for (const json& job : reply->value("jobs", json::array())) {
      if (job.value("parent", json()).is_object()) has_parent_ = true;
      if (job.value("state", std::string()) == "running") jobs_.push_back(job.value("id", 0U));
    }
    return true;
  }

  /// Of all jobs; SIZE_MAX where that is not known.
  std::size_t open() {
    const auto reply = request({{"command", "slots"}, {"limit", 1000}});
    return reply ? reply->value("slots", json::array()).size() : SIZE_MAX;
  }

  bool set_halted(bool halted) {
    for (const unsigned job : jobs_)
      if (!request({{"command", halted ? "halt" : "resume"}, {"job", job}})) return false;
    return true;
  }

  /// The jobs go on.
  std::string give_up() {
    const std::string error = error_;
    for (const unsigned job : jobs_) request({{"command", "resume"}, {"job", job}});
    return "not drained: " + error;
  }

  const Ask& ask_;
  const std::function<void(const std::string&)>& say_;
  std::vector<unsigned> jobs_;
  bool has_parent_ = false;
  std::string error_;
};

}  // namespace

std::string drain(const Ask& ask, const std::function<void(const std::string&)>& say,
                  const DrainOptions& options) {
  return Drain(ask, say).run(options);
}

}  // namespace iswitch::switchctl
