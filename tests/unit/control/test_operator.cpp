// The operator's acts, eviction and going down.
#include <catch2/catch.hpp>

#include "tests/unit/control/harness.h"

using namespace control_test;

namespace {

/// Remembers what an act came to.
struct Outcome {
  int calls = 0;
  control::OperatorReply reply;
  control::OperatorDone done() {
    return [this](const control::OperatorReply& given) {
      ++calls;
      reply = given;
    };
  }
  bool ok() const { return calls == 1 && reply.error.empty(); }
  bool failed(const std::string& words) const {
    return calls == 1 && reply.error.find(words) != std::string::npos &&
           reply.error.find('\n') == std::string::npos;
  }
};

}  // namespace

TEST_CASE("the operator resets, halts, resumes, sets the threshold and forces",
          "[control][operator]") {
  Bench bench({job_config(1, 3)}, 2);
  auto members = bench.joined(3);
  bench.answering = false;
  Outcome reset;
  bench.control.reset(1, bench.now, bench.effects, reset.done());
  bench.settle();
  CHECK(reset.calls == 0);
  bench.answer_all();
  CHECK(reset.ok());
  CHECK(bench.view().base_round == first_base + 2);
  bench.answering = true;

  Outcome halt;
  bench.control.halt(1, true, bench.now, bench.effects, halt.done());
  bench.settle();
  CHECK(halt.ok());
  CHECK(bench.view().state == JobState::halted);
  Outcome resume;
  bench.control.halt(1, false, bench.now, bench.effects, resume.done());
  bench.settle();
  CHECK(resume.ok());
  CHECK(bench.view().state == JobState::running);

  Outcome lowered;
  bench.control.set_threshold(1, 2, bench.now, bench.effects, lowered.done());
  bench.settle();
  CHECK(lowered.ok());
  CHECK(bench.view().threshold == 2);
  Outcome too_high;
  bench.control.set_threshold(1, 65, bench.now, bench.effects, too_high.done());
  bench.settle();
  CHECK(too_high.failed("65"));

  bench.datapath.slots[{7, first_base + 2}] = datapath::SlotState::open;
  Outcome forced;
  bench.control.force(1, 7, first_base + 2, bench.now, bench.effects, forced.done());
  bench.settle();
  CHECK(forced.ok());
  Outcome nothing_open;
  bench.control.force(1, 8, first_base + 2, bench.now, bench.effects, nothing_open.done());
  bench.settle();
  CHECK(nothing_open.failed("segment 8"));
  Outcome beyond;
  bench.control.force(1, 64, 0, bench.now, bench.effects, beyond.done());
  bench.settle();
  CHECK(beyond.failed("64"));
}

TEST_CASE("the operator removes a member: the same effect as its Leave", "[control][operator]") {
  Bench bench({job_config(1, 2)}, 2);
  auto members = bench.joined(2);
  Outcome removed;
  bench.control.remove_member(1, 0, bench.now, bench.effects, removed.done());
  bench.settle();
  CHECK(removed.ok());
  CHECK(bench.datapath.shard(1).members.count(0) == 0);
  CHECK(bench.control.counters().evictions == 1);
  CHECK(bench.plain(members[0], Action::ping)->status() == Status::not_a_member);
  Outcome twice;
  bench.control.remove_member(1, 0, bench.now, bench.effects, twice.done());
  bench.settle();
  CHECK(twice.failed("no member 0; its members are 1"));
  Outcome last;
  bench.control.remove_member(1, 1, bench.now, bench.effects, last.done());
  bench.settle();
  CHECK(last.ok());
  CHECK(bench.view().state == JobState::forming);
}

TEST_CASE("every act on a job that is not there names it", "[control][operator]") {
  Bench bench;
  std::vector<Outcome> outcomes(8);
  auto& control = bench.control;
  control.reset(9, bench.now, bench.effects, outcomes[0].done());
  control.halt(9, true, bench.now, bench.effects, outcomes[1].done());
  control.set_threshold(9, 1, bench.now, bench.effects, outcomes[2].done());
  control.force(9, 0, 0, bench.now, bench.effects, outcomes[3].done());
  control.remove_member(9, 0, bench.now, bench.effects, outcomes[4].done());
  control.remove_job(9, bench.now, bench.effects, outcomes[5].done());
  control.list_slots(9, 10, bench.now, bench.effects, outcomes[6].done());
  control.reset(9, bench.now, bench.effects, {});  // nobody listens
  const std::size_t orders = bench.datapath.log.size();
  bench.settle();
  for (int i = 0; i < 7; ++i) CHECK(outcomes[static_cast<std::size_t>(i)].failed("job 9"));
  CHECK(bench.datapath.log.size() == orders);
}

TEST_CASE("list_slots gathers the shards' open sums, by segment, up to the limit",
          "[control][operator]") {
  Bench bench({job_config(1, 2)}, 2);
  for (const std::uint32_t segment : {5U, 2U, 9U, 4U}) {
    datapath::OpenSlot slot;
    slot.segment = segment;
    slot.missing = 2;
    bench.datapath.open.push_back(slot);
  }
  Outcome all;
  bench.control.list_slots(1, 100, bench.now, bench.effects, all.done());
  bench.settle();
  REQUIRE(all.ok());
  REQUIRE(all.reply.open.size() == 4);
  CHECK(all.reply.open[0].segment == 2);
  CHECK(all.reply.open[3].segment == 9);
  CHECK(all.reply.open[3].missing == 2);
  Outcome some;
  bench.control.list_slots(1, 2, bench.now, bench.effects, some.done());
  bench.settle();
  CHECK(some.reply.open.size() == 2);
}

TEST_CASE("jobs are added and removed while others run", "[control][operator]") {
  Bench bench({job_config(1, 1)}, 2);
  auto members = bench.joined(1);
  Outcome added;
  bench.control.add_job(job_config(2, 1), bench.now, bench.effects, added.done());
  bench.settle();
  CHECK(added.ok());
  CHECK(bench.datapath.shard(1, 2).installed);
  Client b = client(0, 2);
  CHECK(bench.join(b)->state() == JobState::running);

  Outcome again;
  bench.control.add_job(job_config(2, 1), bench.now, bench.effects, again.done());
  CHECK(again.failed("job 2: exists already"));
  auto bad = job_config(3, 65);
  bad.segment_bytes = 33;
  Outcome wrong;
  bench.control.add_job(bad, bench.now, bench.effects, wrong.done());
  CHECK(wrong.failed("members is 65"));
  CHECK(wrong.failed("segment_bytes is 33"));

  const std::size_t before = bench.sent.size();
  Outcome removed;
  bench.control.remove_job(2, bench.now, bench.effects, removed.done());
  bench.settle();
  CHECK(removed.ok());
  REQUIRE(bench.requests_to(b, before).size() == 1);
  CHECK(bench.requests_to(b, before)[0].action == Action::leave);
  CHECK_FALSE(bench.datapath.shard(1, 2).installed);
  CHECK(bench.control.jobs().size() == 1);
  CHECK(bench.plain(b, Action::ping)->status() == Status::no_such_job);
  CHECK(bench.plain(members[0], Action::ping)->status() == Status::ok);
  CHECK(bench.requests_to(members[0], before).empty());
  // Its id is free again, with nothing left of the old one.
  Outcome once_more;
  bench.control.add_job(job_config(2, 1), bench.now, bench.effects, once_more.done());
  bench.settle();
  CHECK(once_more.ok());
  b.nonce = 0;
  CHECK(bench.join(b)->status() == Status::ok);
}

TEST_CASE("a job that finds no memory is not added", "[control][operator]") {
  Bench bench({job_config(1, 1)}, 2);
  bench.datapath.memory = false;
  Outcome added;
  bench.control.add_job(job_config(2, 1), bench.now, bench.effects, added.done());
  bench.settle();
  CHECK(added.failed("job 2: the datapath has no memory"));
  CHECK(bench.control.jobs().size() == 1);
  CHECK(orders_of<datapath::Remove>(bench.datapath).size() == 1);
}

TEST_CASE("acts under way on a job that is removed fail, each once", "[control][operator]") {
  Bench bench({job_config(1, 1)}, 2);
  auto members = bench.joined(1);
  bench.answering = false;
  std::vector<Outcome> outcomes(5);
  bench.control.reset(1, bench.now, bench.effects, outcomes[0].done());
  bench.control.halt(1, true, bench.now, bench.effects, outcomes[1].done());
  bench.control.set_threshold(1, 1, bench.now, bench.effects, outcomes[2].done());
  bench.control.list_slots(1, 1, bench.now, bench.effects, outcomes[3].done());
  bench.control.remove_job(1, bench.now, bench.effects, outcomes[4].done());
  bench.settle();
  CHECK(outcomes[0].failed("removed"));
  CHECK(outcomes[2].failed("removed"));
  CHECK(outcomes[3].failed("removed"));
  CHECK(outcomes[1].calls == 1);  // done at once: the job was stopped already
  CHECK(outcomes[4].calls == 0);
  bench.answer_all();
  CHECK(outcomes[4].ok());
  for (const auto& outcome : outcomes) CHECK(outcome.calls == 1);
}

TEST_CASE("a callback may call Control", "[control][operator]") {
  Bench bench;
  Outcome second_act;
  bench.control.add_job(job_config(2, 1), bench.now, bench.effects,
                        [&](const control::OperatorReply&) {
                          bench.control.remove_job(2, bench.now, bench.effects, second_act.done());
                        });
  bench.settle();
  CHECK(second_act.ok());
  CHECK(bench.control.jobs().size() == 1);
}

TEST_CASE("silent members are evicted where the config says so", "[control][evict]") {
  auto evicting = job_config(1, 2);
  evicting.evict_silent = true;
  Bench bench({evicting, job_config(2, 1)});
  auto members = bench.joined(2);
  Client other = client(0, 2);
  bench.join(other);
  bench.now += second;
  bench.plain(members[0], Action::ping);
  CHECK(bench.control.next_deadline() == start_time + 5 * second + 1);
  bench.at(start_time + 5 * second);
  CHECK(bench.view().members.size() == 2);
  bench.at(start_time + 5 * second + 1);
  REQUIRE(bench.view().members.size() == 1);
  CHECK(bench.view().members[0].spec.id == 0);
  CHECK(bench.datapath.shard(0).members.count(1) == 0);
  CHECK(bench.control.counters().evictions == 1);
  // The datapath's word counts as well as a Ping.
  bench.control.heard(1, 0, start_time + 20 * second);
  bench.at(start_time + 25 * second);
  CHECK(bench.view().members.size() == 1);
  bench.at(start_time + 25 * second + 1);
  CHECK(bench.view().members.empty());
  CHECK(bench.view().state == JobState::forming);
  CHECK(bench.view(2).members.size() == 1);  // never without evict_silent
}

TEST_CASE("going down: a Leave to every member of every job, then nothing", "[control][leave]") {
  Bench bench({job_config(1, 2), job_config(2, 1)});
  auto members = bench.joined(2);
  Client other = client(0, 2);
  bench.join(other);
  bench.answering = false;
  Outcome pending;
  bench.control.reset(1, bench.now, bench.effects, pending.done());
  bench.settle();
  const std::size_t before = bench.sent.size();
  bench.control.leave_all(bench.now, bench.effects);
  bench.settle();
  CHECK(pending.failed("going down"));
  REQUIRE(bench.sent.size() == before + 3);
  for (std::size_t i = before; i < bench.sent.size(); ++i) {
    CHECK_FALSE(bench.sent[i].is_reply);
    CHECK(bench.sent[i].action == Action::leave);
  }
  CHECK(bench.requests_to(other, before).size() == 1);
  bench.answer_all();
  bench.plain(members[0], Action::ping);
  bench.notice(datapath::Notice::Kind::gone, members[0]);
  bench.at(bench.now + 10 * second);
  Outcome late;
  bench.control.add_job(job_config(5, 1), bench.now, bench.effects, late.done());
  CHECK(late.failed("going down"));
  bench.control.leave_all(bench.now, bench.effects);
  bench.settle();
  CHECK(bench.sent.size() == before + 3);
  CHECK(bench.control.next_deadline() == never);
}

TEST_CASE("what is counted", "[control][operator]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.plain(members[0], Action::ping);
  bench.plain(members[0], Action::halt);
  bench.member_reply(members[0], bench.requests_to(members[0]).front());
  const auto& counters = bench.control.counters();
  CHECK(counters.requests == 4);
  CHECK(counters.replies_sent == 4);
  CHECK(counters.requests_sent == 2);
  CHECK(counters.replies_received == 1);
  CHECK(counters.joins == 2);
  CHECK(counters.replacements == 0);
  CHECK(counters.ignored == 0);
}

TEST_CASE("views say everything but the key", "[control][operator]") {
  auto config = job_config(1, 2);
  config.key.assign(16, 9);
  config.threshold = 1;
  Bench bench({config});
  auto members = bench.joined(2, 1, config.key);
  const auto view = bench.view();
  CHECK(view.config.key.empty());
  CHECK(view.threshold == 1);
  CHECK(view.threshold_wanted == 1);
  REQUIRE(view.members.size() == 2);
  CHECK(view.members[1].spec.endpoint == members[1].endpoint);
  CHECK(view.members[1].spec.ingress == members[1].ingress);
  CHECK(view.members[1].incarnation == 101);
  CHECK(view.members[1].joined_at == start_time);
  CHECK(view.fault.empty());
}

TEST_CASE("answers nobody waits for are ignored", "[control][operator]") {
  Bench bench({job_config(1, 1)}, 2, false);
  datapath::Answer answer;
  answer.number = 99;
  bench.control.on_answer(answer, bench.now, bench.effects);
  answer.number = 1;
  answer.shard = 2;
  bench.control.on_answer(answer, bench.now, bench.effects);
  answer.shard = 0;
  bench.control.on_answer(answer, bench.now, bench.effects);
  bench.control.on_answer(answer, bench.now, bench.effects);  // twice from one shard
  CHECK(bench.control.counters().ignored == 3);
  CHECK(bench.view().fault.empty());
}
