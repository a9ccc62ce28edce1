// The operator's acts. Errors are one line that names the job, what is wrong and what to do.
#include <algorithm>
#include <utility>

#include "switchd/control/state.h"

namespace iswitch::control {
namespace {

std::string job_text(JobId id) { return "job " + std::to_string(id); }

std::string slot_text(const wire::SlotBody& slot) {
  return "segment " + std::to_string(slot.segment) + ", round " + std::to_string(slot.round);
}

std::string members_text(const Job& job) {
  if (job.members.empty()) return "it has none";
  std::string text;
  job.members.for_each([&](const Member& member) {
    text += (text.empty() ? "its members are " : ", ") + std::to_string(member.spec.id);
  });
  return text;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

OperatorReply error_reply(std::string error) { return {std::move(error), {}}; }

OperatorReply refused_by_datapath(JobId id, const char* what) {
  return error_reply(job_text(id) + ": the datapath did not " + what +
                     "; look at its counters and its log, or remove the job and add it again");
}

/// How a parent took what was passed on to it.
OperatorReply passed_up(const Job& job, wire::Status status, const Turn& turn) {
  if (status == wire::Status::ok) return {};
  const std::string id = job_text(job.config.id) + ": ";
  if (!job.uplink) return error_reply(id + wire::status_name(status));
  const ParentView parent = job.uplink->view();
  if (status == wire::Status::parent_not_ready)
    return error_reply(id + "not done: " + parent_text(parent, turn.now));
  return error_reply(id + "not done: the parent " + wire::to_string(parent.config.ip) +
                     " answers: " + wire::status_name(status));
}

}  // namespace

void Control::State::add_job(const JobConfig& job_config, OperatorDone done, const Turn& turn) {
  const JobId id = job_config.id;
  if (closing) return finish(std::move(done), error_reply("the switch is going down"));
  if (find_job(id) != nullptr)
    return finish(
        std::move(done),
        error_reply(job_text(id) + ": exists already; remove it first or take another id"));
  const auto errors = job_config_errors(job_config);
  if (!errors.empty())
    return finish(std::move(done), error_reply(job_text(id) + ": " + joined(errors)));
  Job& job = make_job(job_config, turn);
  job.when_settled.emplace_back(
      [this, id, act = begin_act(job, std::move(done)), instance = job.instance](const Turn&) {
        Job* const made = find_instance(id, instance);
        if (made == nullptr) return;
        const std::string fault = made->fault;
        if (made->phase == SlotPhase::failed) jobs.erase(id);
        end_act(act, error_reply(fault));
      });
}

void Control::State::remove_job(JobId id, OperatorDone done, const Turn& turn) {
  Job* const job = job_for_operator(id, done);
  if (job == nullptr) return;
  say_leave(*job, turn);
  if (job->uplink) job->uplink->farewell(turn);
  fail_acts(job->instance, job_text(id) + ": removed before this was done");
  jobs.erase(id);
  // The act outlives the job, so it is nobody's.
  const std::uint64_t act = ++last_act;
  acts.emplace(act, Act{0, std::move(done)});
  orders.send(id, datapath::Remove{}, turn, [this, id, act](const Outcome& outcome, const Turn&) {
    end_act(act, outcome.ok ? OperatorReply{} : refused_by_datapath(id, "remove it"));
  });
}

void Control::State::operator_threshold(JobId id, std::uint16_t threshold, OperatorDone done,
                                        const Turn& turn) {
  Job* const job = job_for_operator(id, done);
  if (job == nullptr) return;
  if (threshold > wire::max_members)
    return finish(std::move(done),
                  error_reply(job_text(id) + ": threshold " + std::to_string(threshold) +
                              " must be 0 (follow the number of members) to " +
                              std::to_string(wire::max_members)));
  set_threshold(*job, threshold, turn,
                [this, id, act = begin_act(*job, std::move(done))](Job&, const Outcome& outcome,
                                                                   const Turn&) {
                  end_act(act, outcome.ok ? OperatorReply{} : refused_by_datapath(id, "take it"));
                });
}

void Control::State::operator_force(JobId id, const wire::SlotBody& slot, OperatorDone done,
                                    const Turn& turn) {
  Job* const job = job_for_operator(id, done);
  if (job == nullptr) return;
  if (slot.segment >= job->spec.slots)
    return finish(
        std::move(done),
        error_reply(job_text(id) + ": segment " + std::to_string(slot.segment) +
                    " must be below its number of slots, " + std::to_string(job->spec.slots)));
  order(*job, datapath::Force{slot.segment, slot.round}, turn,
        [this, slot, act = begin_act(*job, std::move(done))](Job& same, const Outcome& outcome,
                                                             const Turn& later) {
          forced_here(same, slot, outcome, later,
                      [this, slot, act](Job& one, wire::Status status, const Turn& then) {
                        if (status == wire::Status::bad_value)
                          return end_act(act, error_reply(job_text(one.config.id) +
                                                          ": no sum is open at " + slot_text(slot) +
                                                          "; list the slots to see which are"));
                        end_act(act, passed_up(one, status, then));
                      });
        });
}

void Control::State::operator_reset(JobId id, OperatorDone done, const Turn& turn) {
  Job* const job = job_for_operator(id, done);
  if (job == nullptr) return;
  const std::uint64_t act = begin_act(*job, std::move(done));
  request_clear(*job, turn);
  when_settled(
      *job,
      [this, id, act, instance = job->instance](const Turn& later) {
        const Job* const same = find_instance(id, instance);
        if (same == nullptr) return;
        end_act(act, same->reset_due ? passed_up(*same, wire::Status::parent_not_ready, later)
                                     : OperatorReply{});
      },
      turn);
}

void Control::State::operator_halt(JobId id, bool halted, OperatorDone done, const Turn& turn) {
  Job* const job = job_for_operator(id, done);
  if (job == nullptr) return;
  const std::uint64_t act = begin_act(*job, std::move(done));
  pass_halt(*job, halted, turn, [this, act](Job& same, wire::Status status, const Turn& later) {
    end_act(act, passed_up(same, status, later));
  });
}

void Control::State::remove_member(JobId id, MemberId member, OperatorDone done, const Turn& turn) {
  Job* const job = job_for_operator(id, done);
  if (job == nullptr) return;
  if (job->members.find(member) == nullptr)
    return finish(std::move(done), error_reply(job_text(id) + ": no member " +
                                               std::to_string(member) + "; " + members_text(*job)));
  ++counters.evictions;
  const std::uint64_t act = begin_act(*job, std::move(done));
  drop_member(*job, member, turn, [this, act](Job&, const Turn&) { end_act(act, {}); });
}

void Control::State::list_slots(JobId id, std::uint32_t limit, OperatorDone done,
                                const Turn& turn) {
  Job* const job = job_for_operator(id, done);
  if (job == nullptr) return;
  order(*job, datapath::ListSlots{limit}, turn,
        [this, id, limit, act = begin_act(*job, std::move(done))](Job&, const Outcome& outcome,
                                                                  const Turn&) {
          if (!outcome.ok) return end_act(act, refused_by_datapath(id, "list its slots"));
          OperatorReply listed{{}, outcome.open};
          std::sort(listed.open.begin(), listed.open.end(),
                    [](const auto& a, const auto& b) { return a.segment < b.segment; });
          if (listed.open.size() > limit) listed.open.resize(limit);
          end_act(act, std::move(listed));
        });
}

void Control::State::run_finished() {
  const auto now = std::exchange(finished, {});
  for (const auto& [done, outcome] : now)
    if (done) done(outcome);
}

std::uint64_t Control::State::begin_act(const Job& job, OperatorDone done) {
  acts.emplace(++last_act, Act{job.instance, std::move(done)});
  return last_act;
}

void Control::State::end_act(std::uint64_t act, OperatorReply outcome) {
  const auto found = acts.find(act);
  if (found == acts.end()) return;  // failed before
  finish(std::move(found->second.done), std::move(outcome));
  acts.erase(found);
}

void Control::State::fail_acts(std::optional<std::uint64_t> instance, const std::string& error) {
  for (auto act = acts.begin(); act != acts.end();) {
    if (instance && act->second.instance != *instance) {
      ++act;
      continue;
    }
    finish(std::move(act->second.done), error_reply(error));
    act = acts.erase(act);
  }
}

void Control::State::finish(OperatorDone done, OperatorReply outcome) {
  finished.emplace_back(std::move(done), std::move(outcome));
}

Job* Control::State::job_for_operator(JobId id, OperatorDone& done) {
  Job* const job = closing ? nullptr : find_job(id);
  if (job != nullptr) return job;
  std::string error = closing
                          ? "the switch is going down"
                          : job_text(id) + ": no such job; list the jobs to see which there are";
  finish(std::move(done), error_reply(std::move(error)));
  return nullptr;
}

}  // namespace iswitch::control
