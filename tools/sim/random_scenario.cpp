#include "tools/sim/random_scenario.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "tools/sim/random.h"

namespace iswitch::sim {

namespace {

// Either nothing or a random amount, so that single faults and all together are both met.
double share(Random& random, double most) { return random.chance(0.4) ? 0 : random.unit() * most; }

LinkFaults link_faults(Random& random, double scale) {
  LinkFaults faults;
  faults.loss = share(random, 0.05) * scale;
  faults.duplicate = share(random, 0.10) * scale;
  faults.reorder = share(random, 0.10) * scale;
  faults.corrupt = share(random, 0.02) * scale;
  faults.spike = share(random, 0.001) * scale;
  faults.reorder_delay = random.between(10, 2000) * microsecond;
  faults.spike_delay = random.between(1, 10) * millisecond;
  return faults;
}

LinkSpec link_spec(Random& random, const RandomLimits& limits) {
  LinkSpec spec;
  static constexpr std::array<std::uint64_t, 4> rates{1'000'000'000, 10'000'000'000, 25'000'000'000,
                                                      0};
  spec.bits_per_second = rates[random.below(rates.size())];
  spec.delay = random.between(200, 20'000);
  spec.queue_bytes = static_cast<std::uint32_t>(random.between(20'000, 1'000'000));
  if (random.chance(0.5)) {
    spec.ecn_threshold_bytes = static_cast<std::uint32_t>(random.between(2'000, 60'000));
  }
  spec.faults = link_faults(random, limits.faults);
  return spec;
}

CableSpec cable_spec(Random& random, const RandomLimits& limits) {
  CableSpec cable;
  cable.up = link_spec(random, limits);
  cable.down = link_spec(random, limits);
  return cable;
}

// A root, and below it nothing, leaves, or anything.
void add_switches(Scenario& scenario, Random& random, const RandomLimits& limits) {
  const bool tree =
      limits.shape == Shape::tree || (limits.shape == Shape::any && random.chance(0.6));
  add_switch(scenario, tree ? "root" : "tor0", std::nullopt);
  if (tree) {
    const bool deep = random.chance(0.5);
    const auto more = static_cast<unsigned>(random.between(1, deep ? 6 : 4));
    for (unsigned i = 0; i < more; ++i) {
      const unsigned parent =
          deep ? static_cast<unsigned>(random.below(scenario.switches.size())) : 0;
      add_switch(scenario, format("s%u", i + 1), parent, cable_spec(random, limits));
    }
  }
  for (auto& plan : scenario.switches) {
    SwitchSpec& node = plan.node;
    node.shards = static_cast<std::uint16_t>(random.between(1, 2));
    node.parent_by_arp = random.chance(0.7);
    node.receive_ring =
        random.chance(0.3) ? static_cast<std::size_t>(random.between(16, 64)) : 1024;
    node.control_ring = static_cast<std::size_t>(random.between(8, 64));
    node.notice_ring = static_cast<std::size_t>(random.between(2, 64));
  }
}

void set_workload(JobPlan& plan, Random& random, unsigned ranks) {
  const control::JobConfig& config = plan.config;
  WorkloadSpec& load = plan.workload;
  load.depth = static_cast<unsigned>(random.between(1, 4));
  load.compute = random.between(50, 2000) * microsecond;
  load.noise = random.unit();
  load.deadline = random.between(40, 150) * millisecond;
  if (config.mode == wire::Mode::sync) {
    load.max_elements = static_cast<std::uint32_t>(
        std::min<std::int64_t>(random.between(10, 6000), std::int64_t{config.segment_bytes} * 30));
    if (plan.full && random.chance(0.3)) load.mistakes = random.unit() * 0.02;
    return;
  }
  const std::uint32_t segment = config.segment_bytes / 4;
  const std::int64_t segments = random.between(1, std::min<std::int64_t>(config.slots, 8));
  const std::int64_t least = std::max<std::int64_t>((segments - 1) * segment + 1, ranks);
  load.max_elements = static_cast<std::uint32_t>(std::min<std::int64_t>(
      random.between(least, std::max<std::int64_t>(least, segments * segment)),
      std::int64_t{config.slots} * segment));
  load.staleness = static_cast<std::uint32_t>(random.between(0, 6));
  load.naps = share(random, 0.02);
  load.catch_up = random.between(200, 5000) * microsecond;
}

JobPlan job_plan(Random& random, unsigned number, unsigned ranks, const RandomLimits& limits) {
  JobPlan plan;
  control::JobConfig& config = plan.config;
  config.id = static_cast<std::uint16_t>(number == 0 ? 1 : random.between(2, 20'000) * 3 + number);
  const bool async =
      limits.modes == Modes::async || (limits.modes == Modes::any && random.chance(0.4));
  config.mode = async ? wire::Mode::async : wire::Mode::sync;
  config.slots =
      static_cast<std::uint32_t>(random.chance(0.3) ? random.between(4, 8) : random.between(4, 64));
  config.segment_bytes =
      static_cast<std::uint32_t>(random.chance(0.3)   ? 1440
                                 : random.chance(0.2) ? 32
                                                      : 32 * random.between(1, 45));
  plan.full = random.chance(0.5);
  if (random.chance(0.4)) {  // rounds wrap soon
    config.base_round = 0xFFFF'FFFFU - static_cast<std::uint32_t>(random.below(40));
  }
  if (random.chance(0.3)) {
    config.key.resize(static_cast<std::size_t>(random.between(16, 64)));
    for (auto& byte : config.key) byte = static_cast<std::uint8_t>(random.next());
  }
  config.member_timeout = random.between(30, 100) * millisecond;
  if (async || !plan.full) {
    if (random.chance(0.5)) config.threshold = static_cast<std::uint16_t>(random.between(1, 4));
    if (random.chance(0.3))
      config.history = static_cast<std::uint16_t>(random.between(async ? 2 : 1, 8));
    if (random.chance(0.3)) config.force_after = random.between(2, 20) * millisecond;
    config.evict_silent = random.chance(0.3);
  }
  config.udp_checksum = limits.faults == 0 ? random.chance(0.8) : true;
  plan.ecn = random.chance(0.5);
  plan.min_retransmit = random.between(500, 3000) * microsecond;
  set_workload(plan, random, ranks);
  return plan;
}

void add_job(Scenario& scenario, Random& random, unsigned number, const RandomLimits& limits) {
  const std::size_t switches = scenario.switches.size();
  const unsigned most = switches > 1 ? 2 * limits.workers : limits.workers;
  const auto ranks = static_cast<unsigned>(random.between(2, most));
  scenario.jobs.push_back(job_plan(random, number, ranks, limits));
  std::vector<unsigned> at(
      ranks);  // a random few of the switches, so that one of them may have none
  const auto used = 1 + random.below(switches);
  for (auto& node : at) node = static_cast<unsigned>((number + random.below(used)) % switches);
  const bool stragglers = random.chance(0.3);
  for (unsigned rank = 0; rank < ranks; ++rank) {
    HostPlan& host = add_worker(scenario, format("j%u-w%u", number, rank), at[rank], number,
                                cable_spec(random, limits));
    host.host.receive_datagrams = static_cast<std::uint32_t>(random.between(8, 92));
    host.host.wake_delay = random.between(1, 40) * microsecond;
    host.starts_at = random.between(0, 5 * millisecond);
    if (stragglers && random.chance(0.3)) host.slowness = 1 + 9 * random.unit();
  }
}

// Beside the job's own threshold, which holds at every switch: others at some of them.
void set_thresholds(JobPlan& plan, Random& random, std::size_t switches) {
  if (plan.full && plan.config.mode == wire::Mode::sync) return;
  for (unsigned node = 0; node < switches; ++node)
    if (random.chance(0.2))
      plan.thresholds[node] = static_cast<std::uint16_t>(random.between(0, 4));
}

ChaosSpec chaos_spec(Random& random) {
  ChaosSpec spec;
  spec.mean_interval = random.between(5, 60) * millisecond;
  for (auto& weight : spec.weights) weight = random.chance(0.3) ? 0 : random.unit();
  const auto weight = [&](Act act) -> double& {
    return spec.weights[static_cast<std::size_t>(act)];
  };
  weight(Act::pause_switch) *= 0.5;
  weight(Act::restart_switch) *= 0.4;
  weight(Act::stop_switch) *= 0.3;
  weight(Act::restart_twice) *= 0.2;
  weight(Act::restart_all) *= 0.2;
  weight(Act::stand_in) *= 0.2;
  weight(Act::force) *= 3;
  weight(Act::force_by_member) *= 3;
  spec.longest_absence = random.between(5, 60) * millisecond;
  return spec;
}

// Switches restart, alone, all at once or again while members are coming back, and nothing else
// happens to the programs: operations take longer, and none may fail.
void only_restarts(Scenario& scenario, Random& random) {
  ChaosSpec spec;
  spec.mean_interval = random.between(5, 50) * millisecond;
  for (const Act act : {Act::restart_switch, Act::stop_switch, Act::restart_twice, Act::restart_all,
                        Act::stand_in, Act::pause_switch})
    spec.weights[static_cast<std::size_t>(act)] = random.chance(0.2) ? 0 : random.unit();
  spec.weights[static_cast<std::size_t>(Act::restart_switch)] += 0.1;
  spec.longest_absence = random.between(2, 60) * millisecond;
  scenario.chaos = spec;
  scenario.when_all_run = true;
  scenario.trouble = 2 * scenario.trouble;
  for (JobPlan& plan : scenario.jobs) {
    control::JobConfig& config = plan.config;
    const bool async = config.mode == wire::Mode::async;
    const Time patient = random.between(3, 6) * second;
    plan.workload.mistakes = plan.workload.naps = 0;
    config.evict_silent = false;
    config.member_timeout = random.between(300, 1000) * millisecond;
    if (async) config.history.reset();
    // Synchronous with a lower threshold: where a straggler is behind by more than is kept, the job
    // has to begin afresh. Asynchronous: members may wait for each other (protocol.md section 5).
    const bool all = config.threshold == 0 && plan.thresholds.empty();
    plan.unbroken = async ? all : plan.full;
    // Members that wait for each other go on when they give a push up.
    if (plan.unbroken || !async) plan.workload.deadline = patient;
  }
}

}  // namespace

Scenario random_scenario(std::uint64_t seed, const RandomLimits& limits) {
  Random random = Random(seed).fork(0x57A2);
  Scenario scenario;
  scenario.name = "random";
  scenario.seed = seed;
  scenario.trouble = limits.trouble;
  add_switches(scenario, random, limits);
  const auto jobs = static_cast<unsigned>(random.between(1, limits.jobs));
  for (unsigned job = 0; job < jobs; ++job) add_job(scenario, random, job, limits);
  if (scenario.switches.size() > 1)
    for (JobPlan& plan : scenario.jobs) set_thresholds(plan, random, scenario.switches.size());
  // Just enough for the slots, so that transmit queues exhaust it, or plenty.
  std::map<unsigned, std::size_t> spare_buffers;
  for (unsigned i = 0; i < scenario.switches.size(); ++i)
    if (random.chance(0.3)) spare_buffers[i] = random.below(8);
  // Pushes that were given up hold slots until other members push there, one timeout after the
  // other.
  const bool async = std::any_of(scenario.jobs.begin(), scenario.jobs.end(), [](const auto& job) {
    return job.config.mode == wire::Mode::async;
  });
  if (async) scenario.probe = 20 * second;
  const bool quietly = random.chance(limits.restarts ? 0.7 : 0.15);
  if (limits.chaos && quietly) {
    only_restarts(scenario, random);
  } else if (limits.chaos) {
    scenario.chaos = chaos_spec(random);
    if (limits.restarts) {
      for (const Act act :
           {Act::restart_switch, Act::restart_twice, Act::restart_all, Act::stand_in})
        scenario.chaos.weights[static_cast<std::size_t>(act)] += random.unit();
    }
    for (JobPlan& plan : scenario.jobs)
      if (random.chance(0.1)) plan.resume_within = 0;
    if (random.chance(0.5)) {
      scenario.intruder_interval = random.between(20, 2000) * microsecond;
      scenario.intruder_at = scenario.hosts[random.below(scenario.hosts.size())].node;
    }
  }
  if (limits.restarts) scenario.chaos.first = Act::restart_switch;
  for (const auto& [node, spare] : spare_buffers)
    scenario.switches[node].node.buffers = buffers_needed(jobs_at(scenario, node)) + spare;
  return scenario;
}

Scenario quiet_star(std::uint64_t seed, unsigned workers) {
  Scenario scenario;
  scenario.name = "quiet star";
  scenario.seed = seed;
  add_switch(scenario, "tor0", std::nullopt);
  JobPlan plan;
  plan.config.id = 1;
  plan.config.slots = 64;
  scenario.jobs.push_back(plan);
  for (unsigned rank = 0; rank < workers; ++rank) add_worker(scenario, format("w%u", rank), 0, 0);
  scenario.trouble = 50 * millisecond;
  scenario.settle = 10 * millisecond;
  return scenario;
}

Scenario quiet_tree(std::uint64_t seed, unsigned leaves, unsigned workers) {
  Scenario scenario = quiet_star(seed, 0);
  scenario.name = "quiet tree";
  for (unsigned leaf = 0; leaf < leaves; ++leaf) {
    const unsigned node = add_switch(scenario, format("leaf%u", leaf), 0U);
    for (unsigned i = 0; i < workers; ++i)
      add_worker(scenario, format("l%u-w%u", leaf, i), node, 0);
  }
  return scenario;
}

}  // namespace iswitch::sim
