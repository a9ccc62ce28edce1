#include "switchd/service.h"

#ifdef ISWITCH_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

namespace iswitch::switchd::service {

#ifdef ISWITCH_HAVE_SYSTEMD
void ready() { sd_notify(0, "READY=1"); }
void stopping() { sd_notify(0, "STOPPING=1"); }
void alive() { sd_notify(0, "WATCHDOG=1"); }
Time watchdog_interval() {
  std::uint64_t microseconds = 0;
  if (sd_watchdog_enabled(0, &microseconds) <= 0) return never;
  return static_cast<Time>(microseconds) * microsecond / 2;
}
#else
void ready() {}
void stopping() {}
void alive() {}
Time watchdog_interval() { return never; }
#endif

}  // namespace iswitch::switchd::service
