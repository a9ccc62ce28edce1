#include "tools/rl/exchanges/agent_failure.h"

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

}  // namespace

Failure failure_of(const AgentError& error) {
  Failure failure{kind_of(error.code), error.text};
  if (error.code == AgentErrorCode::mismatch)
    failure.text += " (do all workers run the same algorithm, environment and parameters?)";
  return failure;
}

}  // namespace iswitch::rl
