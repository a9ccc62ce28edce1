#include "tools/sim/scenario_topology.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace iswitch::sim {

using nlohmann::json;

namespace {

constexpr std::size_t most_nodes = 60'000;
constexpr const char* node_name_rule = "must be a name of its own, a text of 1 to 32 bytes";

void read_link(const json& value, const std::string& pointer, LinkSpec& link, JsonErrors& errors) {
  JsonReader object(value, pointer, errors);
  double gbps = 0;
  if (object.number("rate_gbps", 0, 1'000'000, gbps))
    link.bits_per_second = static_cast<std::uint64_t>(gbps * 1e9);
  object.time("delay_us", microsecond, link.delay);
  object.integer("queue_bytes", 64, UINT32_MAX, link.queue_bytes);
  object.integer("ecn_threshold_bytes", 0, UINT32_MAX, link.ecn_threshold_bytes);
  object.probability("loss", link.faults.loss);
  object.probability("duplicate", link.faults.duplicate);
  object.probability("reorder", link.faults.reorder);
  object.probability("corrupt", link.faults.corrupt);
  object.probability("spike", link.faults.spike);
  link.faults.reorder_delay = 100 * microsecond;
  link.faults.spike_delay = millisecond;
  object.time("reorder_delay_us", microsecond, link.faults.reorder_delay);
  object.time("spike_delay_us", microsecond, link.faults.spike_delay);
}

// Both directions alike, or {"up": ..., "down": ...}.
CableSpec read_cable(const json& value, const std::string& pointer, CableSpec cable,
                     JsonErrors& errors) {
  if (value.is_object() && (value.contains("up") || value.contains("down"))) {
    JsonReader object(value, pointer, errors);
    if (const json* up = object.find("up")) read_link(*up, object.at("up"), cable.up, errors);
    if (const json* down = object.find("down"))
      read_link(*down, object.at("down"), cable.down, errors);
    return cable;
  }
  read_link(value, pointer, cable.up, errors);
  cable.down = cable.up;
  return cable;
}

struct Cables {
  CableSpec worker;  // to and from workers
  CableSpec trunk;   // between switches
};

Cables read_cables(JsonReader& root, JsonErrors& errors) {
  Cables cables;
  if (const json* links = root.find("links"))
    cables.worker = read_cable(*links, "/links", {}, errors);
  cables.trunk = cables.worker;
  if (const json* trunks = root.find("trunks"))
    cables.trunk = read_cable(*trunks, "/trunks", cables.worker, errors);
  return cables;
}

// Fan-outs from the root down; the last one is the number of workers of each job at each leaf.
void read_tiers(const json& value, Scenario& scenario, const Cables& cables, JsonErrors& errors) {
  constexpr const char* allowed =
      "must be an array of 1 to 8 fan-outs, each from 1 to 64; the last one counts the workers of "
      "each job at a leaf";
  const auto fits = [](const json& n) {
    return n.is_number_unsigned() && n.get<std::uint64_t>() >= 1 &&
           n.get<std::uint64_t>() <= wire::max_members;
  };
  if (!value.is_array() || value.empty() || value.size() > 8 ||
      !std::all_of(value.begin(), value.end(), fits)) {
    errors.push_back({"/topology/tiers", shown(value), allowed});
    return;
  }
  std::size_t nodes = std::max<std::size_t>(scenario.jobs.size(), 1);
  for (const auto& n : value) nodes *= n.get<std::size_t>();
  if (nodes > most_nodes) {
    errors.push_back({"/topology/tiers", shown(value),
                      "makes " + std::to_string(nodes) + " workers; at most " +
                          std::to_string(most_nodes) + " can be simulated"});
    return;
  }
  std::vector<unsigned> tier{add_switch(scenario, "root", std::nullopt)};
  for (std::size_t depth = 0; depth + 1 < value.size(); ++depth) {
    std::vector<unsigned> next;
    const char* kind = depth + 2 == value.size() ? "leaf" : "spine";
    for (const unsigned parent : tier) {
      for (unsigned i = 0; i < value[depth].get<unsigned>(); ++i) {
        const auto number = next.size();
        const std::string name =
            depth == 0 ? format("%s%zu", kind, number) : format("%s%zu-%zu", kind, depth, number);
        next.push_back(
            add_switch(scenario, value.size() == 3 && depth == 1 ? format("leaf%zu", number) : name,
                       parent, cables.trunk));
      }
    }
    tier = std::move(next);
  }
  const bool several = scenario.jobs.size() > 1;
  for (unsigned job = 0; job < scenario.jobs.size(); ++job) {
    unsigned number = 0;
    for (const unsigned leaf : tier) {
      for (unsigned i = 0; i < value.back().get<unsigned>(); ++i, ++number) {
        add_worker(scenario,
                   several ? format("j%u-w%u", scenario.jobs[job].config.id, number)
                           : format("w%u", number),
                   leaf, job, cables.worker);
      }
    }
  }
}

// A switch as the file gives it; parents may come later in the file.
struct NamedSwitch {
  std::string pointer, name, parent;
  CableSpec cable;
  SwitchSpec spec;
  std::optional<unsigned> index;
  bool visiting = false;
};

class Switches {
 public:
  Switches(Scenario& scenario, const Cables& cables, JsonErrors& errors)
      : scenario_(scenario), cables_(cables), errors_(errors) {}

  void read(const json& list) {
    for (std::size_t i = 0; i < list.size(); ++i) read_one(list[i], i);
    for (auto& node : nodes_) place(node);
  }
  std::optional<unsigned> find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? std::nullopt : nodes_[found->second].index;
  }
  bool taken(const std::string& name) const { return by_name_.count(name) != 0; }

 private:
  void read_one(const json& value, std::size_t i) {
    NamedSwitch node;
    node.pointer = "/topology/switches/" + std::to_string(i);
    node.cable = cables_.trunk;
    JsonReader object(value, node.pointer, errors_);
    if (object.required("name", node_name_rule) != nullptr)
      object.text("name", node_name_rule, node.name);
    object.text("parent", "must be a switch's name; without it the switch is a root", node.parent);
    if (const json* link = object.find("link"))
      node.cable = read_cable(*link, object.at("link"), cables_.trunk, errors_);
    object.integer("shards", 1, 16, node.spec.shards);
    object.integer("receive_ring", 1, 1 << 20, node.spec.receive_ring);
    object.integer("buffers", 0, 1 << 24, node.spec.buffers);
    if (node.name.empty()) return;
    if (node.name.size() > 32 || !by_name_.insert({node.name, nodes_.size()}).second) {
      errors_.push_back({node.pointer + "/name", shown(node.name), node_name_rule});
      return;
    }
    nodes_.push_back(std::move(node));
  }

  // Parents first.
  void place(NamedSwitch& node) {
    if (node.index || node.visiting) return;
    node.visiting = true;
    std::optional<unsigned> parent;
    if (!node.parent.empty()) {
      const auto found = by_name_.find(node.parent);
      if (found == by_name_.end()) {
        errors_.push_back(
            {node.pointer + "/parent", shown(node.parent), "is no switch of this scenario"});
        return;
      }
      NamedSwitch& above = nodes_[found->second];
      if (above.visiting && !above.index) {
        errors_.push_back({node.pointer + "/parent", shown(node.parent),
                           "closes a loop: switches must be in a tree"});
        return;
      }
      place(above);
      if (!above.index) return;  // told already
      parent = above.index;
    }
    node.index = add_switch(scenario_, node.name, parent, node.cable);
    SwitchSpec& spec = scenario_.switches.back().node;
    spec.shards = node.spec.shards;
    spec.receive_ring = node.spec.receive_ring;
    spec.buffers = node.spec.buffers;
  }

  Scenario& scenario_;
  const Cables& cables_;
  JsonErrors& errors_;
  std::vector<NamedSwitch> nodes_;
  std::map<std::string, std::size_t> by_name_;
};

void read_worker(const json& value, const std::string& pointer, Scenario& scenario,
                 const Switches& switches, const Cables& cables, std::map<std::string, bool>& names,
                 JsonErrors& errors) {
  JsonReader object(value, pointer, errors);
  std::string name;
  std::string node;
  CableSpec cable = cables.worker;
  if (object.required("name", node_name_rule) != nullptr) object.text("name", node_name_rule, name);
  if (object.required("switch", "without one no switch can be reached") != nullptr)
    object.text("switch", "must be a switch's name", node);
  std::int64_t job = scenario.jobs.empty() ? 0 : scenario.jobs[0].config.id;
  object.integer("job", 0, 65535, job);
  if (const json* link = object.find("link"))
    cable = read_cable(*link, object.at("link"), cables.worker, errors);
  double slowness = 1;
  Time starts_at = 0;
  std::int64_t receive_datagrams = 64;
  object.number("slowness", 0.001, 1e6, slowness);
  object.time("starts_at_ms", millisecond, starts_at);
  object.integer("receive_datagrams", 1, 1'000'000, receive_datagrams);
  if (name.empty() || node.empty()) return;
  if (name.size() > 32 || switches.taken(name) || !names.insert({name, true}).second) {
    errors.push_back({pointer + "/name", shown(name), node_name_rule});
    return;
  }
  const auto place = switches.find(node);
  if (!place) {
    if (!switches.taken(node)) {
      errors.push_back({pointer + "/switch", shown(node), "is no switch of this scenario"});
    }
    return;
  }
  const auto found = std::find_if(scenario.jobs.begin(), scenario.jobs.end(),
                                  [&](const JobPlan& plan) { return plan.config.id == job; });
  if (found == scenario.jobs.end()) {
    errors.push_back({pointer + "/job", std::to_string(job), "is no job of this scenario"});
    return;
  }
  HostPlan& host = add_worker(scenario, name, *place,
                              static_cast<unsigned>(found - scenario.jobs.begin()), cable);
  host.slowness = slowness;
  host.starts_at = starts_at;
  host.host.receive_datagrams = static_cast<std::uint32_t>(receive_datagrams);
}

}  // namespace

void read_topology(JsonReader& root, Scenario& scenario, JsonErrors& errors) {
  const Cables cables = read_cables(root, errors);
  const json* value = root.required("topology", "an object with tiers, or switches and workers");
  if (value == nullptr) return;
  JsonReader topology(*value, "/topology", errors);
  if (!topology.is_object()) return;
  std::int64_t datagrams = 64;
  const bool given = topology.integer("receive_datagrams", 1, 1'000'000, datagrams);
  if (const json* tiers = topology.find("tiers")) {
    read_tiers(*tiers, scenario, cables, errors);
  } else {
    const json* list = topology.required("switches", "an array of switches (or tiers)");
    const json* workers = topology.required("workers", "an array of workers (or tiers)");
    if (list == nullptr || workers == nullptr) return;
    for (const auto* array : {list, workers}) {
      if (array->is_array() && array->size() <= most_nodes) continue;
      errors.push_back({array == list ? "/topology/switches" : "/topology/workers", shown(*array),
                        "must be an array of at most 60000"});
      return;
    }
    Switches switches(scenario, cables, errors);
    switches.read(*list);
    std::map<std::string, bool> names;
    for (std::size_t i = 0; i < workers->size(); ++i) {
      read_worker((*workers)[i], "/topology/workers/" + std::to_string(i), scenario, switches,
                  cables, names, errors);
    }
  }
  if (given) {
    for (auto& host : scenario.hosts)
      host.host.receive_datagrams = static_cast<std::uint32_t>(datagrams);
  }
  if (const json* jobs = topology.find("thresholds")) {
    // {"switch": {"job id": H}}
    JsonReader by_switch(*jobs, "/topology/thresholds", errors);
    if (!by_switch.is_object()) return;
    for (unsigned node = 0; node < scenario.switches.size(); ++node) {
      const std::string& name = scenario.switches[node].node.name;
      const json* of_jobs = by_switch.find(name.c_str());
      if (of_jobs == nullptr) continue;
      JsonReader by_job(*of_jobs, by_switch.at(name), errors);
      for (auto& plan : scenario.jobs) {
        std::int64_t threshold = 0;
        if (by_job.integer(std::to_string(plan.config.id).c_str(), 0, wire::max_members, threshold))
          plan.thresholds[node] = static_cast<std::uint16_t>(threshold);
      }
    }
  }
}

void check_topology(const Scenario& scenario, JsonErrors& errors) {
  const auto root_of = [&](unsigned node) {
    while (scenario.switches[node].parent) node = *scenario.switches[node].parent;
    return node;
  };
  for (unsigned job = 0; job < scenario.jobs.size(); ++job) {
    const std::string pointer = "/jobs/" + std::to_string(job);
    std::optional<unsigned> root;
    for (const auto& host : scenario.hosts) {
      if (host.job != job) continue;
      if (root && *root != root_of(host.node)) {
        errors.push_back({"/topology", shown(host.host.name),
                          "cannot reach the other workers of its job: their switches have no root "
                          "in common"});
        break;
      }
      root = root_of(host.node);
    }
    if (!root) errors.push_back({pointer, "", "has no workers"});
  }
  for (unsigned node = 0; node < scenario.switches.size(); ++node) {
    const std::string& name = scenario.switches[node].node.name;
    std::size_t ports = scenario.switches[node].parent ? 1 : 0;
    for (const auto& other : scenario.switches) ports += other.parent == node ? 1 : 0;
    const auto workers = std::count_if(scenario.hosts.begin(), scenario.hosts.end(),
                                       [&](const auto& host) { return host.node == node; });
    const bool intruder = scenario.intruder_interval > 0 && scenario.intruder_at == node;
    if (ports + (workers > 0 ? 1 : 0) + (intruder ? 1 : 0) > datapath::max_ports) {
      errors.push_back({"/topology", shown(name),
                        "needs " + std::to_string(ports) +
                            " ports for switches and more for workers; a switch has 64"});
    }
    for (const auto& config : jobs_at(scenario, node)) {
      if (config.members > wire::max_members) {
        errors.push_back({"/topology", shown(name),
                          "would have " + std::to_string(config.members) + " members of job " +
                              std::to_string(config.id) + "; a switch has at most 64"});
        continue;
      }
      for (const std::string& problem : control::job_config_errors(config))
        errors.push_back({"/jobs", shown(name), problem});
    }
  }
}

}  // namespace iswitch::sim
