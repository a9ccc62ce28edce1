// Tells in the log how a switch's jobs stand with their parent when that changes. The control
// thread's.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "switchd/control/control.h"

namespace iswitch::switchd {

class ParentLog {
 public:
  void write(const std::vector<control::JobView>& jobs, Time now);

 private:
  using Told = std::pair<control::ParentView::State, std::string>;  ///< and the fault
  std::map<wire::JobId, Told> told_;
};

}  // namespace iswitch::switchd
