// How a child job stands with its parent, in words.
#include <string>

#include "switchd/control/control.h"

namespace iswitch::control {

const char* parent_state_name(ParentView::State state) {
  switch (state) {
    case ParentView::State::idle:
      return "idle";
    case ParentView::State::resolving:
      return "resolving";
    case ParentView::State::joining:
      return "joining";
    case ParentView::State::forming:
      return "forming";
    case ParentView::State::running:
      return "running";
    case ParentView::State::silent:
      return "silent";
    case ParentView::State::refused:
      return "refused";
  }
  return "unknown";
}

std::string parent_text(const ParentView& parent, Time now) {
  std::string who = "parent " + wire::to_string(parent.config.ip);
  const Time ago = now > parent.since ? now - parent.since : 0;
  const std::string since = " since " + std::to_string(ago / second) + " s";
  const bool silent = parent.state == ParentView::State::silent;
  if (!parent.fault.empty() && !silent) return parent.fault;
  switch (parent.state) {
    case ParentView::State::idle:
      return who + " is asked when all members here have joined";
    case ParentView::State::resolving:
      return who + " does not answer ARP" + since + "; check its address and the port to it";
    case ParentView::State::joining:
      return who + " does not answer the Join" + since +
             "; check that a switch runs there and its UDP port";
    case ParentView::State::forming:
      return who + " waits for its other members" + since;
    case ParentView::State::running:
      return who + " runs the job" + since;
    case ParentView::State::silent:
      return who + " does not answer" + since + (parent.fault.empty() ? "" : "; " + parent.fault);
    case ParentView::State::refused:
      return who + " has a job that does not fit here";
  }
  return who;
}

}  // namespace iswitch::control
