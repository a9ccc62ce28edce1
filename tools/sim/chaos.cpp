#include "tools/sim/chaos.h"

#include <utility>

namespace iswitch::sim {

using control::Control;
using control::Effects;

const char* act_name(Act act) {
  static constexpr std::array<const char*, act_count> names{
      "crash worker",  "pause worker",   "restart switch", "stop switch",
      "member reset",  "operator reset", "halt",           "leave",
      "remove member", "set threshold",  "force",          "force by member"};
  return names[static_cast<std::size_t>(act)];
}

Chaos::Chaos(World& world, const ChaosSpec& spec, SwitchNode& node, std::vector<ChaosJob> jobs,
             Random random)
    : world_(world), spec_(spec), node_(node), jobs_(std::move(jobs)), random_(random) {}

void Chaos::start(Time until) {
  until_ = until;
  if (spec_.mean_interval > 0) schedule_next();
}

void Chaos::schedule_next() {
  const Time at = world_.now() + random_.exponential(spec_.mean_interval);
  if (at < until_) world_.queue.schedule(at, *this, act_kind);
}

void Chaos::heal() {
  node_.start();
  for (auto& job : jobs_) {
    node_.operate([&](Control& control, Time now, Effects& effects) {
      control.halt(job.job, false, now, effects, [](const control::OperatorReply&) {});
      if (!job.full) {
        control.set_threshold(job.job, 0, now, effects, [](const control::OperatorReply&) {});
      }
    });
    for (Worker* worker : job.workers) worker->come_back(world_.now());
  }
}

void Chaos::handle(const Event& event) {
  switch (event.kind) {
    case act_kind:
      act();
      schedule_next();
      return;
    case start_switch_kind:
      node_.start();
      return;
    case resume_kind:
      node_.operate([&](Control& control, Time now, Effects& effects) {
        control.halt(jobs_[event.value].job, false, now, effects,
                     [](const control::OperatorReply&) {});
      });
      return;
    case force_kind:
      node_.operate([&](Control& control, Time now, Effects& effects) {
        control.force(jobs_[event.value].job, open_.segment, open_.round, now, effects,
                      [](const control::OperatorReply&) {});
      });
      return;
    default:
      return;
  }
}

void Chaos::act() {
  double total = 0;
  for (const double weight : spec_.weights) total += weight;
  double x = random_.unit() * total;
  std::size_t chosen = 0;
  while (chosen + 1 < act_count && x >= spec_.weights[chosen]) x -= spec_.weights[chosen++];
  auto& job = jobs_[random_.below(jobs_.size())];
  const Act act = static_cast<Act>(chosen);
  if (job.full && act >= Act::leave) return;
  ++acts_;
  world_.trace.add(world_.now(), What::fault, node_.number(), static_cast<std::uint32_t>(act),
                   job.job);
  perform(act, job);
}

void Chaos::perform(Act act, ChaosJob& job) {
  const Time now = world_.now();
  Worker& worker = *job.workers[random_.below(job.workers.size())];
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
    case Act::restart_switch:
    case Act::stop_switch:
      if (act == Act::stop_switch) {
        node_.stop();
      } else {
        node_.crash();
      }
      world_.queue.schedule(now + absence, *this, start_switch_kind);
      break;
    case Act::member_reset:
      if (engine == nullptr) break;
      engine->request_reset(now);
      worker.host().wake_at(now);
      break;
    case Act::operator_reset:
      node_.operate([&](Control& control, Time at, Effects& effects) {
        control.reset(job.job, at, effects, ignore);
      });
      break;
    case Act::halt:
      if (engine != nullptr && random_.chance(0.5)) {
        engine->request_halt(true, now);
        worker.host().wake_at(now);
      } else {
        node_.operate([&](Control& control, Time at, Effects& effects) {
          control.halt(job.job, true, at, effects, ignore);
        });
      }
      world_.queue.schedule(now + absence / 4, *this, resume_kind, index);
      break;
    case Act::leave:
      worker.leave(now + 20 * millisecond);
      worker.come_back(now + absence);
      break;
    case Act::remove_member:
      node_.operate([&](Control& control, Time at, Effects& effects) {
        control.remove_member(job.job,
                              static_cast<wire::MemberId>(random_.below(job.workers.size())), at,
                              effects, ignore);
      });
      break;
    case Act::set_threshold: {
      const auto threshold = static_cast<std::uint16_t>(random_.below(job.workers.size() + 1));
      if (engine != nullptr && random_.chance(0.5)) {
        engine->request_threshold(threshold, now);
        worker.host().wake_at(now);
      } else {
        node_.operate([&](Control& control, Time at, Effects& effects) {
          control.set_threshold(job.job, threshold, at, effects, ignore);
        });
      }
      break;
    }
    case Act::force:
      node_.operate([&](Control& control, Time at, Effects& effects) {
        control.list_slots(job.job, 64, at, effects,
                           [this, index](const control::OperatorReply& reply) {
                             if (reply.open.empty()) return;
                             open_ = reply.open[random_.below(reply.open.size())];
                             world_.queue.schedule(world_.now(), *this, force_kind, index);
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
