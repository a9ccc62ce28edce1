// Tells systemd how the daemon is (sd_notify), where it was built with libsystemd and runs under
// it.
#pragma once

#include "wire/units.h"

namespace iswitch::switchd::service {

void ready();
void stopping();
/// How often alive() must be called; `never` when nobody asks for it.
Time watchdog_interval();
void alive();

}  // namespace iswitch::switchd::service
