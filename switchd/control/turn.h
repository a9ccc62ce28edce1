// One call of Control: the time it happens at and where its effects go.
#pragma once

#include "switchd/control/control.h"

namespace iswitch::control {

struct Turn {
  Time now;
  Effects& effects;
};

}  // namespace iswitch::control
