#include "tools/sim/chaos.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace iswitch::sim {

using control::Control;
using control::Effects;

const char* act_name(Act act) {
  static constexpr std::array<const char*, act_count> names{
      "crash worker",  "pause worker",   "pause switch", "restart switch",
      "stop switch",   "restart twice",  "restart all",  "stand-in",
      "member reset",  "operator reset", "halt",         "leave",
      "remove member", "set threshold",  "force",        "force by member"};
  return names[static_cast<std::size_t>(act)];
}

Chaos::Chaos(World& world, const ChaosSpec& spec, std::vector<ChaosJob> jobs, Random random)
    : world_(world), spec_(spec), jobs_(std::move(jobs)), random_(random) {}

std::uint64_t Chaos::acts() const {
  return std::accumulate(happened_.begin(), happened_.end(), std::uint64_t{0});
}

void Chaos::start(Time until) {
  until_ = until;
  if (spec_.mean_interval == 0) return;
  if (!spec_.first) return schedule_next();
  const Time at = world_.now() + random_.between(0, (until - world_.now()) / 4);
  world_.queue.schedule(at, *this, act_kind);
}

void Chaos::schedule_next() {
  const Time at = world_.now() + random_.exponential(spec_.mean_interval);
  if (at < until_) world_.queue.schedule(at, *this, act_kind);
}

void Chaos::heal() {
  const auto ignore = [](const control::OperatorReply&) {};
  for (auto& job : jobs_) {
    for (std::size_t i = 0; i < job.switches.size(); ++i) {
      job.switches[i]->start();
      job.switches[i]->operate([&](Control& control, Time now, Effects& effects) {
        control.halt(job.job, false, now, effects, ignore);
        if (!job.full) control.set_threshold(job.job, job.thresholds[i], now, effects, ignore);
      });
    }
    for (Member* worker : job.workers) worker->come_back(world_.now());
  }
}

void Chaos::handle(const Event& event) {
  auto* node = static_cast<SwitchNode*>(event.object);
  const auto ignore = [](const control::OperatorReply&) {};
  switch (event.kind) {
    case act_kind:
      act();
      schedule_next();
      return;
    case start_switch_kind:
      node->start();
      return;
    case crash_switch_kind:
      node->crash();
      world_.queue.schedule(world_.now() + event.value * microsecond, *this, start_switch_kind, 0,
                            node);
      return;
    case resume_kind:
      node->operate([&](Control& control, Time now, Effects& effects) {
        control.halt(jobs_[event.value].job, false, now, effects, ignore);
      });
      return;
    case force_kind:
      node->operate([&](Control& control, Time now, Effects& effects) {
        control.force(jobs_[event.value].job, open_.segment, open_.round, now, effects, ignore);
      });
      return;
    default:
      return;
  }
}

Act Chaos::draw() {
  if (spec_.first && acts() == 0) return *spec_.first;
  double total = 0;
  for (const double weight : spec_.weights) total += weight;
  double x = random_.unit() * total;
  std::size_t chosen = 0;
  while (chosen + 1 < act_count && x >= spec_.weights[chosen]) x -= spec_.weights[chosen++];
  return static_cast<Act>(chosen);
}

void Chaos::act() {
  const Act act = draw();
  auto& job = jobs_[random_.below(jobs_.size())];
  if (job.full && act >= Act::leave) return;
  ++happened_[static_cast<std::size_t>(act)];
  SwitchNode& node = *job.switches[random_.below(job.switches.size())];
  world_.trace.add(world_.now(), What::fault, node.number(), static_cast<std::uint32_t>(act),
                   job.job);
  perform(act, job, node);
}

// A child switch that ends in order leaves its parent, so that its workers are in no sum until it
// is back: nothing for jobs whose sums must be full, or that go on without a break.
bool Chaos::may_leave(const SwitchNode& node) const {
  if (!node.spec().parent) return true;
  return std::none_of(jobs_.begin(), jobs_.end(), [&](const ChaosJob& job) {
    return (job.full || job.unbroken) &&
           std::find(job.switches.begin(), job.switches.end(), &node) != job.switches.end();
  });
}

void Chaos::perform_restart(Act act, ChaosJob& job, SwitchNode& node) {
  const Time now = world_.now();
  const auto absence = [&] { return random_.between(millisecond, spec_.longest_absence); };
  const auto start_at = [&](Time at, SwitchNode& which) {
    world_.queue.schedule(at, *this, start_switch_kind, 0, &which);
  };
  if (act == Act::restart_all) {
    for (SwitchNode* each : job.switches) {
      each->crash();
      start_at(now + absence(), *each);
    }
    return;
  }
  if (act == Act::stop_switch && may_leave(node)) {
    node.stop();
  } else {
    node.crash();
  }
  if (act == Act::stand_in) node.stand_in();
  const Time back_at = now + absence();
  start_at(back_at, node);
  if (act != Act::restart_twice) return;
  // From at once to when members are back at work.
  const Time again_at = back_at + random_.between(10 * microsecond, 80 * millisecond);
  const Time away = random_.between(100 * microsecond, spec_.longest_absence);
  world_.queue.schedule(again_at, *this, crash_switch_kind,
                        static_cast<std::uint32_t>(away / microsecond), &node);
}

void Chaos::perform(Act act, ChaosJob& job, SwitchNode& node) {
  const Time now = world_.now();
  Member& worker = *job.workers[random_.below(job.workers.size())];
  agent::Engine* engine = worker.host().engine();
  const auto index = static_cast<std::uint32_t>(&job - jobs_.data());
  const Time absence = random_.between(millisecond, spec_.longest_absence);
  const auto ignore = [](const control::OperatorReply&) {};
  switch (act) {
    case Act::crash_worker:
      worker.crash();
      // Another port is another member: it gets the place once the old one has timed out.
      if (random_.chance(0.3)) {
        worker.host().set_udp_port(static_cast<std::uint16_t>(40000 + random_.below(20000)));
      }
      worker.come_back(now + absence);
      break;
    case Act::pause_worker:
      worker.host().pause(absence);
      break;
    case Act::pause_switch:
      node.pause(absence);
      break;
    case Act::restart_switch:
    case Act::stop_switch:
    case Act::restart_twice:
    case Act::restart_all:
    case Act::stand_in:
      perform_restart(act, job, node);
      break;
    case Act::member_reset:
      if (engine == nullptr) break;
      engine->request_reset(now);
      worker.host().wake_at(now);
      break;
    case Act::operator_reset:
      node.operate([&](Control& control, Time at, Effects& effects) {
        control.reset(job.job, at, effects, ignore);
      });
      break;
    case Act::halt:
      if (engine != nullptr && random_.chance(0.5)) {
        engine->request_halt(true, now);
        worker.host().wake_at(now);
      } else {
        node.operate([&](Control& control, Time at, Effects& effects) {
          control.halt(job.job, true, at, effects, ignore);
        });
      }
      world_.queue.schedule(now + absence / 4, *this, resume_kind, index, &node);
      break;
    case Act::leave:
      worker.leave(now + 20 * millisecond);
      worker.come_back(now + absence);
      break;
    case Act::remove_member: {
      const auto member = random_.below(std::min<std::size_t>(job.workers.size(), 64));
      node.operate([&](Control& control, Time at, Effects& effects) {
        control.remove_member(job.job, static_cast<wire::MemberId>(member), at, effects, ignore);
      });
      break;
    }
    case Act::set_threshold: {
      const auto threshold = static_cast<std::uint16_t>(
          random_.below(std::min<std::size_t>(job.workers.size(), 64) + 1));
      if (engine != nullptr && random_.chance(0.5)) {
        engine->request_threshold(threshold, now);
        worker.host().wake_at(now);
      } else {
        node.operate([&](Control& control, Time at, Effects& effects) {
          control.set_threshold(job.job, threshold, at, effects, ignore);
        });
      }
      break;
    }
    case Act::force:
      node.operate([&](Control& control, Time at, Effects& effects) {
        control.list_slots(job.job, 64, at, effects,
                           [this, index, &node](const control::OperatorReply& reply) {
                             if (reply.open.empty()) return;
                             open_ = reply.open[random_.below(reply.open.size())];
                             world_.queue.schedule(world_.now(), *this, force_kind, index, &node);
                           });
      });
      break;
    case Act::force_by_member: {
      if (engine == nullptr) break;
      // One draw a statement: the order of arguments is the compiler's choice.
      const auto segment = static_cast<std::uint32_t>(random_.below(job.slots));
      const auto round = static_cast<std::uint32_t>(random_.below(4));
      engine->request_force(segment, engine->job().base_round + round, now);
      worker.host().wake_at(now);
      break;
    }
    case Act::count_:
      break;
  }
}

}  // namespace iswitch::sim
