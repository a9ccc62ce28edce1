#include "tools/sim/program.h"

#include <algorithm>
#include <utility>

namespace iswitch::sim {

Member::Member(World& world, HostNode& host, JobProgram& program, unsigned rank, double slowness,
               Random random)
    : world_(world), host_(host), job_(program), rank_(rank), slowness_(slowness), random_(random) {
  host_.set_program(*this);
}

void Member::start() {
  wanted_up_ = true;
  leaving_ = false;
  next_run_ = never;
  begin();
  agent::EngineOptions options = job_.options;
  options.incarnation = static_cast<std::uint32_t>(random_.next());
  options.wanted_member = wanted_;
  options.rank = rank_;
  host_.crash();
  host_.start(std::move(options));
  host_.engine()->join(world_.now(), world_.now() + job_.workload.join_patience);
}

void Member::crash() {
  wanted_up_ = false;
  begin();
  host_.crash();
}

void Member::leave(Time deadline) {
  wanted_up_ = false;
  if (!host_.up()) return;
  leaving_ = true;
  host_.engine()->leave(world_.now(), deadline);
  host_.wake_at(world_.now());
}

void Member::come_back(Time at) {
  wanted_up_ = true;
  if (start_scheduled_) return;
  start_scheduled_ = true;
  world_.queue.schedule(at, *this, start_kind);
}

void Member::handle(const Event& /*start*/) {
  start_scheduled_ = false;
  if (!wanted_up_) return;
  const bool ended = !host_.up() || host_.engine()->state() == agent::EngineState::failed ||
                     host_.engine()->state() == agent::EngineState::left;
  if (ended) start();
}

void Member::run(agent::Engine& engine, Time now) {
  next_run_ = never;
  const agent::EngineState state = engine.state();
  if (state == agent::EngineState::failed || state == agent::EngineState::left) {
    if (wanted_up_) come_back(now + job_.workload.restart_after);
    return;
  }
  if (state != agent::EngineState::running && state != agent::EngineState::halted) return;
  if (!wanted_up_ || leaving_) return;
  work(engine, now);
}

Time Member::slack(Time deadline) const {
  return host_.slack() + std::max<Time>(0, host_.paused_until() - deadline);
}

Time Member::compute_time() {
  const Time mean = static_cast<Time>(static_cast<double>(job_.workload.compute) * slowness_);
  return random_.around(mean, job_.workload.noise);
}

}  // namespace iswitch::sim
