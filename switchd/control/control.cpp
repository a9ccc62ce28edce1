// The public face of Control: what comes in goes to the part of State that deals with it.
#include "switchd/control/control.h"

#include <algorithm>
#include <utility>

#include "switchd/control/state.h"

namespace iswitch::control {
namespace {

constexpr std::uint64_t rounds_per_second = 65536;
constexpr std::uint64_t microseconds_per_second = 1'000'000;
constexpr std::size_t bounded_strangers = 4096;

/// Nobody can be at such an address, so nothing is ever sent there.
bool can_be_a_client(const wire::Endpoint& source, const datapath::SwitchAddress& own) {
  const unsigned first_byte = source.ip.value >> 24;
  return !source.mac.is_group() && source.udp_port != 0 && source.ip != own.rules.ip &&
         first_byte != 0 && first_byte < 224;
}

}  // namespace

Control::State::State(const SwitchConfig& switch_config, const std::vector<JobConfig>& job_configs,
                      const Turn& turn)
    : config(switch_config),
      frames(switch_config),
      orders(switch_config.shards),
      strangers(bounded_strangers) {
  if (config.parent) parent_address.emplace(*config.parent, config.address, turn.now);
  for (const JobConfig& job_config : job_configs)
    if (find_job(job_config.id) == nullptr) make_job(job_config, turn);
}

Job* Control::State::find_job(JobId id) {
  const auto found = jobs.find(id);
  return found == jobs.end() ? nullptr : found->second.get();
}

Job* Control::State::find_instance(JobId id, std::uint64_t instance) {
  Job* const job = find_job(id);
  return job != nullptr && job->instance == instance ? job : nullptr;
}

std::uint32_t Control::State::first_base_round(const JobConfig& job_config, Time now) const {
  if (job_config.base_round) return *job_config.base_round;
  // With the fraction of the second: two starts in one second must not use the same rounds.
  const std::uint64_t time = frames.unix_microseconds(now);
  return static_cast<std::uint32_t>(time / microseconds_per_second * rounds_per_second +
                                    time % microseconds_per_second * rounds_per_second /
                                        microseconds_per_second);
}

std::uint32_t Control::State::life_of(std::uint64_t instance) const {
  const std::uint64_t seed =
      config.start_unix_microseconds + (std::uint64_t{config.incarnation} << 32) + instance;
  const auto life = static_cast<std::uint32_t>((seed * 0x9E37'79B9'7F4A'7C15) >> 32);
  return life == 0 ? 1 : life;
}

Job& Control::State::make_job(const JobConfig& job_config, const Turn& turn) {
  const std::uint32_t base_round = config.parent ? 0 : first_base_round(job_config, turn.now);
  ++last_instance;
  auto made = std::make_unique<Job>(job_config, last_instance, life_of(last_instance), base_round,
                                    make_uplink(job_config, turn));
  Job& job = *made;
  jobs[job_config.id] = std::move(made);
  if (const auto errors = job_config_errors(job_config); !errors.empty()) {
    job.phase = SlotPhase::failed;
    job.fault = errors.front();
    return job;
  }
  install(job, turn);
  return job;
}

void Control::State::install(Job& job, const Turn& turn) {
  order(job, datapath::Install{job.spec}, turn,
        [this](Job& same, const Outcome& outcome, const Turn& later) {
          installed(same, outcome.ok, later);
        });
  if (job.threshold_wanted != 0) order(job, datapath::SetThreshold{job.threshold_wanted}, turn);
}

void Control::State::installed(Job& job, bool ok, const Turn& turn) {
  if (ok) {
    job.phase = SlotPhase::clear;
    return advance(job, turn);
  }
  job.phase = SlotPhase::failed;
  job.fault = "job " + std::to_string(job.config.id) + ": the datapath has no memory for " +
              std::to_string(job.spec.slots) + " slots of " +
              std::to_string(job.spec.segment_bytes) + " bytes with a history of " +
              std::to_string(job.spec.history) + "; lower one of them or give it more memory";
  job.members.clear();
  job.formed = false;
  if (job.uplink) job.uplink->close(turn);
  orders.send(job.config.id, datapath::Remove{}, turn, [](const Outcome&, const Turn&) {});
  advance(job, turn);
}

void Control::State::order(Job& job, OrderBook::What what, const Turn& turn,
                           std::function<void(Job&, const Outcome&, const Turn&)> then) {
  orders.send(job.config.id, what, turn,
              [this, id = job.config.id, instance = job.instance, then = std::move(then)](
                  const Outcome& outcome, const Turn& later) {
                if (Job* const same = find_instance(id, instance)) then(*same, outcome, later);
              });
}

void Control::State::order(Job& job, OrderBook::What what, const Turn& turn) {
  order(job, what, turn, [](Job&, const Outcome&, const Turn&) {});
}

void Control::State::on_frame(const datapath::ControlFrame& frame, const Turn& turn) {
  wire::Packet packet;
  const auto parsed =
      wire::parse_frame(config.address.rules, frame.view(), wire::Offload{}, packet);
  const bool ours = parsed.origin == wire::Origin::ours && parsed.fault == wire::Fault::none;
  const bool usable = !closing && ours && can_be_a_client(packet.source, config.address);
  const bool parents = usable && is_from_parent(packet, frame.ingress);
  if (usable && packet.message.header.type == wire::Type::request) {
    if (!parents || !on_parent_order(packet, turn)) on_request(packet, frame.ingress, turn);
  } else if (parents && packet.message.header.type == wire::Type::reply) {
    on_parent_reply(packet, turn);
  } else if (usable && packet.message.header.type == wire::Type::reply) {
    on_member_reply(packet, frame.ingress, turn);
  } else {
    ++counters.ignored;
  }
}

// ---- Control

Control::Control(const SwitchConfig& config, const std::vector<JobConfig>& jobs, Time now,
                 Effects& effects)
    : state_(std::make_unique<State>(config, jobs, Turn{now, effects})) {}
Control::~Control() = default;
Control::Control(Control&&) noexcept = default;
Control& Control::operator=(Control&&) noexcept = default;

void Control::on_frame(const datapath::ControlFrame& frame, Time now, Effects& effects) {
  state_->on_frame(frame, {now, effects});
  state_->run_finished();
}

void Control::on_notice(const datapath::Notice& notice, Time now, Effects& effects) {
  if (!state_->closing) state_->on_notice(notice, {now, effects});
  state_->run_finished();
}

void Control::on_answer(const datapath::Answer& answer, Time now, Effects& effects) {
  if (state_->closing || !state_->orders.answered(answer, {now, effects}))
    ++state_->counters.ignored;
  state_->run_finished();
}

void Control::heard(JobId id, MemberId member_id, Time when) {
  Job* const job = state_->find_job(id);
  Member* const member = job == nullptr ? nullptr : job->members.find(member_id);
  if (member != nullptr) member->last_heard = std::max(member->last_heard, when);
}

void Control::tick(Time now, Effects& effects) {
  if (!state_->closing) state_->tick({now, effects});
  state_->run_finished();
}

Time Control::next_deadline() const { return state_->next_deadline(); }

void Control::State::end_all(bool leave_parent, const Turn& turn) {
  if (closing) return;
  for (const auto& entry : jobs) {
    say_leave(*entry.second, turn);
    if (entry.second->uplink && leave_parent) entry.second->uplink->farewell(turn);
  }
  closing = true;
  fail_acts(std::nullopt, "the switch is going down");
  run_finished();
}

void Control::leave_all(Time now, Effects& effects) { state_->end_all(true, {now, effects}); }

void Control::pause_all(Time now, Effects& effects) { state_->end_all(false, {now, effects}); }

void Control::add_job(const JobConfig& config, Time now, Effects& effects, OperatorDone done) {
  state_->add_job(config, std::move(done), {now, effects});
  state_->run_finished();
}

void Control::remove_job(JobId job, Time now, Effects& effects, OperatorDone done) {
  state_->remove_job(job, std::move(done), {now, effects});
  state_->run_finished();
}

void Control::set_threshold(JobId job, std::uint16_t threshold, Time now, Effects& effects,
                            OperatorDone done) {
  state_->operator_threshold(job, threshold, std::move(done), {now, effects});
  state_->run_finished();
}

void Control::force(JobId job, std::uint32_t segment, std::uint32_t round, Time now,
                    Effects& effects, OperatorDone done) {
  state_->operator_force(job, {segment, round}, std::move(done), {now, effects});
  state_->run_finished();
}

void Control::reset(JobId job, Time now, Effects& effects, OperatorDone done) {
  state_->operator_reset(job, std::move(done), {now, effects});
  state_->run_finished();
}

void Control::halt(JobId job, bool halted, Time now, Effects& effects, OperatorDone done) {
  state_->operator_halt(job, halted, std::move(done), {now, effects});
  state_->run_finished();
}

void Control::remove_member(JobId job, MemberId member, Time now, Effects& effects,
                            OperatorDone done) {
  state_->remove_member(job, member, std::move(done), {now, effects});
  state_->run_finished();
}

void Control::list_slots(JobId job, std::uint32_t limit, Time now, Effects& effects,
                         OperatorDone done) {
  state_->list_slots(job, limit, std::move(done), {now, effects});
  state_->run_finished();
}

std::vector<JobView> Control::jobs() const {
  std::vector<JobView> views;
  for (const auto& entry : state_->jobs) views.push_back(entry.second->view());
  return views;
}

const Counters& Control::counters() const { return state_->counters; }

}  // namespace iswitch::control
