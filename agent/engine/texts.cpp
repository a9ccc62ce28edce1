#include "agent/engine/texts.h"

#include <vector>

namespace iswitch::agent {

const char* error_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::none:
      return "none";
    case ErrorCode::not_joined:
      return "not joined";
    case ErrorCode::refused:
      return "refused";
    case ErrorCode::timed_out:
      return "timed out";
    case ErrorCode::job_reset:
      return "job reset";
    case ErrorCode::switch_gone:
      return "switch gone";
    case ErrorCode::halted:
      return "halted";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::gone:
      return "gone";
    case ErrorCode::bad_argument:
      return "bad argument";
    case ErrorCode::closed:
      return "closed";
    case ErrorCode::system:
      return "system";
    case ErrorCode::root_missing:
      return "root missing";
    case ErrorCode::in_doubt:
      return "in doubt";
  }
  return "unknown";
}

namespace text {
namespace {

std::string job(const EngineOptions& options) { return "job " + std::to_string(options.job); }

const char* remedy(wire::Status status) {
  switch (status) {
    case wire::Status::no_such_job:
      return "check the job's id, or add it to switchd's config or with switchctl add-job";
    case wire::Status::job_full:
      return "every place is taken, or the wanted one by a member not yet silent for long: wait, "
             "or remove it with "
             "switchctl remove-member";
    case wire::Status::bad_tag:
      return "the key differs from the switch's: check the key files on both sides";
    case wire::Status::bad_value:
      return "check the wanted member id and this host's largest segment against the job's config";
    case wire::Status::unsupported:
      return "the job's mode (synchronous or asynchronous) or data type is not what this agent was "
             "started for; it sends float32";
    case wire::Status::parent_not_ready:
      return "the switch waits for its own parent: check that one";
    case wire::Status::replayed_nonce:
      return "this host's clock is behind what the switch has seen from it: check the clock";
    default:
      return "see switchd's log";
  }
}

}  // namespace

std::string members(wire::MemberMask mask, wire::MemberId self) {
  std::vector<std::string> names;
  for (unsigned id = 0; id < wire::max_members; ++id)
    if ((mask >> id & 1) != 0 && id != self) names.push_back(std::to_string(id));
  std::string text;
  if (!names.empty()) {
    text = names.size() == 1 ? "member " : "members ";
    for (std::size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : ", ") + names[i];
  }
  if (self < wire::max_members && (mask >> self & 1) != 0)
    text += (text.empty() ? "this member (" : " and this member (") + std::to_string(self) + ")";
  return text;
}

std::string join_failed(const EngineOptions& options, const std::string& problem) {
  return "joining " + job(options) + " failed: " + problem;
}

std::string forming(const EngineOptions& options, unsigned members_now, unsigned members_expected) {
  return job(options) + " is still forming: " + std::to_string(members_now) + " of " +
         std::to_string(members_expected) + " members have joined; start the others";
}

std::string no_answer_to_join(const EngineOptions& options) {
  return "no answer from the switch to Joins of " + job(options) +
         ": check its address and port, that switchd runs, and that UDP is not filtered";
}

Error refusal(const EngineOptions& options, wire::Status status, const std::string& problem) {
  return {ErrorCode::refused, status, 0,
          "the switch refused to let this member join " + job(options) + ": " +
              wire::status_name(status) + "; " + (problem.empty() ? remedy(status) : problem)};
}

std::string another_key() {
  return std::string("the switch answers that tags are wrong (") +
         wire::status_name(wire::Status::bad_tag) + "): " + remedy(wire::Status::bad_tag);
}

std::string slot(std::uint32_t segment, std::uint32_t round) {
  return "segment " + std::to_string(segment) + ", round " + std::to_string(round);
}

std::string duration(Time time) {
  if (time >= 10 * second) return std::to_string(time / second) + " s";
  if (time >= second)
    return std::to_string(time / second) + "." +
           std::to_string(time % second / (100 * millisecond)) + " s";
  return std::to_string(time / millisecond) + " ms";
}

}  // namespace text
}  // namespace iswitch::agent
