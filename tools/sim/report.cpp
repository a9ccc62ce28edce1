#include "tools/sim/report.h"

#include <algorithm>

namespace iswitch::sim {

Times times_of(std::vector<Time> all) {
  Times times;
  times.count = all.size();
  if (all.empty()) return times;
  std::sort(all.begin(), all.end());
  times.median = all[(all.size() - 1) / 2];
  times.high = all[(all.size() - 1) * 99 / 100];
  times.longest = all.back();
  return times;
}

bool Report::broken(const std::string& property) const {
  return std::any_of(violations.begin(), violations.end(), [&](const std::string& line) {
    return line.find("  " + property + ": ") != std::string::npos;
  });
}

void add(LinkCounters& sum, const LinkCounters& one) {
  sum.sent += one.sent;
  sum.lost += one.lost;
  sum.overflow += one.overflow;
  sum.duplicated += one.duplicated;
  sum.corrupted += one.corrupted;
  sum.reordered += one.reordered;
  sum.marked += one.marked;
  sum.spikes += one.spikes;
  sum.cut += one.cut;
  sum.delivered += one.delivered;
  sum.bytes += one.bytes;
  sum.deepest_queue = std::max(sum.deepest_queue, one.deepest_queue);
}

}  // namespace iswitch::sim
