#include "switchd/control/replay_guard.h"

namespace iswitch::control {

bool ReplayGuard::Last::is(const wire::ControlHeader& request) const {
  return nonce == request.nonce && request_id == request.request_id && action == request.action;
}

ReplayGuard::Finding ReplayGuard::check(const Place& source, const wire::ControlHeader& request) {
  const Last* const last = last_.find(source.key());
  if (last == nullptr) return {Verdict::fresh};
  if (last->is(request))
    return {last->done ? Verdict::answered : Verdict::in_progress, last->status};
  return {request.nonce > last->nonce ? Verdict::fresh : Verdict::refused};
}

void ReplayGuard::begin(const Place& source, const wire::ControlHeader& request) {
  last_.get(source.key()) = {request.nonce, request.request_id, request.action, false,
                             wire::Status::ok};
}

bool ReplayGuard::finish(const Place& source, const wire::ControlHeader& request,
                         wire::Status status) {
  Last* const last = last_.find(source.key());
  if (last == nullptr) return true;  // forgotten for others: it is still waiting
  if (!last->is(request)) return false;
  last->done = true;
  last->status = status;
  return true;
}

}  // namespace iswitch::control
