// Built by installed.sh against the installed headers and library.
#include <iswitch.h>
#include <iswitch/agent.h>

#include <cstdio>

int main() {
  // No switch there: the whole way through the library ends in an error value.
  auto agent = iswitch::Agent::join(
      {.switch_address = "127.0.0.1:9", .join_timeout = std::chrono::milliseconds{50}});
  if (agent || agent.error().code != iswitch::AgentErrorCode::switch_gone) return 1;
  iswitch::Handle empty;
  if (empty.wait().code != iswitch::AgentErrorCode::bad_argument) return 2;
  std::puts(iswitch_version());
  return 0;
}
