#include "tools/sim/scenario_file.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "switchd/json_reader.h"
#include "tools/sim/scenario_topology.h"

namespace iswitch::sim {

using nlohmann::json;

namespace {

constexpr std::int64_t most_slots = 1 << 20;

void read_sizes(JsonReader& object, WorkloadSpec& load) {
  const json* elements = object.find("elements");
  if (elements == nullptr) return;
  constexpr std::int64_t most = 1 << 26;
  constexpr const char* allowed =
      "must be a number of floats from 1 to 67108864, or [LEAST, MOST] of them";
  const auto fits = [](const json& value) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
           value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  };
  load.edges = false;
  if (fits(*elements)) {
    load.min_elements = load.max_elements = elements->get<std::uint32_t>();
  } else if (elements->is_array() && elements->size() == 2 && fits((*elements)[0]) &&
             fits((*elements)[1]) && (*elements)[0] <= (*elements)[1]) {
    load.min_elements = (*elements)[0].get<std::uint32_t>();
    load.max_elements = (*elements)[1].get<std::uint32_t>();
  } else {
    object.error(object.at("elements"), *elements, allowed);
  }
}

void read_workload(const json& value, const std::string& pointer, bool async, WorkloadSpec& load,
                   JsonErrors& errors) {
  JsonReader object(value, pointer, errors);
  read_sizes(object, load);
  object.boolean("edges", load.edges);
  object.integer("operations", 0, 1'000'000'000, load.operations);
  object.integer("depth", 1, 64, load.depth);
  object.time("compute_us", microsecond, load.compute);
  object.number("noise", 0, 1, load.noise);
  object.time("deadline_ms", millisecond, load.deadline);
  if (async) {
    object.integer("staleness", 0, 1'000'000, load.staleness);
    object.probability("naps", load.naps);
    object.time("catch_up_us", microsecond, load.catch_up);
    return;
  }
  object.probability("broadcasts", load.broadcasts);
  object.probability("barriers", load.barriers);
  object.probability("means", load.means);
  object.probability("zeros", load.zeros);
  object.probability("mistakes", load.mistakes);
}

void read_key(JsonReader& object, std::vector<std::uint8_t>& key) {
  std::string text;
  constexpr const char* allowed = "must be a text of 16 to 1024 bytes";
  if (!object.text("key", allowed, text)) return;
  if (text.size() < 16 || text.size() > 1024) {
    object.error(object.at("key"), text, allowed);
    return;
  }
  key.assign(text.begin(), text.end());
}

JobPlan read_job(const json& value, const std::string& pointer, JsonErrors& errors) {
  JobPlan plan;
  JsonReader object(value, pointer, errors);
  control::JobConfig& config = plan.config;
  config.slots = 256;
  if (object.required("id", "an integer from 0 to 65535") != nullptr)
    object.integer("id", 0, 65535, config.id);
  std::size_t mode = 0;
  object.choice("mode", {"sync", "async"}, mode);
  config.mode = mode == 0 ? wire::Mode::sync : wire::Mode::async;
  object.integer("slots", 1, most_slots, config.slots);
  object.integer("segment_bytes", wire::min_segment_bytes, wire::max_segment_bytes,
                 config.segment_bytes);
  if (config.segment_bytes % wire::min_segment_bytes != 0)
    object.error(object.at("segment_bytes"), config.segment_bytes, "must be a multiple of 32");
  object.integer("threshold", 0, wire::max_members, config.threshold);
  std::int64_t number = 0;
  if (object.integer("history", 1, 64, number)) config.history = static_cast<std::uint16_t>(number);
  if (object.integer("base_round", 0, UINT32_MAX, number))
    config.base_round = static_cast<std::uint32_t>(number);
  object.boolean("udp_checksum", config.udp_checksum);
  read_key(object, config.key);
  object.time("force_after_ms", millisecond, config.force_after);
  object.boolean("evict_silent", config.evict_silent);
  config.member_timeout = second;
  std::int64_t timeout = 0;
  if (object.integer("member_timeout_ms", 10, 86'400'000, timeout))
    config.member_timeout = timeout * millisecond;
  object.boolean("ecn", plan.ecn);
  object.boolean("unbroken", plan.unbroken);
  object.time("min_retransmit_us", microsecond, plan.min_retransmit);
  if (const json* load = object.find("workload")) {
    read_workload(*load, object.at("workload"), mode == 1, plan.workload, errors);
  }
  if (config.mode == wire::Mode::async) {
    const std::uint64_t room = std::uint64_t{config.slots} * (config.segment_bytes / 4);
    if (plan.workload.max_elements > room) {
      errors.push_back({pointer + "/workload/elements", std::to_string(plan.workload.max_elements),
                        "is longer than an asynchronous job's slots hold: slots x segment_bytes / "
                        "4 = " +
                            std::to_string(room) + " floats"});
    }
  }
  return plan;
}

void read_jobs(JsonReader& root, Scenario& scenario, JsonErrors& errors) {
  const json* jobs = root.required("jobs", "an array of at least one job");
  if (jobs == nullptr) return;
  if (!jobs->is_array() || jobs->empty() || jobs->size() > 64) {
    root.error("/jobs", *jobs, "must be an array of 1 to 64 jobs");
    return;
  }
  std::map<std::uint16_t, std::size_t> ids;
  for (std::size_t i = 0; i < jobs->size(); ++i) {
    const std::string pointer = "/jobs/" + std::to_string(i);
    scenario.jobs.push_back(read_job((*jobs)[i], pointer, errors));
    const auto id = scenario.jobs.back().config.id;
    if (!ids.insert({id, i}).second)
      errors.push_back({pointer + "/id", std::to_string(id), "is another job's id too"});
  }
}

void read_faults(JsonReader& root, Scenario& scenario, JsonErrors& errors) {
  const json* faults = root.find("faults");
  if (faults == nullptr) return;
  if (!faults->is_array()) return root.error("/faults", *faults, "must be an array of faults");
  for (std::size_t i = 0; i < faults->size(); ++i) {
    const std::string pointer = "/faults/" + std::to_string(i);
    JsonReader object((*faults)[i], pointer, errors);
    PlannedFault fault;
    std::size_t kind = 1;
    constexpr const char* kinds = "\"pause\", \"crash\", \"stop\", \"cut\" or \"stand-in\"";
    if (object.required("what", kinds) != nullptr)
      object.choice("what", {"pause", "crash", "stop", "cut", "stand-in"}, kind);
    fault.kind = static_cast<FaultKind>(kind);
    if (object.required("at_ms", "a time from the start of the run") != nullptr)
      object.time("at_ms", millisecond, fault.at);
    if (object.required("for_ms", "how long it lasts") != nullptr)
      object.time("for_ms", millisecond, fault.duration);
    std::string name;
    constexpr const char* allowed = "must be a switch's or a worker's name";
    if (object.required("node", allowed) == nullptr || !object.text("node", allowed, name))
      continue;
    const auto node = std::find_if(scenario.switches.begin(), scenario.switches.end(),
                                   [&](const auto& plan) { return plan.node.name == name; });
    const auto host = std::find_if(scenario.hosts.begin(), scenario.hosts.end(),
                                   [&](const auto& plan) { return plan.host.name == name; });
    fault.at_switch = node != scenario.switches.end();
    if (fault.at_switch) {
      fault.node = static_cast<unsigned>(node - scenario.switches.begin());
    } else if (host != scenario.hosts.end()) {
      fault.node = static_cast<unsigned>(host - scenario.hosts.begin());
    } else {
      object.error(object.at("node"), name, "is no node of this scenario");
      continue;
    }
    scenario.faults.push_back(fault);
  }
}

void read_random_faults(JsonReader& root, Scenario& scenario, JsonErrors& errors) {
  const json* value = root.find("random_faults");
  if (value == nullptr) return;
  JsonReader object(*value, "/random_faults", errors);
  ChaosSpec& chaos = scenario.chaos;
  object.time("mean_interval_ms", millisecond, chaos.mean_interval);
  object.time("longest_absence_ms", millisecond, chaos.longest_absence);
  chaos.longest_absence = std::max(chaos.longest_absence, 2 * millisecond);
  object.time("intruder_interval_us", microsecond, scenario.intruder_interval);
  if (!scenario.hosts.empty()) scenario.intruder_at = scenario.hosts.front().node;
  const json* acts = object.find("acts");
  if (acts == nullptr) {
    for (std::size_t act = 0; act < static_cast<std::size_t>(Act::leave); ++act)
      chaos.weights[act] = 1;
    return;
  }
  JsonReader weights(*acts, object.at("acts"), errors);
  for (std::size_t act = 0; act < act_count; ++act)
    weights.number(act_name(static_cast<Act>(act)), 0, 1e6, chaos.weights[act]);
}

// Whether nothing may make a sum less than full.
void set_rules(Scenario& scenario) {
  const auto first = static_cast<std::size_t>(Act::leave);  // this and the ones behind it
  bool acts = false;
  for (std::size_t act = first; act < act_count; ++act)
    acts = acts || (scenario.chaos.mean_interval > 0 && scenario.chaos.weights[act] > 0);
  for (unsigned i = 0; i < scenario.jobs.size(); ++i) {
    JobPlan& plan = scenario.jobs[i];
    const control::JobConfig& config = plan.config;
    const bool leaves =
        std::any_of(scenario.faults.begin(), scenario.faults.end(), [&](const PlannedFault& fault) {
          if (fault.kind != FaultKind::stop) return false;
          return fault.at_switch ? scenario.switches[fault.node].parent.has_value()
                                 : scenario.hosts[fault.node].job == i;
        });
    plan.full = !acts && !leaves && config.threshold == 0 && plan.thresholds.empty() &&
                config.force_after == 0 && !config.evict_silent;
  }
}

Scenario read_scenario(const json& value, JsonErrors& errors) {
  Scenario scenario;
  JsonReader root(value, "", errors);
  if (!root.is_object()) return scenario;
  root.text("name", "must be a text", scenario.name);
  read_jobs(root, scenario, errors);
  read_topology(root, scenario, errors);
  read_random_faults(root, scenario, errors);
  if (!errors.empty()) {  // what follows needs the nodes
    for (const char* key : {"faults", "duration_ms", "settle_ms", "probe_ms"}) root.find(key);
    return scenario;
  }
  read_faults(root, scenario, errors);
  scenario.trouble = 10 * second;
  const bool endless =
      std::any_of(scenario.jobs.begin(), scenario.jobs.end(),
                  [](const JobPlan& plan) { return plan.workload.operations == 0; });
  if (endless) scenario.trouble = 150 * millisecond;
  root.time("duration_ms", millisecond, scenario.trouble);
  root.time("settle_ms", millisecond, scenario.settle);
  root.time("probe_ms", millisecond, scenario.probe);
  check_topology(scenario, errors);
  set_rules(scenario);
  return scenario;
}

}  // namespace

LoadedScenario parse_scenario(std::string_view text) {
  LoadedScenario loaded;
  JsonErrors errors;
  if (const auto value = parse_json(text, "", errors))
    loaded.scenario = read_scenario(*value, errors);
  if (!errors.empty()) loaded.scenario.reset();
  for (const JsonError& error : errors) loaded.errors.push_back(error.line());
  return loaded;
}

LoadedScenario load_scenario(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!file || !(contents << file.rdbuf())) {
    LoadedScenario loaded;
    loaded.errors.push_back("cannot be read or is empty");
    return loaded;
  }
  return parse_scenario(contents.str());
}

}  // namespace iswitch::sim
