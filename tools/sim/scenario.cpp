#include "tools/sim/scenario.h"

#include <algorithm>
#include <utility>

namespace iswitch::sim {

namespace {

constexpr std::uint64_t wall_clock = 1'800'000'000'000'000;  // microseconds since 1970, some day
constexpr std::uint32_t worker_network = 0x0A4D'0001;        // 10.77.0.1 and on
constexpr std::uint32_t switch_network = 0x0A5D'0001;        // 10.93.0.1 and on
constexpr std::uint8_t worker_mac = 1;
constexpr std::uint8_t switch_mac = 2;

wire::Mac mac_of(std::uint8_t kind, std::size_t number) {
  return {{0x02, 0, 0, kind, static_cast<std::uint8_t>(number >> 8),
           static_cast<std::uint8_t>(number)}};
}

wire::Endpoint endpoint_of(const SwitchSpec& node) {
  return {node.address.mac, node.address.rules.ip, node.address.rules.udp_port};
}

// By switch: direct members of the job there.
std::vector<unsigned> members_of(const Scenario& scenario, unsigned job) {
  std::vector<unsigned> members(scenario.switches.size());
  for (const auto& host : scenario.hosts) {
    if (host.job == job) ++members[host.node];
  }
  for (std::size_t node = members.size(); node-- > 0;) {  // children come after their parents
    const auto parent = scenario.switches[node].parent;
    if (parent && members[node] > 0) ++members[*parent];
  }
  return members;
}

}  // namespace

unsigned add_switch(Scenario& scenario, std::string name, std::optional<unsigned> parent,
                    const CableSpec& cable) {
  const std::size_t number = scenario.switches.size();
  SwitchPlan plan;
  plan.node.name = std::move(name);
  plan.node.address.mac = mac_of(switch_mac, number);
  plan.node.address.rules.ip = {switch_network + static_cast<std::uint32_t>(number)};
  plan.node.unix_microseconds = wall_clock;
  plan.parent = parent;
  if (parent) plan.node.parent = endpoint_of(scenario.switches[*parent].node);
  plan.cable = cable;
  scenario.switches.push_back(std::move(plan));
  return static_cast<unsigned>(number);
}

HostPlan& add_worker(Scenario& scenario, std::string name, unsigned node, unsigned job,
                     const CableSpec& cable) {
  const std::size_t number = scenario.hosts.size();
  HostPlan plan;
  plan.host.name = std::move(name);
  plan.host.endpoint = {mac_of(worker_mac, number),
                        {worker_network + static_cast<std::uint32_t>(number)},
                        static_cast<std::uint16_t>(30000 + number % 10000)};
  plan.host.switch_endpoint = endpoint_of(scenario.switches[node].node);
  plan.host.unix_microseconds = wall_clock;
  plan.node = node;
  plan.job = job;
  plan.rank = ranks_of(scenario, job);
  plan.cable = cable;
  scenario.hosts.push_back(std::move(plan));
  return scenario.hosts.back();
}

unsigned ranks_of(const Scenario& scenario, unsigned job) {
  return static_cast<unsigned>(std::count_if(scenario.hosts.begin(), scenario.hosts.end(),
                                             [&](const auto& host) { return host.job == job; }));
}

std::vector<control::JobConfig> jobs_at(const Scenario& scenario, unsigned node) {
  std::vector<control::JobConfig> jobs;
  for (unsigned job = 0; job < scenario.jobs.size(); ++job) {
    const unsigned members = members_of(scenario, job)[node];
    if (members == 0) continue;
    const JobPlan& plan = scenario.jobs[job];
    control::JobConfig config = plan.config;
    // A child keeps at least as many results as its parent, whose threshold may be another one.
    const bool may_lack_members =
        config.threshold != 0 || config.force_after != 0 || !plan.thresholds.empty();
    if (may_lack_members && !config.history) config.history = std::uint16_t{8};
    config.members = static_cast<std::uint16_t>(members);
    const auto own = plan.thresholds.find(node);
    if (own != plan.thresholds.end()) config.threshold = own->second;
    config.threshold = std::min(config.threshold, config.members);
    if (scenario.switches[node].parent) config.base_round.reset();
    jobs.push_back(std::move(config));
  }
  return jobs;
}

std::size_t buffers_needed(const std::vector<control::JobConfig>& jobs) {
  std::size_t needed = 0;
  for (const auto& job : jobs) {
    // Kept results, the open sum, and one that waits for the parent.
    needed += std::size_t{job.slots} * (control::history_in_force(job) + 2U);
  }
  return needed;
}

}  // namespace iswitch::sim
