// A switch that restarts under an asynchronous job: what the member hands back, when it pushes
// again, and that numbers go on for its user.
#include <algorithm>
#include <map>
#include <set>

#include "tests/unit/engine/restart_hand.h"

using namespace iswitch;
using namespace iswitch::agent;
using Fresh = wire::Resumed::Fresh;

namespace {

constexpr std::uint64_t elements = 16;  // two segments of 8 floats
constexpr wire::MemberMask mine = 1U << 1;
constexpr wire::MemberMask others = 1U << 0;
constexpr std::uint8_t settled = wire::flag::settled;
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

struct AsyncRestart : RestartHand {
  explicit AsyncRestart(bool forms = true)
      : RestartHand(async(resuming(), elements), async(default_job(), 4)) {
    if (forms) join_forming();
  }
  void update(std::uint32_t segment, std::uint32_t number, float value,
              wire::MemberMask members = others, std::uint8_t flags = 0) {
    receive(result_bytes(segment, number, std::vector<float>(8, value), 1, flags, members));
  }
  /// "There has been no update on this slot."
  void no_update(std::uint32_t segment, std::uint32_t base_round) {
    receive(result_bytes(segment, base_round, {}, 0, settled, 0));
  }
  using Taken = std::vector<std::pair<std::uint32_t, float>>;
  /// Number and value of the updates of a segment that the user gets.
  std::map<std::uint32_t, Taken> taken() {
    std::map<std::uint32_t, Taken> all;
    while (auto update = engine.take_update())
      all[update->segment].emplace_back(update->number, update->values[0]);
    return all;
  }
  OperationId push(const std::vector<float>& gradient) {
    return engine.push(gradient, now + 60 * second, now);
  }
  void restart(std::uint32_t base_round) { go_on(named_rejoin(lose_place()), base_round, 0, 0); }
  /// Answers Helps with nothing; gives what was asked for meanwhile.
  std::set<std::pair<std::uint32_t, std::uint32_t>> asked(Time time) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> all;
    for (const auto& help : requests(run_for(time), wire::Action::help)) {
      const auto slot = wire::read_slot(help.body());
      all.emplace(slot.segment, slot.round);
    }
    return all;
  }
};

const std::vector<float> gradient = std::vector<float>(elements, 3);

}  // namespace

TEST_CASE("async: the newest update of each slot goes back, then pushes under shifted numbers",
          "[engine][restart][async]") {
  AsyncRestart hand;
  const auto first = hand.push(gradient);
  hand.sent();
  hand.update(0, 101, 1, mine);
  hand.update(0, 102, 2);
  hand.update(1, 101, 5, mine);
  CHECK(hand.completion().id == first);
  const auto second_push = hand.push(gradient);
  REQUIRE(contributions(hand.sent()).size() == 2);
  const auto lost = hand.lose_place();
  const auto body = hand.body_of(hand.next_rejoin(lost));
  CHECK(body.join.mode == wire::Mode::async);
  CHECK(body.origin == 100);
  CHECK(body.newest == 102);
  CHECK(body.slots == 1024);
  CHECK(body.position == 0);
  CHECK(body.end == 0);
  hand.update(0, 103, 9, mine);  // too late to count
  const auto rejoin = hand.named_rejoin(lost);
  const std::uint32_t incarnation = hand.body_of(rejoin).join.incarnation;
  hand.go_on(rejoin, 500, 0, 0);
  auto sent = hand.sent();
  CHECK(contributions(sent).empty());
  auto back = handed_back(sent);
  REQUIRE(back.size() == 2);
  CHECK(back[0].header.segment == 0);
  CHECK(back[0].header.round == 502);
  CHECK(back[0].header.set == others);
  CHECK(back[0].header.member == 1);
  CHECK(back[0].floats == std::vector<float>(8, 2));
  CHECK(back[1].header.segment == 1);
  CHECK(back[1].header.round == 501);
  CHECK(back[1].header.set == mine);

  // Not settled by somebody else's: repeated.
  hand.update(0, 502, 2);
  hand.update(1, 502, 6);
  CHECK(handed_back(hand.run_for(3 * second)).size() >= 2);
  CHECK(hand.idle());
  hand.update(0, 502, 2, others, settled);
  hand.update(1, 502, 6, others, settled);
  sent = hand.sent();
  CHECK(handed_back(sent).empty());
  const auto again = contributions(sent);
  REQUIRE(again.size() == 2);
  for (const auto& push : again) {
    CHECK(push.header.round == 502);
    CHECK(push.header.operation_tag() == incarnation);
    CHECK(push.floats == std::vector<float>(8, 3));
  }
  hand.update(0, 503, 7, mine);
  hand.update(1, 503, 8, mine);
  const Completion done = hand.completion();
  CHECK(done.id == second_push);
  CHECK_FALSE(done.error);
  // For its user nothing has happened.
  CHECK_FALSE(hand.engine.take_event());
  using Taken = AsyncRestart::Taken;
  CHECK(hand.taken() == std::map<std::uint32_t, Taken>{{0, {{101, 1}, {102, 2}, {103, 7}}},
                                                       {1, {{101, 5}, {102, 6}, {103, 8}}}});
  CHECK(hand.engine.numbers().base_round == 100);
  CHECK(hand.engine.numbers().last == std::vector<std::uint32_t>{103, 103});
  CHECK(hand.engine.statistics().resumes == 1);
}

TEST_CASE("async: a push that an update lost on the way acknowledges is not summed twice",
          "[engine][restart][async]") {
  const bool settles = GENERATE(true, false);
  AsyncRestart hand;
  const auto id = hand.push(gradient);
  hand.sent();
  hand.update(1, 101, 5, mine);
  hand.restart(500);
  REQUIRE(handed_back(hand.sent()).size() == 2);
  hand.update(1, 501, 5, mine, settled);
  if (settles) {  // the update with the push in it is the newest
    hand.update(0, 501, 4, mine, settled);
  } else {  // there is one more: it is asked for, and until then nothing is pushed
    hand.update(0, 502, 6, others, settled);
    CHECK(hand.asked(second).count({0, 501}) == 1);
    CHECK(hand.idle());
    CHECK(contributions(hand.run_for(second)).empty());
    hand.update(0, 501, 4, mine);
  }
  CHECK(contributions(hand.run_for(second)).empty());
  const Completion done = hand.completion();
  CHECK(done.id == id);
  CHECK_FALSE(done.error);
  // The next push is the second one of this member.
  hand.push(gradient);
  const auto next = contributions(hand.sent());
  REQUIRE(next.size() == 2);
  CHECK(next[0].header.round == 502);
}

TEST_CASE("async: an update that nobody has makes this member take weights",
          "[engine][restart][async]") {
  AsyncRestart hand;
  hand.push(gradient);
  hand.sent();
  hand.restart(500);
  hand.sent();
  hand.update(0, 502, 6, others, settled);
  hand.no_update(1, 500);
  hand.run_for(2900 * millisecond);
  CHECK_FALSE(hand.engine.needs_weights());
  const auto sent = hand.run_for(200 * millisecond);
  CHECK(hand.engine.needs_weights());
  const auto event = hand.engine.take_event();
  REQUIRE(event);
  CHECK(event->kind == EventKind::gone);
  CHECK(event->base_round == 100);
  CHECK(hand.completion().error.code == ErrorCode::gone);
  CHECK(requests(sent, wire::Action::join).size() >= 1);
}

TEST_CASE("async: no update anywhere, and the first one after the restart",
          "[engine][restart][async]") {
  AsyncRestart hand;
  hand.push(gradient);
  REQUIRE(contributions(hand.sent()).size() == 2);
  const auto lost = hand.lose_place();
  CHECK(hand.body_of(hand.next_rejoin(lost)).newest == 101);  // the push's number
  hand.go_on(hand.named_rejoin(lost), 500, 0, 0);
  const auto back = handed_back(hand.sent());
  REQUIRE(back.size() == 2);
  for (const auto& result : back) {
    CHECK(result.header.round == 500);
    CHECK(result.header.set == 0);
    CHECK(result.header.member == 0);
    CHECK(result.floats.empty());
  }
  hand.no_update(0, 500);
  CHECK(contributions(hand.sent()).empty());
  hand.no_update(1, 500);
  const auto again = contributions(hand.sent());
  REQUIRE(again.size() == 2);
  CHECK(again[0].header.round == 501);
  hand.update(0, 501, 1, mine);
  hand.update(1, 501, 1, mine);
  CHECK_FALSE(hand.completion().error);
  CHECK(hand.taken()[0] == AsyncRestart::Taken{{101, 1}});
}

TEST_CASE("async: who is in an update is not known: the push is given up, once is not twice",
          "[engine][restart][async]") {
  AsyncRestart hand;
  const auto id = hand.push(gradient);
  hand.sent();
  hand.restart(500);
  hand.sent();
  hand.update(0, 501, 4, 0, settled | wire::flag::retransmit);
  hand.no_update(1, 500);
  const auto again = contributions(hand.sent());
  REQUIRE(again.size() == 1);
  CHECK(again[0].header.segment == 1);
  hand.update(1, 501, 4, mine);
  const Completion done = hand.completion();
  CHECK(done.id == id);
  CHECK(done.error.code == ErrorCode::in_doubt);
  CHECK(has(done.error.text, "segment 0, round 501"));
  // What it hands back next time says so too.
  hand.restart(900);
  const auto back = handed_back(hand.sent());
  REQUIRE(back.size() == 2);
  CHECK(back[0].header.flags == wire::flag::retransmit);
}

TEST_CASE("async: who is in an update is not known, but the sum waited for all",
          "[engine][restart][async]") {
  AsyncRestart hand(false);
  const bool waited = GENERATE(true, false);
  if (!waited) hand.job.threshold = 2;
  hand.join_forming();
  hand.push(gradient);
  hand.sent();
  hand.restart(500);
  hand.sent();
  hand.update(0, 501, 4, mine | others, settled | wire::flag::retransmit);
  hand.no_update(1, 500);
  REQUIRE(contributions(hand.sent()).size() == 1);
  hand.update(1, 501, 4, mine);
  CHECK(hand.completion().error.code == (waited ? ErrorCode::none : ErrorCode::in_doubt));
}

TEST_CASE("async: updates that others ask for are handed back, once each",
          "[engine][restart][async]") {
  AsyncRestart hand;
  hand.push(gradient);
  hand.sent();
  for (std::uint32_t number = 101; number <= 106; ++number)
    hand.update(0, number, static_cast<float>(number));
  hand.restart(500);
  hand.sent();
  hand.update(0, 506, 106, others, settled);
  hand.no_update(1, 500);
  hand.sent();
  hand.request_help(0, 503);  // the last four are kept
  hand.request_help(0, 502);  // not this one
  auto sent = hand.sent();
  auto back = handed_back(sent);
  REQUIRE(back.size() == 1);
  CHECK(back[0].header.round == 503);
  CHECK(back[0].floats[0] == 103);
  CHECK(replies(sent).size() == 2);
  CHECK(handed_back(hand.run_for(3 * second)).empty());
  // For one that is not there the push is asked for.
  CHECK(contributions(sent).size() == 1);
}

TEST_CASE("async: nothing older is handed back of a slot before its newest has been answered",
          "[engine][restart][async]") {
  AsyncRestart hand;
  for (std::uint32_t number = 101; number <= 104; ++number)
    for (std::uint32_t segment : {0, 1}) hand.update(segment, number, static_cast<float>(number));
  hand.restart(500);
  REQUIRE(handed_back(hand.sent()).size() == 2);
  // Somebody whose newest is older asks. Slot 1 is settled.
  hand.update(1, 504, 104, others, settled);
  hand.sent();
  hand.request_help(0, 503);
  hand.request_help(1, 503);
  for (const auto& back : handed_back(hand.run_for(second)))
    CHECK(back.header.round == (back.header.segment == 0 ? 504 : 503));
  hand.update(0, 504, 104, others, settled);
  hand.sent();
  hand.request_help(0, 503);
  const auto back = handed_back(hand.sent());
  REQUIRE(back.size() == 1);
  CHECK(back[0].header.segment == 0);
  CHECK(back[0].header.round == 503);
}

TEST_CASE("async: who is told that it has fallen behind first hands back what it alone may have",
          "[engine][restart][async]") {
  AsyncRestart hand;
  hand.update(1, 101, 5);
  hand.restart(500);
  hand.sent();
  // Slot 0 is settled, and this member lacks what is not kept any more; slot 1 waits for its word.
  hand.update(0, 520, 6, others, settled);
  hand.unasked(wire::Status::gone, 0, 516);
  const auto sent = hand.run_for(second);
  CHECK_FALSE(hand.engine.needs_weights());
  CHECK(requests(sent, wire::Action::join).empty());
  CHECK_FALSE(handed_back(sent).empty());
  hand.update(1, 501, 5, others, settled);
  CHECK_FALSE(hand.engine.needs_weights());
  hand.unasked(wire::Status::gone, 0, 516);  // it has asked again
  REQUIRE(hand.engine.needs_weights());
  CHECK(hand.engine.take_event()->kind == EventKind::gone);
  CHECK(requests(hand.sent(), wire::Action::join).size() == 1);
}

TEST_CASE("async: weights with an update that was lost with the switch are given up",
          "[engine][restart][async]") {
  AsyncRestart hand;
  const auto id = hand.push(gradient);
  hand.sent();
  hand.update(0, 101, 1);
  // A peer's, who had got two updates more, and hands back nothing either.
  REQUIRE_FALSE(hand.engine.resume({100, {103, 100}}, hand.now));
  CHECK(hand.completion().id == id);
  hand.restart(500);
  const auto back = handed_back(hand.sent());
  REQUIRE(back.size() == 2);
  CHECK(back[0].header.round == 501);
  SECTION("lost") {
    hand.update(0, 501, 1, others, settled);
    REQUIRE(hand.engine.needs_weights());
    const auto event = hand.engine.take_event();
    CHECK(event->kind == EventKind::gone);
    CHECK(has(event->text, "update 103 of segment 0 was lost with a switch"));
    CHECK(requests(hand.sent(), wire::Action::join).size() == 1);
  }
  SECTION("lost, and the weights came after the restart") {
    REQUIRE_FALSE(hand.engine.resume({100, {103, 102}}, hand.now));
    hand.update(0, 503, 3, others, settled);
    CHECK_FALSE(hand.engine.needs_weights());
    hand.no_update(1, 500);
    REQUIRE(hand.engine.needs_weights());
    CHECK(has(hand.engine.take_event()->text, "update 102 of segment 1 was lost"));
  }
  SECTION("somebody has it") {
    hand.update(0, 503, 3, others, settled);
    hand.no_update(1, 500);
    CHECK_FALSE(hand.engine.needs_weights());
    CHECK(hand.taken().empty());
  }
  SECTION("a late word, after later updates") {
    hand.update(0, 503, 3, others, settled);
    hand.update(0, 504, 4);
    hand.update(0, 503, 3, others, settled);
    CHECK_FALSE(hand.engine.needs_weights());
  }
}

TEST_CASE("async: a second restart before the first was settled", "[engine][restart][async]") {
  AsyncRestart hand;
  const auto id = hand.push(gradient);
  hand.sent();
  hand.update(0, 101, 1);
  hand.restart(500);
  hand.sent();
  hand.update(0, 502, 2, mine, settled);  // and 501 is here: complete, the push is in it
  hand.restart(900);
  const auto back = handed_back(hand.sent());
  REQUIRE(back.size() == 2);
  CHECK(back[0].header.round == 902);
  CHECK(back[0].header.set == mine);
  CHECK(back[1].header.round == 900);
  hand.update(0, 502, 2, mine, settled);  // late, of the life before
  hand.update(0, 902, 2, mine, settled);
  hand.no_update(1, 900);
  const auto again = contributions(hand.sent());
  REQUIRE(again.size() == 1);
  CHECK(again[0].header.segment == 1);
  CHECK(again[0].header.round == 901);
  hand.update(1, 901, 2, mine);
  CHECK(hand.completion().id == id);
  CHECK(hand.taken()[0] == AsyncRestart::Taken{{101, 1}, {102, 2}});
}

TEST_CASE("async: a job that starts afresh asks for weights", "[engine][restart][async]") {
  AsyncRestart hand;
  hand.push(gradient);
  hand.sent();
  hand.update(0, 101, 1);
  hand.answer_rejoin(hand.named_rejoin(hand.lose_place()), 500, {Fresh::stranger, 0, 0, {}});
  const auto event = hand.engine.take_event();
  REQUIRE(event);
  CHECK(event->kind == EventKind::reset);
  CHECK(event->base_round == 500);
  CHECK(has(event->text, "somebody joined"));
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  CHECK(handed_back(hand.sent()).empty());
  CHECK_FALSE(hand.engine.resume({500, {500, 500}}, hand.now));
  hand.push(gradient);
  CHECK(contributions(hand.sent()).at(0).header.round == 501);
}

TEST_CASE("async: a newcomer after a restart learns where the numbers begin",
          "[engine][restart][async]") {
  AsyncRestart hand(false);
  hand.job.base_round = 500;
  hand.engine.join(0, 10 * second);
  wire::ReplyBody body = hand.job;
  body.missing = wire::encode_resumed({Fresh::went_on, 0, 0, 100U});
  hand.reply(hand.sent().at(0), body);
  const auto helps = requests(hand.sent(), wire::Action::help);
  REQUIRE(helps.size() == 1);
  CHECK(wire::read_slot(helps[0].body()).round == 501);
  hand.update(0, 507, 7);
  const auto event = hand.engine.take_event();
  REQUIRE(event);
  CHECK(event->kind == EventKind::joined);
  CHECK(event->base_round == 100);
  // A peer's snapshot counts from the origin.
  CHECK_FALSE(hand.engine.resume({100, {106, 104}}, hand.now));
  CHECK(hand.taken()[0] == AsyncRestart::Taken{{107, 7}});
  hand.push(gradient);
  CHECK(contributions(hand.sent()).at(0).header.round == 501);

  // A restart: its bit in an update from before may be its predecessor's.
  const auto lost = hand.lose_place();
  CHECK(hand.body_of(hand.next_rejoin(lost)).origin == 100);
  CHECK(hand.body_of(hand.next_rejoin({})).newest == 507);
  hand.go_on(hand.next_rejoin({hand.named_rejoin({})}), 900, 0, 0);
  hand.sent();
  hand.update(0, 908, 8, mine, settled);
  hand.update(1, 905, 8, others, settled);
  const auto again = contributions(hand.sent());
  REQUIRE(again.size() == 1);
  CHECK(again[0].header.segment == 1);
  hand.update(1, 906, 8, mine);
  CHECK(hand.completion().error.code == ErrorCode::in_doubt);
}

TEST_CASE("async: a member that waits for weights says what it has, and goes on with them",
          "[engine][restart][async]") {
  AsyncRestart hand(false);
  hand.join();
  hand.update(0, 105, 5);
  REQUIRE(hand.engine.needs_weights());
  hand.restart(500);
  const auto back = handed_back(hand.sent());
  REQUIRE(back.size() == 2);
  CHECK(back[0].header.round == 505);
  CHECK(back[1].header.round == 500);
  hand.update(0, 505, 5, others, settled);
  hand.update(1, 504, 5, others, settled);
  CHECK(handed_back(hand.run_for(2 * second)).empty());
  CHECK(hand.engine.take_event()->base_round == 100);
  CHECK_FALSE(hand.engine.resume({100, {104, 104}}, hand.now));
  CHECK(hand.taken()[0] == AsyncRestart::Taken{{105, 5}});
  hand.push(gradient);
  CHECK(contributions(hand.sent()).size() == 2);
}

TEST_CASE("async: a push fails at its own deadline while the switch is away, updates go on",
          "[engine][restart][async]") {
  AsyncRestart hand;
  hand.engine.push(gradient, hand.now + second, hand.now);
  hand.sent();
  hand.update(0, 101, 1);
  const auto lost = hand.lose_place();
  CHECK(hand.taken()[0].size() == 1);  // what came before stays
  hand.run_for(1100 * millisecond);
  const Completion failed = hand.completion();
  CHECK(failed.error.code == ErrorCode::switch_gone);
  CHECK(has(failed.error.text, "was not summed within 1.0 s"));
  hand.go_on(hand.named_rejoin({}), 500, 0, 0);
  hand.sent();
  hand.update(0, 501, 1, others, settled);
  hand.no_update(1, 500);
  // What had been sent stays outstanding until an update has it (section 5).
  CHECK(contributions(hand.sent()).size() == 2);
  hand.update(0, 502, 2, mine);
  CHECK(hand.taken()[0] == AsyncRestart::Taken{{102, 2}});
}

TEST_CASE("async: the switch does not come back in time", "[engine][restart][async]") {
  AsyncRestart hand;
  hand.push(gradient);
  hand.sent();
  hand.lose_place();
  hand.run_for(9900 * millisecond);
  CHECK(hand.idle());
  const auto sent = hand.run_for(2 * second);
  const Completion failed = hand.completion();
  CHECK(failed.error.code == ErrorCode::switch_gone);
  CHECK(has(failed.error.text, "did not go on within 10 s"));
  const auto joins = requests(sent, wire::Action::join);
  REQUIRE(!joins.empty());
  hand.job.base_round = 500;
  hand.reply(joins.back(), hand.job);
  CHECK(hand.engine.take_event()->kind == EventKind::reset);
}
