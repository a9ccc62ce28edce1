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

bool has_marks(const Scenario& scenario) {
  const auto marks = [](const CableSpec& cable) {
    return cable.up.ecn_threshold_bytes != 0 || cable.down.ecn_threshold_bytes != 0;
  };
  return std::any_of(scenario.hosts.begin(), scenario.hosts.end(),
                     [&](const auto& host) { return marks(host.cable); }) ||
         std::any_of(scenario.switches.begin(), scenario.switches.end(),
                     [&](const auto& node) { return marks(node.cable); });
}

// Numbers of random streams: one part's draws never shift another's.
constexpr std::uint64_t switch_stream = 1'000'000;
constexpr std::uint64_t host_stream = 2'000'000;
constexpr std::uint64_t up_stream = 3'000'000;
constexpr std::uint64_t down_stream = 4'000'000;
constexpr std::uint64_t member_stream = 5'000'000;
constexpr std::uint64_t chaos_stream = 2;
constexpr std::uint64_t intruder_stream = 3;
constexpr Time minute = 60 * second;

}  // namespace

Run::Run(Scenario scenario)
    : scenario_(std::move(scenario)),
      world_(scenario_.seed, frame_room(scenario_), scenario_.trace_records),
      checks_(world_) {
  build();
}

Run::~Run() = default;

// ---- building

void Run::build() {
  for (unsigned i = 0; i < scenario_.jobs.size(); ++i) build_job(i);
  for (unsigned i = 0; i < scenario_.switches.size(); ++i) build_switch(i);
  workers_to_come_.resize(switches_.size());
  for (const auto& host : scenario_.hosts) ++workers_to_come_[host.node];
  shared_.resize(switches_.size());
  cable_of_switch_.resize(switches_.size());
  for (unsigned i = 0; i < switches_.size(); ++i) connect_switch(i);
  if (scenario_.intruder_interval > 0) build_intruder();
  for (unsigned i = 0; i < scenario_.hosts.size(); ++i) build_host(i);
  build_chaos();
}

void Run::build_job(unsigned index) {
  const JobPlan& plan = scenario_.jobs[index];
  const control::JobConfig& config = plan.config;
  Job job;
  const unsigned ranks = ranks_of(scenario_, index);
  if (config.mode == wire::Mode::sync) {
    job.sync = std::make_unique<SyncProgram>();
    checks_.set_rules(config.id, {ranks, plan.full, plan.unbroken});
  } else {
    job.async = std::make_unique<AsyncProgram>();
    job.async_checks = std::make_unique<AsyncChecks>(
        world_, config.id, index, ranks, plan.workload.max_elements, config.segment_bytes / 4);
    if (plan.unbroken) job.async_checks->expect_unbroken(scenario_.switches.size() > 1);
  }
  JobProgram& program = job.program();
  program.job = config.id;
  program.number = index;
  program.ranks = ranks;
  program.segment_bytes = config.segment_bytes;
  program.workload = plan.workload;
  agent::EngineOptions& options = program.options;
  options.job = config.id;
  options.mode = config.mode;
  if (config.mode == wire::Mode::async) options.elements = plan.workload.max_elements;
  options.key = config.key;
  options.max_segment_bytes = config.segment_bytes;
  options.ecn = plan.ecn;
  options.resume_within = plan.resume_within;
  options.min_retransmit = plan.min_retransmit;
  // A member is never silent for long enough to lose its place while it is alive.
  options.ping_interval = std::min(second, config.member_timeout / 4);
  jobs_.push_back(std::move(job));
}

void Run::build_switch(unsigned index) {
  SwitchSpec spec = scenario_.switches[index].node;
  spec.jobs = jobs_at(scenario_, index);
  if (spec.buffers == 0) spec.buffers = buffers_needed(spec.jobs) + 4096;
  const auto number = static_cast<std::uint16_t>(index);
  world_.node_names.push_back(spec.name);
  switches_.push_back(std::make_unique<SwitchNode>(world_, std::move(spec), number,
                                                   world_.random.fork(switch_stream + index)));
  if (has_marks(scenario_)) switches_.back()->watch_marks();
  if (scenario_.switches[index].parent) switches_.back()->add_port();  // port 0 leads there
}

void Run::connect_switch(unsigned index) {
  const SwitchPlan& plan = scenario_.switches[index];
  if (!plan.parent) return;
  SwitchNode& child = *switches_[index];
  SwitchNode& parent = *switches_[*plan.parent];
  const auto port = parent.add_port();
  Cable cable;
  cable.name = plan.node.name;
  cable.node = *plan.parent;
  cable.up = std::make_unique<Link>(world_, plan.cable.up, child.number(), parent, port,
                                    world_.random.fork(up_stream + index));
  cable.down = std::make_unique<Link>(world_, plan.cable.down, parent.number(), child, 0U,
                                      world_.random.fork(down_stream + index));
  child.connect(0, *cable.up);
  parent.connect(port, *cable.down);
  cable_of_switch_[index] = cables_.size();
  cables_.push_back(std::move(cable));
}

void Run::build_host(unsigned index) {
  const HostPlan& plan = scenario_.hosts[index];
  const auto number = static_cast<std::uint16_t>(world_.node_names.size());
  world_.node_names.push_back(plan.host.name);
  hosts_.push_back(std::make_unique<HostNode>(world_, plan.host, number,
                                              world_.random.fork(host_stream + index)));
  connect_host(index);
  Random random = world_.random.fork(member_stream + index);
  Job& job = jobs_[plan.job];
  if (job.sync) {
    members_.push_back(std::make_unique<Worker>(world_, *hosts_.back(), *job.sync, checks_,
                                                plan.rank, plan.slowness, random));
  } else {
    auto worker = std::make_unique<AsyncWorker>(
        world_, *hosts_.back(), *job.async, *job.async_checks, plan.rank, plan.slowness, random);
    if (plan.apply_twice) worker->plant_apply_twice();
    members_.push_back(std::move(worker));
  }
}

void Run::connect_host(unsigned index) {
  const HostPlan& plan = scenario_.hosts[index];
  SwitchNode& node = *switches_[plan.node];
  HostNode& host = *hosts_.back();
  Shared& shared = shared_[plan.node];
  const bool last_port = node.port_count() + 1 == datapath::max_ports;
  const bool share = shared.splitter || (last_port && workers_to_come_[plan.node] > 1);
  --workers_to_come_[plan.node];
  Cable cable;
  cable.name = plan.host.name;
  cable.node = plan.node;
  datapath::PortId port = shared.port;
  if (!shared.splitter) {
    port = node.add_port();
    EventHandler* below = &host;
    if (share) {
      shared.splitter = std::make_unique<Splitter>();
      shared.port = port;
      shared.cable = cables_.size();
      below = shared.splitter.get();
    }
    cable.down = std::make_unique<Link>(world_, plan.cable.down, node.number(), *below, 0U,
                                        world_.random.fork(down_stream + 100'000 + index));
    node.connect(port, *cable.down);
  }
  if (share) shared.splitter->add(host);
  splitter_of_.push_back(share ? shared.splitter.get() : nullptr);
  cable.up = std::make_unique<Link>(world_, plan.cable.up, host.number(), node, port,
                                    world_.random.fork(up_stream + 100'000 + index));
  host.connect(*cable.up);
  cable_of_host_.push_back(cables_.size());
  cables_.push_back(std::move(cable));
}

void Run::build_intruder() {
  const unsigned at = scenario_.intruder_at;
  SwitchNode& node = *switches_[at];
  const auto number = static_cast<std::uint16_t>(world_.node_names.size());
  world_.node_names.emplace_back("intruder");
  auto address = node.spec().address;
  address.rules.ports = node.spec().shards;
  const wire::Endpoint own{{{0x02, 0, 0, 9, 7, 7}}, {0x0A4D'FFC8}, 6666};
  intruder_ =
      std::make_unique<Intruder>(world_, own, address, number, world_.random.fork(intruder_stream));
  const auto port = node.add_port();
  Cable cable;
  cable.name = "intruder";
  cable.node = at;
  cable.up = std::make_unique<Link>(world_, LinkSpec{}, number, node, port,
                                    world_.random.fork(up_stream - 1));
  cable.down = std::make_unique<Link>(world_, LinkSpec{}, node.number(), *intruder_, 0U,
                                      world_.random.fork(down_stream - 1));
  intruder_->connect(*cable.up);
  node.connect(port, *cable.down);
  cables_.push_back(std::move(cable));
}

void Run::build_chaos() {
  std::vector<ChaosJob> chaos_jobs;
  std::vector<Target> targets;
  for (unsigned j = 0; j < scenario_.jobs.size(); ++j) {
    const JobPlan& plan = scenario_.jobs[j];
    ChaosJob chaos{plan.config.id, plan.full, plan.unbroken, plan.config.slots, {}, {}, {}};
    Target target{
        plan.config.id, !plan.config.key.empty(), plan.config.slots, plan.config.segment_bytes, {}};
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (scenario_.hosts[i].job != j) continue;
      chaos.workers.push_back(members_[i].get());
      if (scenario_.hosts[i].node == scenario_.intruder_at)
        target.members.push_back(hosts_[i].get());
    }
    for (const auto& node : switches_) {
      for (const auto& job : node->spec().jobs) {
        if (job.id != plan.config.id) continue;
        chaos.switches.push_back(node.get());
        chaos.thresholds.push_back(job.threshold);
      }
    }
    chaos_jobs.push_back(std::move(chaos));
    if (!target.members.empty()) targets.push_back(std::move(target));
  }
  if (intruder_) intruder_->set_targets(std::move(targets));
  chaos_ = std::make_unique<Chaos>(world_, scenario_.chaos, std::move(chaos_jobs),
                                   world_.random.fork(chaos_stream));
  Victims victims;
  const auto links_of = [&](std::size_t cable) {
    return std::pair<Link*, Link*>{cables_[cable].up.get(), cables_[cable].down.get()};
  };
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    victims.switches.push_back(switches_[i].get());
    victims.switch_cables.push_back(cable_of_switch_[i] ? links_of(*cable_of_switch_[i])
                                                        : std::pair<Link*, Link*>{});
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    victims.hosts.push_back(members_[i].get());
    victims.host_cables.push_back(links_of(cable_of_host_[i]));
  }
  faults_ = std::make_unique<PlannedFaults>(world_, scenario_.faults, std::move(victims));
}

std::vector<std::string> Run::cables() const {
  std::vector<std::string> names;
  for (const auto& cable : cables_) names.push_back(cable.name);
  return names;
}

void Run::tap(std::size_t cable, LinkTap& tap) {
  const auto tag = static_cast<unsigned>(2 * cable);
  cables_[cable].up->set_tap(&tap, tag);
  if (cables_[cable].down) cables_[cable].down->set_tap(&tap, tag + 1);
}

// ---- the phases

// Restarts of a job that has never run are another matter.
void Run::wait_for_all() {
  const Time limit = world_.now() + 10 * second;
  const auto all_run = [&] {
    return std::all_of(members_.begin(), members_.end(), [](const auto& member) {
      return member->host().up() && member->host().engine()->state() == agent::EngineState::running;
    });
  };
  while (!all_run() && world_.now() < limit) world_.queue.run_until(world_.now() + millisecond);
  if (!all_run())
    return world_.violation(property::recovery, "the jobs do not run 10 s after everybody came");
  // Longer than any copy of a Join is under way.
  world_.queue.run_until(world_.now() + 20 * millisecond);
}

void Run::work(Time until) {
  const bool ends = std::all_of(scenario_.jobs.begin(), scenario_.jobs.end(),
                                [](const auto& job) { return job.workload.operations != 0; });
  if (!ends) {
    world_.queue.run_until(until);
  } else {
    // In steps that grow, so that neither short runs nor long ones spend their time looking.
    Time step = 10 * microsecond;
    while (world_.now() < until) {
      world_.queue.run_until(std::min(until, world_.now() + step));
      if (std::all_of(members_.begin(), members_.end(), [](const auto& m) { return m->done(); }))
        break;
      step = std::min(millisecond, std::max(step, world_.now() / 64));
    }
  }
  worked_until_ = world_.now();
}

void Run::set_faults_off() {
  for (const auto& cable : cables_) {
    for (Link* link : {cable.up.get(), cable.down.get()}) {
      if (link == nullptr) continue;
      link->set_faults({});
      link->cut_until(0);
    }
  }
}

// Of a worker that does not get on: its engine's state, and what its switch says.
std::string Run::state_of(std::size_t host) const {
  agent::Engine* engine = hosts_[host]->engine();
  if (engine == nullptr) return "no engine";
  std::string at_switch;
  const SwitchNode& node = *switches_[scenario_.hosts[host].node];
  if (node.control() != nullptr) {
    for (const auto& job : node.control()->jobs()) {
      if (job.config.id != members_[host]->job().job) continue;
      at_switch = format(", at %s %zu of %u members, state %d", node.spec().name.c_str(),
                         job.members.size(), job.config.members, static_cast<int>(job.state));
      if (!job.fault.empty()) at_switch += ", " + job.fault;
      if (job.parent) at_switch += ", " + control::parent_text(*job.parent, world_.now());
    }
  }
  return at_switch.insert(0, format("engine state %d, %zu under way, base round %u%s%s",
                                    static_cast<int>(engine->state()), members_[host]->in_flight(),
                                    engine->job().base_round, engine->join_error() ? ", " : "",
                                    engine->join_error().text.c_str()));
}

void Run::probe() {
  std::vector<std::uint64_t> goal;
  for (const auto& member : members_)
    goal.push_back(member->successes() + scenario_.probe_operations);
  const auto arrived = [&](std::size_t i) {
    return members_[i]->successes() >= goal[i] || members_[i]->done();
  };
  const Time limit = world_.now() + scenario_.probe;
  // What members asked for during the trouble (a Halt) may be on its way up a tree for long.
  int heals = 4;
  Time heal_at = world_.now() + 200 * millisecond;
  while (world_.now() < limit) {
    if (world_.now() >= heal_at && heals-- > 0) {
      chaos_->heal();
      heal_at = world_.now() + 200 * millisecond;
    }
    bool all = true;
    for (std::size_t i = 0; i < members_.size() && all; ++i) all = arrived(i);
    if (all) return;
    world_.queue.run_until(std::min(limit, world_.now() + 5 * millisecond));
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (arrived(i)) continue;
    const std::uint64_t done = members_[i]->successes() - (goal[i] - scenario_.probe_operations);
    world_.violation(property::recovery,
                     format("%s (job %u) got %llu operations through after all faults ended, %s",
                            hosts_[i]->spec().name.c_str(), members_[i]->job().job,
                            static_cast<unsigned long long>(done), state_of(i).c_str()));
  }
}

void Run::stop() {
  Time longest = 0;
  for (auto& job : jobs_) {
    job.program().stopping = true;
    longest = std::max(longest, job.program().workload.deadline);
  }
  // Those that are behind may still begin what others have begun, and so on.
  const Time limit = world_.now() + 4 * longest + 100 * millisecond;
  const auto idle = [&] {
    return std::all_of(members_.begin(), members_.end(),
                       [](const auto& member) { return member->in_flight() == 0; });
  };
  Time quiet_since = world_.now();
  while (world_.now() < limit && world_.now() < quiet_since + 5 * millisecond) {
    world_.queue.run_until(world_.now() + millisecond);
    if (!idle()) quiet_since = world_.now();
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i]->in_flight() == 0) continue;
    world_.violation(property::outstanding,
                     format("%s: %zu operations never ended", hosts_[i]->spec().name.c_str(),
                            members_[i]->in_flight()));
  }
  settle_replicas();
}

bool Run::replicas_equal(const Job& job) const {
  const AsyncWorker& first = *job.async->workers.front();
  return std::all_of(job.async->workers.begin(), job.async->workers.end(),
                     [&](const AsyncWorker* worker) {
                       return worker->has_weights() && worker->base_round() == first.base_round() &&
                              worker->numbers().last == first.numbers().last;
                     });
}

// Switches that restart take it that sums had all members in them (protocol.md section 9), which
// does not hold where places were filled again, or thresholds changed, just before.
bool Run::bits_may_be_wrong(const Job& job) const {
  const bool restarted = std::any_of(switches_.begin(), switches_.end(),
                                     [](const auto& node) { return node->life() > 1; });
  return restarted && switches_.size() > 1 && !job.async_checks->unbroken();
}

// Lost updates are asked for again, and who needs weights takes them from a peer.
void Run::settle_replicas() {
  const Time limit = world_.now() + 5 * second;
  for (const auto& job : jobs_) {
    if (!job.async) continue;
    // Also what nobody has got yet: a member asks for the next update after its timeout.
    if (world_.now() < limit) world_.queue.run_until(world_.now() + 50 * millisecond);
    while (world_.now() < limit && !replicas_equal(job))
      world_.queue.run_until(world_.now() + 5 * millisecond);
    if (!replicas_equal(job)) {
      std::string text = "members do not come to have the same updates:";
      for (const AsyncWorker* worker : job.async->workers) {
        text +=
            format(" rank %u %s base round %u first segment %u;", worker->rank(),
                   worker->has_weights() ? "has weights," : "lacks weights,", worker->base_round(),
                   worker->numbers().last.empty() ? 0 : worker->numbers().last[0]);
      }
      world_.violation(property::replicas, text);
      continue;
    }
    const std::uint32_t base_round = job.async->workers.front()->base_round();
    if (!bits_may_be_wrong(job)) job.async_checks->quiet(base_round);
    for (const AsyncWorker* worker : job.async->workers)
      job.async_checks->compare(worker->rank(), base_round, worker->weights());
  }
}

void Run::leave() {
  for (const auto& member : members_) member->leave(world_.now() + 200 * millisecond);
  // A child without members leaves its parent in turn.
  world_.queue.run_until(world_.now() + 600 * millisecond);
  for (const auto& host : hosts_) {
    agent::Engine* engine = host->engine();
    if (engine == nullptr) continue;
    if (engine->state() != agent::EngineState::left || engine->next_deadline() != never) {
      world_.violation(property::outstanding,
                       format("%s: after leaving, the engine is in state %d with something to do",
                              host->spec().name.c_str(), static_cast<int>(engine->state())));
    }
  }
  for (const auto& node : switches_) {
    if (node->control() == nullptr) continue;
    for (const auto& job : node->control()->jobs()) {
      if (job.members.empty()) continue;
      world_.violation(property::outstanding,
                       format("%s: job %u has %zu members after all have left",
                              node->spec().name.c_str(), job.config.id, job.members.size()));
    }
  }
  for (const auto& host : hosts_) {
    if (host->engine() == nullptr) continue;
    const agent::Statistics statistics = host->engine()->statistics();
    resumes_ += statistics.resumes;
    handed_back_ += statistics.handed_back;
  }
  for (const auto& node : switches_) node->stop();
  for (const auto& member : members_) member->crash();
}

void Run::silence() {
  world_.queue.run_until(world_.now() + minute);  // timers of programs that have ended
  if (!world_.queue.empty()) {
    world_.violation(
        property::outstanding,
        format("%zu events are left after all programs have ended", world_.queue.size()));
  }
  if (world_.frames.in_use() != 0) {
    world_.violation(property::outstanding, format("%zu frames are left", world_.frames.in_use()));
  }
  std::vector<std::uint64_t> delivered(switches_.size());
  for (const auto& cable : cables_) delivered[cable.node] += cable.up->counters().delivered;
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    if (cable_of_switch_[i])
      delivered[i] += cables_[*cable_of_switch_[i]].down->counters().delivered;
    if (switches_[i]->buffers_in_use() != 0) {
      world_.violation(property::outstanding,
                       format("%s: %zu buffers were not given back",
                              switches_[i]->spec().name.c_str(), switches_[i]->buffers_in_use()));
    }
    checks_.counters(*switches_[i], delivered[i]);
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    checks_.counters(*hosts_[i], splitter_of_[i] != nullptr
                                     ? splitter_of_[i]->given(*hosts_[i])
                                     : cables_[cable_of_host_[i]].down->counters().delivered);
  }
  for (const auto& shared : shared_) {
    if (shared.splitter &&
        shared.splitter->arrived() != cables_[shared.cable].down->counters().delivered) {
      world_.violation(property::counters, "frames delivered to hosts on one port differ");
    }
  }
  for (const auto& cable : cables_) {
    if (cable.name == "intruder" && intruder_->arrived() != cable.down->counters().delivered)
      world_.violation(property::counters, "frames delivered to the intruder and got by it differ");
  }
}

Report Run::execute(std::size_t trace_lines) {
  for (const auto& node : switches_) node->start();
  for (std::size_t i = 0; i < members_.size(); ++i)
    members_[i]->come_back(scenario_.hosts[i].starts_at);
  faults_->start();
  if (scenario_.when_all_run) wait_for_all();
  const Time until = world_.now() + scenario_.trouble;
  chaos_->start(until);
  if (intruder_) intruder_->start(scenario_.intruder_interval, until + scenario_.settle);
  work(until);
  set_faults_off();
  for (auto& job : jobs_) {
    job.program().workload.mistakes = 0;
    job.program().workload.naps = 0;
  }
  chaos_->heal();
  world_.queue.run_until(world_.now() + scenario_.settle);
  chaos_->heal();  // requests of members that were still under way may have undone the first one
  probe();
  stop();
  leave();
  silence();
  return report(trace_lines);
}

// ---- what came of it

void Run::describe_jobs(Report& report) {
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    JobReport out;
    out.id = scenario_.jobs[i].config.id;
    out.workers = ranks_of(scenario_, static_cast<unsigned>(i));
    const std::map<unsigned, std::uint64_t>* errors = nullptr;
    if (job.sync) {
      const JobFigures& figures = checks_.figures(out.id);
      out.completed = figures.completed;
      out.failed = figures.failed;
      out.gradient_bytes = figures.gradient_bytes;
      out.times = times_of(figures.times);
      out.longest_round = figures.longest_round;
      errors = &figures.errors;
    } else {
      const AsyncFigures& figures = job.async_checks->figures();
      out.async = true;
      out.completed = figures.completed;
      out.failed = figures.failed;
      out.gradient_bytes = figures.completed * 4 * scenario_.jobs[i].workload.max_elements;
      out.times = times_of(figures.times);
      out.updates = figures.updates;
      out.stale_dropped = figures.stale_dropped;
      out.catch_ups = figures.catch_ups;
      out.staleness = figures.staleness;
      errors = &figures.errors;
    }
    for (const auto& [code, count] : *errors) {
      const char* name = agent::error_name(static_cast<agent::ErrorCode>(code));
      out.errors[name] += count;
      report.errors[name] += count;
    }
    report.operations += out.completed;
    report.failures += out.failed;
    report.jobs.push_back(std::move(out));
  }
}

Report Run::report(std::size_t trace_lines) {
  Report report;
  report.scenario = scenario_.name;
  report.seed = scenario_.seed;
  report.violations = world_.violations.lines();
  report.violation_count = world_.violations.count();
  report.hash = world_.trace.hash();
  report.events = world_.queue.handled();
  report.elements = checks_.elements_checked();
  report.resumes = resumes_;
  report.handed_back = handed_back_;
  describe_jobs(report);
  for (std::size_t act = 0; act < act_count; ++act) {
    const auto count = chaos_->acts(static_cast<Act>(act));
    if (count != 0) report.faults[act_name(static_cast<Act>(act))] = count;
  }
  if (faults_->happened() != 0) report.faults["planned"] = faults_->happened();
  report.acts = chaos_->acts() + faults_->happened();
  for (const auto& node : switches_) {
    const SwitchTotals totals = node->totals();
    SwitchReport out;
    out.name = node->spec().name;
    out.frames = totals.arrived;
    out.starts = node->life();
    out.exhausted = totals.exhausted;
    for (const auto& [name, count] : totals.counters) {
      if (count == 0) continue;
      out.counters[name] = count;
      report.counters[name] += count;
    }
    report.switches.push_back(std::move(out));
  }
  for (const auto& cable : cables_) {
    CableReport out;
    out.name = cable.name;
    out.up = cable.up->counters();
    if (cable.down) out.down = cable.down->counters();
    add(report.links, out.up);
    add(report.links, out.down);
    report.cables.push_back(std::move(out));
  }
  report.frames = report.links.delivered;
  report.worked_until = worked_until_;
  report.ended_at = world_.now();
  if (!world_.violations.empty()) report.trace = world_.trace.text(trace_lines, world_.node_names);
  return report;
}

}  // namespace iswitch::sim
