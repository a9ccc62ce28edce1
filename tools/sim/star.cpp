#include "tools/sim/star.h"

#include <algorithm>
#include <array>

#include "tools/sim/random.h"

namespace iswitch::sim {

namespace {

constexpr std::uint64_t wall_clock = 1'800'000'000'000'000;  // microseconds since 1970, some day

wire::Mac mac_of(unsigned number) {
  return {
      {0x02, 0, 0, 0, static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number)}};
}

SwitchSpec switch_spec() {
  SwitchSpec spec;
  spec.name = "tor0";
  spec.address.mac = mac_of(0xFE);
  spec.address.rules.ip = {0x0A4D'00FE};
  spec.unix_microseconds = wall_clock;
  return spec;
}

HostSpec host_spec(const SwitchSpec& node, unsigned number, unsigned job, unsigned rank) {
  HostSpec spec;
  spec.name = format("j%u-w%u", job, rank);
  spec.endpoint = {
      mac_of(number + 1), {0x0A4D'0001 + number}, static_cast<std::uint16_t>(30000 + number)};
  spec.switch_endpoint = {node.address.mac, node.address.rules.ip, node.address.rules.udp_port};
  spec.unix_microseconds = wall_clock;
  return spec;
}

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

LinkSpec link_spec(Random& random, const StarLimits& limits) {
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

JobPlan job_plan(Random& random, unsigned number, const StarLimits& limits) {
  JobPlan plan;
  control::JobConfig& config = plan.config;
  config.id = static_cast<std::uint16_t>(number == 0 ? 1 : random.between(2, 20'000) * 3 + number);
  config.members = static_cast<std::uint16_t>(random.between(2, limits.workers));
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
  if (!plan.full) {
    if (random.chance(0.3)) {
      config.threshold = static_cast<std::uint16_t>(random.between(1, config.members));
    }
    if (random.chance(0.3)) config.history = static_cast<std::uint16_t>(random.between(1, 8));
    if (random.chance(0.3)) config.force_after = random.between(2, 20) * millisecond;
    config.evict_silent = random.chance(0.3);
  }
  plan.ecn = random.chance(0.5);
  plan.min_retransmit = random.between(500, 3000) * microsecond;
  WorkloadSpec& load = plan.workload;
  load.max_elements = static_cast<std::uint32_t>(
      std::min<std::int64_t>(random.between(10, 6000), std::int64_t{config.segment_bytes} * 30));
  load.depth = static_cast<unsigned>(random.between(1, 4));
  load.compute = random.between(50, 2000) * microsecond;
  load.noise = random.unit();
  if (plan.full && random.chance(0.3)) load.mistakes = random.unit() * 0.02;
  load.deadline = random.between(40, 150) * millisecond;
  return plan;
}

ChaosSpec chaos_spec(Random& random) {
  ChaosSpec spec;
  spec.mean_interval = random.between(5, 60) * millisecond;
  for (auto& weight : spec.weights) weight = random.chance(0.3) ? 0 : random.unit();
  spec.weights[static_cast<std::size_t>(Act::restart_switch)] *= 0.4;
  spec.weights[static_cast<std::size_t>(Act::stop_switch)] *= 0.3;
  spec.weights[static_cast<std::size_t>(Act::force)] *= 3;
  spec.weights[static_cast<std::size_t>(Act::force_by_member)] *= 3;
  spec.longest_absence = random.between(5, 60) * millisecond;
  return spec;
}

}  // namespace

Scenario random_star(std::uint64_t seed, const StarLimits& limits) {
  Random random = Random(seed).fork(0x57A2);
  Scenario scenario;
  scenario.seed = seed;
  scenario.node = switch_spec();
  scenario.node.shards = static_cast<std::uint16_t>(random.between(1, 2));
  scenario.trouble = limits.trouble;
  const auto jobs = static_cast<unsigned>(random.between(1, limits.jobs));
  std::size_t needed = 0;
  unsigned number = 0;
  for (unsigned job = 0; job < jobs; ++job) {
    scenario.jobs.push_back(job_plan(random, job, limits));
    const auto& config = scenario.jobs.back().config;
    needed += std::size_t{config.slots} * (control::history_in_force(config) + 1U);
    for (unsigned rank = 0; rank < config.members; ++rank) {
      HostPlan host;
      host.host = host_spec(scenario.node, number++, job, rank);
      host.host.receive_datagrams = static_cast<std::uint32_t>(random.between(8, 92));
      host.host.wake_delay = random.between(1, 40) * microsecond;
      host.job = job;
      host.rank = rank;
      host.up = link_spec(random, limits);
      host.down = link_spec(random, limits);
      host.starts_at = random.between(0, 5 * millisecond);
      scenario.hosts.push_back(host);
    }
  }
  // Just enough for the slots, so that transmit queues exhaust it, or plenty.
  scenario.node.buffers = needed + (random.chance(0.3) ? random.below(8) : 4096);
  scenario.node.receive_ring =
      random.chance(0.3) ? static_cast<std::size_t>(random.between(16, 64)) : 1024;
  scenario.node.control_ring = static_cast<std::size_t>(random.between(8, 64));
  scenario.node.notice_ring = static_cast<std::size_t>(random.between(2, 64));
  if (limits.chaos) {
    scenario.chaos = chaos_spec(random);
    if (random.chance(0.5)) {
      scenario.intruder_interval = random.between(20, 2000) * microsecond;
      scenario.intruder = {mac_of(0x777), {0x0A4D'00C8}, 6666};
    }
  }
  return scenario;
}

Scenario quiet_star(std::uint64_t seed, unsigned workers) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.node = switch_spec();
  JobPlan plan;
  plan.config.id = 1;
  plan.config.members = static_cast<std::uint16_t>(workers);
  plan.config.slots = 64;
  scenario.jobs.push_back(plan);
  for (unsigned rank = 0; rank < workers; ++rank) {
    HostPlan host;
    host.host = host_spec(scenario.node, rank, 0, rank);
    host.rank = rank;
    scenario.hosts.push_back(host);
  }
  scenario.trouble = 50 * millisecond;
  scenario.settle = 10 * millisecond;
  return scenario;
}

}  // namespace iswitch::sim
