#include "tools/sim/tally.h"

#include <algorithm>

#include "tools/sim/world.h"
#include "tools/switchctl/table.h"

namespace iswitch::sim {

using switchctl::Table;

namespace {

std::string kind_of(const Report& report) {
  const auto async = std::count_if(report.jobs.begin(), report.jobs.end(),
                                   [](const auto& job) { return job.async; });
  const char* mode = async == 0                                              ? "sync"
                     : static_cast<std::size_t>(async) == report.jobs.size() ? "async"
                                                                             : "both modes";
  return std::string(report.switches.size() > 1 ? "tree" : "star") + ", " + mode;
}

std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

void Tally::add(Row& row, const Report& report) {
  ++row.runs;
  row.broken += report.violations.empty() ? 0 : 1;
  row.operations += report.operations;
  row.failed += report.failures;
  row.packets += report.frames;
  for (const auto& job : report.jobs) row.updates += job.updates;
}

void Tally::add(const Report& report) {
  add(rows_[kind_of(report)], report);
  add(total_, report);
  for (const auto& [name, count] : report.faults) faults_[name] += count;
  for (const auto& [name, count] : report.errors) errors_[name] += count;
  resumes_ += report.resumes;
  handed_back_ += report.handed_back;
  sim::add(links_, report.links);
}

std::string Tally::table(double wall_seconds) const {
  Table runs({{"runs of"},
              {"runs", Table::Align::right},
              {"operations", Table::Align::right},
              {"ended in an error", Table::Align::right},
              {"updates applied", Table::Align::right},
              {"packets", Table::Align::right},
              {"broken", Table::Align::right}});
  const auto row = [&](const std::string& name, const Row& r) {
    runs.add({name, number(r.runs), number(r.operations), number(r.failed), number(r.updates),
              number(r.packets), number(r.broken)});
  };
  for (const auto& [name, r] : rows_) row(name, r);
  row("all", total_);
  Table faults({{"fault"}, {"times", Table::Align::right}});
  for (const auto& [name, count] : faults_) faults.add({name, number(count)});
  const std::pair<const char*, std::uint64_t> links[] = {
      {"packet lost", links_.lost},
      {"packet dropped at a full queue", links_.overflow},
      {"packet duplicated", links_.duplicated},
      {"packet corrupted", links_.corrupted},
      {"packet overtaken", links_.reordered},
      {"packet marked", links_.marked},
      {"link stood still", links_.spikes}};
  for (const auto& [name, count] : links) faults.add({name, number(count)});
  Table resumed({{"after restarts"}, {"times", Table::Align::right}});
  if (resumes_ != 0) {
    resumed.add({"a worker went on", number(resumes_)});
    resumed.add({"a result was handed back", number(handed_back_)});
  }
  Table errors({{"operations that ended with"}, {"times", Table::Align::right}});
  for (const auto& [name, count] : errors_) errors.add({name, number(count)});
  return runs.text("no runs\n") + "\n" + faults.text("no faults\n") + "\n" +
         (resumes_ != 0 ? resumed.text("") + "\n" : "") +
         errors.text("no operation ended in an error\n") +
         format("\n%.0f s, %.2f million packets/s\n", wall_seconds,
                wall_seconds > 0 ? static_cast<double>(total_.packets) / wall_seconds / 1e6 : 0);
}

}  // namespace iswitch::sim
