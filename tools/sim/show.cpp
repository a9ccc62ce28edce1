#include "tools/sim/show.h"

#include <nlohmann/json.hpp>

#include "tools/sim/world.h"
#include "tools/switchctl/table.h"

namespace iswitch::sim {

using nlohmann::json;
using switchctl::Table;

namespace {

std::string number(std::uint64_t value) { return std::to_string(value); }
std::string milliseconds(Time time) { return format("%.3f", static_cast<double>(time) / 1e6); }

std::uint64_t counted(const std::map<std::string, std::uint64_t>& counters, const char* name) {
  const auto found = counters.find(name);
  return found == counters.end() ? 0 : found->second;
}

double goodput(const Report& report, const JobReport& job) {  // Gb/s of gradient, a worker
  if (report.worked_until <= 0 || job.workers == 0) return 0;
  return static_cast<double>(job.gradient_bytes) * 8 / static_cast<double>(report.worked_until) /
         job.workers;
}

std::string jobs_of(const Report& report) {
  Table table({{"job", Table::Align::right},
               {"mode"},
               {"workers", Table::Align::right},
               {"done", Table::Align::right},
               {"failed", Table::Align::right},
               {"median ms", Table::Align::right},
               {"99 % ms", Table::Align::right},
               {"longest ms", Table::Align::right},
               {"all in ms", Table::Align::right},
               {"Gb/s each", Table::Align::right},
               {"updates", Table::Align::right},
               {"too old", Table::Align::right},
               {"from a peer", Table::Align::right}});
  for (const auto& job : report.jobs) {
    table.add({number(job.id), job.async ? "async" : "sync", number(job.workers),
               number(job.completed), number(job.failed), milliseconds(job.times.median),
               milliseconds(job.times.high), milliseconds(job.times.longest),
               job.async ? "" : milliseconds(job.longest_round),
               format("%.3f", goodput(report, job)), job.async ? number(job.updates) : "",
               job.async ? number(job.stale_dropped) : "", job.async ? number(job.catch_ups) : ""});
  }
  return table.text("no jobs\n");
}

std::string switches_of(const Report& report) {
  constexpr std::size_t most = 24;
  Table table({{"switch"},
               {"starts", Table::Align::right},
               {"frames", Table::Align::right},
               {"summed", Table::Align::right},
               {"sums", Table::Align::right},
               {"copies", Table::Align::right},
               {"replayed", Table::Align::right},
               {"duplicates", Table::Align::right},
               {"control", Table::Align::right}});
  for (std::size_t i = 0; i < report.switches.size() && i < most; ++i) {
    const auto& node = report.switches[i];
    table.add({node.name, number(node.starts), number(node.frames),
               number(counted(node.counters, "aggregate_added")),
               number(counted(node.counters, "deliver_results")),
               number(counted(node.counters, "deliver_copies")),
               number(counted(node.counters, "aggregate_replayed")),
               number(counted(node.counters, "aggregate_drop_duplicate")),
               number(counted(node.counters, "control_passed"))});
  }
  std::string text = table.text("no switches\n");
  if (report.switches.size() > most)
    text += format("and %zu more\n", report.switches.size() - most);
  return text;
}

json links_json(const LinkCounters& links) {
  return {{"sent", links.sent},
          {"lost", links.lost},
          {"overflow", links.overflow},
          {"cut", links.cut},
          {"duplicated", links.duplicated},
          {"corrupted", links.corrupted},
          {"reordered", links.reordered},
          {"marked", links.marked},
          {"spikes", links.spikes},
          {"delivered", links.delivered},
          {"bytes", links.bytes},
          {"deepest_queue", links.deepest_queue}};
}

std::string pairs(const std::map<std::string, std::uint64_t>& all, const char* nothing) {
  std::string text;
  for (const auto& [name, count] : all)
    text += format("%s%llu %s", text.empty() ? "" : ", ", static_cast<unsigned long long>(count),
                   name.c_str());
  return text.empty() ? nothing : text;
}

}  // namespace

std::string table_of(const Report& report, double wall_seconds) {
  std::string text = format(
      "%s, seed %llu: %.3f ms of virtual time, %llu packets in %.2f s (%.2f million/s), "
      "event log %016llx\n\n",
      report.scenario.empty() ? "scenario" : report.scenario.c_str(),
      static_cast<unsigned long long>(report.seed), static_cast<double>(report.worked_until) / 1e6,
      static_cast<unsigned long long>(report.frames), wall_seconds,
      wall_seconds > 0 ? static_cast<double>(report.frames) / wall_seconds / 1e6 : 0,
      static_cast<unsigned long long>(report.hash));
  text += jobs_of(report) + "\n" + switches_of(report) + "\n";
  const LinkCounters& links = report.links;
  text += "links:  " +
          pairs({{"sent", links.sent},
                 {"lost", links.lost},
                 {"cut", links.cut},
                 {"dropped at full queues", links.overflow},
                 {"duplicated", links.duplicated},
                 {"corrupted", links.corrupted},
                 {"reordered", links.reordered},
                 {"marked", links.marked},
                 {"delay spikes", links.spikes}},
                "nothing") +
          "\n";
  text += "faults: " + pairs(report.faults, "none") + "\n";
  text += "errors: " + pairs(report.errors, "none") + "\n";
  text += format("properties: %s\n", report.violations.empty() ? "all hold" : "BROKEN");
  return text;
}

std::string json_of(const Report& report, double wall_seconds) {
  json out = {{"scenario", report.scenario},
              {"seed", report.seed},
              {"hash", format("%016llx", static_cast<unsigned long long>(report.hash))},
              {"virtual_ns", report.worked_until},
              {"ended_ns", report.ended_at},
              {"wall_seconds", wall_seconds},
              {"packets", report.frames},
              {"packets_per_second",
               wall_seconds > 0 ? static_cast<double>(report.frames) / wall_seconds : 0},
              {"events", report.events},
              {"operations", report.operations},
              {"failures", report.failures},
              {"faults", report.faults},
              {"errors", report.errors},
              {"links", links_json(report.links)},
              {"violations", report.violations},
              {"violation_count", report.violation_count}};
  out["jobs"] = json::array();
  for (const auto& job : report.jobs) {
    json one = {{"id", job.id},
                {"mode", job.async ? "async" : "sync"},
                {"workers", job.workers},
                {"completed", job.completed},
                {"failed", job.failed},
                {"gradient_bytes", job.gradient_bytes},
                {"median_ns", job.times.median},
                {"high_ns", job.times.high},
                {"longest_ns", job.times.longest},
                {"errors", job.errors}};
    if (job.async) {
      one["updates"] = job.updates;
      one["stale_dropped"] = job.stale_dropped;
      one["catch_ups"] = job.catch_ups;
      json& ages = one["staleness"] = json::object();
      for (const auto& [age, count] : job.staleness) ages[std::to_string(age)] = count;
    } else {
      one["longest_round_ns"] = job.longest_round;
    }
    out["jobs"].push_back(std::move(one));
  }
  out["switches"] = json::array();
  for (const auto& node : report.switches) {
    out["switches"].push_back({{"name", node.name},
                               {"starts", node.starts},
                               {"frames", node.frames},
                               {"exhausted", node.exhausted},
                               {"counters", node.counters}});
  }
  out["cables"] = json::array();
  for (const auto& cable : report.cables) {
    out["cables"].push_back(
        {{"name", cable.name}, {"up", links_json(cable.up)}, {"down", links_json(cable.down)}});
  }
  return out.dump() + "\n";
}

std::string failure_of(const Report& report, const std::string& again) {
  if (report.violations.empty()) return {};
  std::string text = report.trace;
  for (const auto& line : report.violations) text += "BROKEN " + line + "\n";
  text += format("%llu in all, seed %llu; again: %s\n",
                 static_cast<unsigned long long>(report.violation_count),
                 static_cast<unsigned long long>(report.seed), again.c_str());
  return text;
}

}  // namespace iswitch::sim
