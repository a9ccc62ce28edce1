// What many runs came to, for a table.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tools/sim/report.h"

namespace iswitch::sim {

class Tally {
 public:
  void add(const Report& report);
  std::uint64_t runs() const { return total_.runs; }
  std::uint64_t failures() const { return total_.broken; }
  std::string table(double wall_seconds) const;

 private:
  struct Row {
    std::uint64_t runs = 0, broken = 0, operations = 0, failed = 0, updates = 0, packets = 0;
  };
  static void add(Row& row, const Report& report);
  std::map<std::string, Row> rows_;  // by kind of topology and mode
  Row total_;
  std::map<std::string, std::uint64_t> faults_, errors_;
  std::uint64_t resumes_ = 0, handed_back_ = 0;
  LinkCounters links_;
};

}  // namespace iswitch::sim
