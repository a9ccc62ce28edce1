// What a job's config implies and what it may say.
#include <string>

#include "switchd/control/control.h"

namespace iswitch::control {
namespace {

constexpr std::uint16_t history_when_nobody_runs_ahead = 1;
constexpr std::uint16_t history_when_members_fall_behind = 8;
constexpr std::size_t min_key_bytes = 16;
constexpr std::size_t max_key_bytes = 1024;

std::string wrong(const char* field, std::int64_t value, const std::string& allowed) {
  return std::string(field) + " is " + std::to_string(value) + ", must be " + allowed;
}

std::string from_to(std::size_t least, std::size_t most) {
  return std::to_string(least) + " to " + std::to_string(most);
}

}  // namespace

std::uint16_t history_in_force(const JobConfig& config) {
  if (config.history) return *config.history;
  const bool lowered = config.threshold != 0 && config.threshold < config.members;
  const bool falls_behind = lowered || config.force_after > 0 || config.mode == wire::Mode::async;
  return falls_behind ? history_when_members_fall_behind : history_when_nobody_runs_ahead;
}

std::vector<std::string> job_config_errors(const JobConfig& config) {
  std::vector<std::string> errors;
  if (config.members < 1 || config.members > wire::max_members)
    errors.push_back(wrong("members", config.members, from_to(1, wire::max_members)));
  if (config.slots < 1) errors.push_back(wrong("slots", config.slots, "at least 1"));
  if (config.segment_bytes < wire::min_segment_bytes ||
      config.segment_bytes > wire::max_segment_bytes ||
      config.segment_bytes % wire::min_segment_bytes != 0)
    errors.push_back(wrong("segment_bytes", config.segment_bytes,
                           "a multiple of " + std::to_string(wire::min_segment_bytes) + ", " +
                               from_to(wire::min_segment_bytes, wire::max_segment_bytes)));
  if (config.threshold > config.members)
    errors.push_back(wrong("threshold", config.threshold,
                           from_to(0, config.members) + " (0 follows the number of members)"));
  if (config.history && *config.history < 1)
    errors.push_back(wrong("history", *config.history, "at least 1"));
  if (!config.key.empty() &&
      (config.key.size() < min_key_bytes || config.key.size() > max_key_bytes))
    errors.push_back(wrong("the key's length", static_cast<std::int64_t>(config.key.size()),
                           from_to(min_key_bytes, max_key_bytes) + " bytes"));
  if (config.force_after < 0)
    errors.push_back(wrong("force_after (ns)", config.force_after, "0 (never) or more"));
  if (config.member_timeout <= 0)
    errors.push_back(wrong("member_timeout (ns)", config.member_timeout, "more than 0"));
  return errors;
}

}  // namespace iswitch::control
