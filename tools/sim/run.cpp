#include "tools/sim/run.h"

#include <algorithm>
#include <utility>

#include "wire/frame.h"

namespace iswitch::sim {

namespace {

std::size_t frame_room(const Scenario& scenario) {
  std::size_t longest = 0;
  for (const auto& job : scenario.jobs) {
    longest = std::max<std::size_t>(longest, job.config.segment_bytes);
  }
  return std::max<std::size_t>(wire::payload_offset + longest, 256);
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
  sum.delivered += one.delivered;
  sum.bytes += one.bytes;
  sum.deepest_queue = std::max(sum.deepest_queue, one.deepest_queue);
}

}  // namespace

bool Report::broken(const std::string& property) const {
  return std::any_of(violations.begin(), violations.end(), [&](const std::string& line) {
    return line.find("  " + property + ": ") != std::string::npos;
  });
}

Run::Run(Scenario scenario)
    : scenario_(std::move(scenario)),
      world_(scenario_.seed, frame_room(scenario_), scenario_.trace_records),
      checks_(world_) {
  build();
}

Run::~Run() = default;

void Run::build() {
  scenario_.node.jobs.clear();
  std::vector<ChaosJob> chaos_jobs;
  for (std::size_t i = 0; i < scenario_.jobs.size(); ++i) {
    const JobPlan& plan = scenario_.jobs[i];
    scenario_.node.jobs.push_back(plan.config);
    auto program = std::make_unique<JobProgram>();
    program->job = plan.config.id;
    program->number = static_cast<unsigned>(i);
    program->ranks = plan.config.members;
    program->segment_bytes = plan.config.segment_bytes;
    program->workload = plan.workload;
    program->options.job = plan.config.id;
    program->options.key = plan.config.key;
    program->options.max_segment_bytes = plan.config.segment_bytes;
    program->options.ecn = plan.ecn;
    program->options.min_retransmit = plan.min_retransmit;
    // A member is never silent for long enough to lose its place while it is alive.
    program->options.ping_interval = std::min(second, plan.config.member_timeout / 4);
    programs_.push_back(std::move(program));
    checks_.set_rules(plan.config.id, {plan.config.members, plan.full});
    chaos_jobs.push_back({plan.config.id, plan.full, plan.config.slots, {}});
  }
  world_.node_names.push_back(scenario_.node.name);
  switch_ =
      std::make_unique<SwitchNode>(world_, scenario_.node, std::uint16_t{0}, world_.random.fork(1));
  for (std::size_t i = 0; i < scenario_.hosts.size(); ++i) {
    const HostPlan& plan = scenario_.hosts[i];
    const auto number = static_cast<std::uint16_t>(i + 1);
    world_.node_names.push_back(plan.host.name);
    hosts_.push_back(
        std::make_unique<HostNode>(world_, plan.host, number, world_.random.fork(100 + i)));
    HostNode& host = *hosts_.back();
    const auto port = switch_->add_port();
    up_.push_back(std::make_unique<Link>(world_, plan.up, number, *switch_, port,
                                         world_.random.fork(10'000 + i)));
    down_.push_back(std::make_unique<Link>(world_, plan.down, std::uint16_t{0}, host, 0U,
                                           world_.random.fork(20'000 + i)));
    host.connect(*up_.back());
    switch_->connect(port, *down_.back());
    workers_.push_back(std::make_unique<Worker>(world_, host, *programs_[plan.job], checks_,
                                                plan.rank, world_.random.fork(30'000 + i)));
    chaos_jobs[plan.job].workers.push_back(workers_.back().get());
  }
  if (scenario_.intruder_interval > 0) build_intruder();
  chaos_ = std::make_unique<Chaos>(world_, scenario_.chaos, *switch_, std::move(chaos_jobs),
                                   world_.random.fork(2));
}

void Run::build_intruder() {
  std::vector<Target> targets;
  for (const auto& job : scenario_.jobs) {
    targets.push_back(
        {job.config.id, !job.config.key.empty(), job.config.slots, job.config.segment_bytes, {}});
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    targets[scenario_.hosts[i].job].members.push_back(hosts_[i].get());
  }
  const auto number = static_cast<std::uint16_t>(hosts_.size() + 1);
  world_.node_names.emplace_back("intruder");
  auto address = scenario_.node.address;
  address.rules.ports = scenario_.node.shards;
  intruder_ = std::make_unique<Intruder>(world_, scenario_.intruder, address, std::move(targets),
                                         number, world_.random.fork(3));
  const auto port = switch_->add_port();
  up_.push_back(
      std::make_unique<Link>(world_, LinkSpec{}, number, *switch_, port, world_.random.fork(4)));
  down_.push_back(std::make_unique<Link>(world_, LinkSpec{}, std::uint16_t{0}, *intruder_, 0U,
                                         world_.random.fork(5)));
  intruder_->connect(*up_.back());
  switch_->connect(port, *down_.back());
}

void Run::probe() {
  std::vector<std::uint64_t> goal;
  for (const auto& worker : workers_)
    goal.push_back(worker->successes() + scenario_.probe_operations);
  const Time limit = world_.now() + scenario_.probe;
  while (world_.now() < limit) {
    world_.queue.run_until(std::min(limit, world_.now() + 5 * millisecond));
    bool all = true;
    for (std::size_t i = 0; i < workers_.size(); ++i)
      all = all && workers_[i]->successes() >= goal[i];
    if (all) return;
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const std::uint64_t done = workers_[i]->successes() - (goal[i] - scenario_.probe_operations);
    if (done >= scenario_.probe_operations) continue;
    agent::Engine* engine = hosts_[i]->engine();
    world_.violation(
        property::recovery,
        format(
            "%s (job %u) got %llu operations through after all faults ended, engine state %d, %zu "
            "under way, base round %u%s%s",
            hosts_[i]->spec().name.c_str(), workers_[i]->program().job,
            static_cast<unsigned long long>(done),
            engine == nullptr ? -1 : static_cast<int>(engine->state()), workers_[i]->in_flight(),
            engine == nullptr ? 0 : engine->job().base_round,
            engine != nullptr && engine->join_error() ? ", " : "",
            engine == nullptr ? "" : engine->join_error().text.c_str()));
  }
}

void Run::stop() {
  Time longest = 0;
  for (const auto& program : programs_) {
    program->stopping = true;
    longest = std::max(longest, program->workload.deadline);
  }
  // Those that are behind may still begin what others have begun, and so on.
  const Time limit = world_.now() + 4 * longest + 100 * millisecond;
  const auto idle = [&] {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const auto& worker) { return worker->in_flight() == 0; });
  };
  Time quiet_since = world_.now();
  while (world_.now() < limit && world_.now() < quiet_since + 5 * millisecond) {
    world_.queue.run_until(world_.now() + millisecond);
    if (!idle()) quiet_since = world_.now();
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i]->in_flight() == 0) continue;
    world_.violation(property::outstanding,
                     format("%s: %zu operations never ended", hosts_[i]->spec().name.c_str(),
                            workers_[i]->in_flight()));
  }
}

void Run::leave() {
  for (const auto& worker : workers_) worker->leave(world_.now() + 200 * millisecond);
  world_.queue.run_until(world_.now() + 300 * millisecond);
  for (const auto& host : hosts_) {
    agent::Engine* engine = host->engine();
    if (engine == nullptr) continue;
    if (engine->state() != agent::EngineState::left || engine->next_deadline() != never) {
      world_.violation(property::outstanding,
                       format("%s: after leaving, the engine is in state %d with something to do",
                              host->spec().name.c_str(), static_cast<int>(engine->state())));
    }
  }
  if (switch_->control() != nullptr) {
    for (const auto& job : switch_->control()->jobs()) {
      if (!job.members.empty()) {
        world_.violation(property::outstanding, format("job %u has %zu members after all have left",
                                                       job.config.id, job.members.size()));
      }
    }
  }
  switch_->stop();
  for (const auto& worker : workers_) worker->crash();
}

void Run::silence() {
  world_.queue.run_until(world_.now() + 5 * second);
  if (!world_.queue.empty()) {
    world_.violation(
        property::outstanding,
        format("%zu events are left after all programs have ended", world_.queue.size()));
  }
  if (world_.frames.in_use() != 0) {
    world_.violation(property::outstanding, format("%zu frames are left", world_.frames.in_use()));
  }
  if (switch_->buffers_in_use() != 0) {
    world_.violation(property::outstanding,
                     format("%zu buffers were not given back", switch_->buffers_in_use()));
  }
  checks_.counters(*switch_, up_);
  for (std::size_t i = 0; i < hosts_.size(); ++i) checks_.counters(*hosts_[i], *down_[i]);
  if (intruder_ && intruder_->arrived() != down_.back()->counters().delivered) {
    world_.violation(property::counters, "frames delivered to the intruder and got by it differ");
  }
}

Report Run::execute(std::size_t trace_lines) {
  switch_->start();
  for (std::size_t i = 0; i < workers_.size(); ++i)
    workers_[i]->come_back(scenario_.hosts[i].starts_at);
  chaos_->start(scenario_.trouble);
  if (intruder_)
    intruder_->start(scenario_.intruder_interval, scenario_.trouble + scenario_.settle);
  world_.queue.run_until(scenario_.trouble);
  for (const auto& link : up_) link->set_faults({});
  for (const auto& link : down_) link->set_faults({});
  for (const auto& program : programs_) program->workload.mistakes = 0;
  chaos_->heal();
  world_.queue.run_until(world_.now() + scenario_.settle);
  chaos_->heal();  // requests of members that were still under way may have undone the first one
  probe();
  stop();
  leave();
  silence();

  Report report;
  report.seed = scenario_.seed;
  report.violations = world_.violations.lines();
  report.violation_count = world_.violations.count();
  report.hash = world_.trace.hash();
  report.events = world_.queue.handled();
  report.operations = checks_.completed();
  report.failures = checks_.failed();
  report.elements = checks_.elements_checked();
  report.acts = chaos_->acts();
  for (const auto& [code, count] : checks_.failures()) {
    report.errors[agent::error_name(static_cast<agent::ErrorCode>(code))] = count;
  }
  report.counters = switch_->totals().counters;
  for (const auto& link : up_) add(report.links, link->counters());
  for (const auto& link : down_) add(report.links, link->counters());
  report.frames = report.links.delivered;
  report.ended_at = world_.now();
  if (!world_.violations.empty()) report.trace = world_.trace.text(trace_lines, world_.node_names);
  return report;
}

}  // namespace iswitch::sim
