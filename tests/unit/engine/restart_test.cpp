// A switch that restarts under a synchronous job: what the member says of itself, what it hands
// back, what it sends again, and how it ends where the job cannot go on.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/unit/engine/restart_hand.h"

using namespace iswitch;
using namespace iswitch::agent;
using Fresh = wire::Resumed::Fresh;

namespace {
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
std::vector<float> eight(float value) { return std::vector<float>(8, value); }
std::set<std::uint32_t> segments(const std::vector<SentDatagram>& all) {
  std::set<std::uint32_t> some;
  for (const auto& datagram : all) some.insert(datagram.header.segment);
  return some;
}

/// Five segments of an operation are under way; 0, 1 and 3 have their results.
struct Half : RestartHand {
  std::vector<float> vector = counted(40);
  explicit Half(EngineOptions engine_options = resuming(),
                wire::ReplyBody description = default_job())
      : RestartHand(std::move(engine_options), description) {
    join();
    sum(vector, vector);
    REQUIRE(contributions(sent()).size() == 5);
    result(0, 100, eight(10));
    result(1, 100, eight(11), 4, wire::flag::partial | wire::flag::ecn_echo);
    result(3, 100, eight(13), 3);
    sent();
  }
  void finish(const std::vector<SentDatagram>& again) {
    REQUIRE(again.size() == 2);
    for (const auto& datagram : again) answer(datagram, 2);
    const Completion done = completion();
    CHECK(done.error.text == "");
    CHECK_FALSE(done.error);
    CHECK(vector[0] == 10);
    CHECK(vector[8] == 11);
    CHECK(vector[16] == 2 * 17);
    CHECK(vector[24] == 13);
    CHECK(vector[39] == 2 * 40);
  }
};
}  // namespace

TEST_CASE("a restarted switch: results go back, then what has none goes again",
          "[engine][restart]") {
  Half hand;
  const std::uint32_t before = hand.options.incarnation;
  auto sent = hand.lose_place();
  CHECK(hand.idle());
  auto rejoin = hand.next_rejoin(sent);
  const wire::RejoinBody body = hand.body_of(rejoin);
  CHECK(body.join.kind == wire::MemberKind::worker);
  CHECK(body.join.wanted_member == 1);
  CHECK(body.join.incarnation != before);
  CHECK(body.origin == 100);
  CHECK(body.newest == 100);
  CHECK(body.slots == 1024);
  CHECK(body.segment_bytes == 32);
  CHECK(body.position == 2);
  CHECK(body.end == 4);
  CHECK(body.life == 0);
  rejoin = hand.named_rejoin(sent);
  rejoin = hand.form(rejoin);
  CHECK(hand.body_of(rejoin).position == 2);
  CHECK(contributions(hand.sent()).empty());
  hand.go_on(rejoin, 500, 1, 4);

  const auto first = hand.sent();
  CHECK(contributions(first).empty());  // nothing else before it has been answered
  const auto back = handed_back(first);
  REQUIRE(back.size() == 2);
  CHECK(back[0].handed_back());
  CHECK(back[0].header.segment == 1);
  CHECK(back[0].header.round == 500);
  CHECK(back[0].header.member == 4);
  CHECK(back[0].header.set == 0xF);
  CHECK(back[0].header.flags == wire::flag::partial);
  CHECK(back[0].floats == eight(11));
  CHECK(back[1].header.segment == 3);
  CHECK(back[1].header.member == 3);
  CHECK(back[1].floats == eight(13));
  // Repeated until answered.
  const auto again = handed_back(hand.run_for(3 * second));
  CHECK(again.size() >= 2);
  hand.take_back(back[0]);
  CHECK(contributions(hand.sent()).empty());
  CHECK(segments(handed_back(hand.run_for(2 * second))) == std::set<std::uint32_t>{3});
  hand.take_back(back[1]);
  sent = hand.sent();
  CHECK(handed_back(sent).empty());
  const auto contributed = contributions(sent);
  CHECK(segments(contributed) == std::set<std::uint32_t>{2, 4});
  for (const auto& datagram : contributed) CHECK(datagram.header.round == 500);
  hand.finish(contributed);
  CHECK(hand.engine.statistics().resumes == 1);
  CHECK(hand.engine.statistics().resets == 0);
  // And on, where it was: position 5.
  hand.barrier();
  const auto next = contributions(hand.sent());
  REQUIRE(next.size() == 1);
  CHECK(next[0].header.segment == 5);
  CHECK(next[0].header.round == 500);
}

TEST_CASE("rounds and slots go on over the end of the switch's memory", "[engine][restart]") {
  // 4 slots; 11 segments: positions 8, 9 and 10 are of turn 2.
  RestartHand hand(RestartHand::resuming(), RestartHand::job_with(4));
  hand.join();
  std::vector<float> vector = counted(88);
  hand.sum(vector, vector);
  std::set<std::uint32_t> open;
  for (std::uint32_t position = 0; position < 9; ++position) {
    hand.sent();
    if (position != 7)
      hand.result(position % 4, 100 + position / 4, eight(static_cast<float>(position)));
  }
  const auto sent = hand.lose_place();
  const auto body = hand.body_of(hand.next_rejoin(sent));
  CHECK(body.position == 7);
  CHECK(body.end == 9);
  CHECK(body.newest == 102);
  // Others lack 5 and on: 5, 6 and 8 are here, and 4 is not wanted.
  hand.go_on(hand.named_rejoin(sent), 700, 5, 9);
  const auto back = handed_back(hand.sent());
  REQUIRE(back.size() == 3);
  CHECK(back[0].header.segment == 1);
  CHECK(back[0].header.round == 701);
  CHECK(back[0].floats == eight(5));
  CHECK(back[1].header.segment == 2);
  CHECK(back[1].header.round == 701);
  CHECK(back[2].header.segment == 0);
  CHECK(back[2].header.round == 702);
  CHECK(back[2].floats == eight(8));
  for (const auto& result : back) hand.take_back(result);
  auto again = contributions(hand.sent());
  // 7, which is lacking, and 9 and 10, whose slots are free.
  std::map<std::uint32_t, std::uint32_t> rounds;
  for (const auto& datagram : again) rounds[datagram.header.segment] = datagram.header.round;
  CHECK(rounds == std::map<std::uint32_t, std::uint32_t>{{3, 701}, {1, 702}, {2, 702}});
  for (const auto& datagram : again) hand.answer(datagram, 1);
  CHECK_FALSE(hand.completion().error);
}

TEST_CASE("a member that lacks what others have takes theirs, before it sends anything",
          "[engine][restart]") {
  Half hand;
  const auto sent = hand.lose_place();
  hand.go_on(hand.named_rejoin(sent), 500, 1, 5);  // somebody has 4
  const auto back = handed_back(hand.sent());
  REQUIRE(back.size() == 2);
  // Another hands back 4, and 1 before this one's arrives; 2 is nobody's.
  hand.result(4, 500, eight(14));
  hand.take_back(back[0]);
  CHECK(contributions(hand.sent()).empty());
  hand.take_back(back[1]);
  const auto again = contributions(hand.sent());
  CHECK(segments(again) == std::set<std::uint32_t>{2});
  for (const auto& datagram : again) hand.answer(datagram, 2);
  CHECK_FALSE(hand.completion().error);
  CHECK(hand.vector[32] == 14);
  CHECK(hand.vector[16] == 34);
}

TEST_CASE("a member with nothing to hand back sends its contributions at once",
          "[engine][restart]") {
  Half hand;
  const auto sent = hand.lose_place();
  hand.go_on(hand.named_rejoin(sent), 500, 2, 4);
  const auto back = hand.sent();
  CHECK(segments(handed_back(back)) == std::set<std::uint32_t>{3});
  hand.unasked(wire::Status::gone, 3, 500);  // complete there and not kept: all have it
  hand.finish(contributions(hand.sent()));
}

TEST_CASE("what comes while it has no place is not taken", "[engine][restart]") {
  Half hand;
  auto sent = hand.lose_place();
  hand.result(2, 100, eight(99));
  auto rejoin = hand.named_rejoin(sent);
  hand.result(2, 100, eight(99));
  rejoin = hand.form(rejoin);
  hand.result(2, 500, eight(99));
  hand.request_reset(600);  // of a job that forms: the answer to the Rejoin counts
  hand.unasked(wire::Status::mismatch, 2, 100);
  CHECK(hand.body_of(rejoin).position == 2);
  CHECK(hand.idle());
  hand.go_on(rejoin, 500, 2, 4);
  hand.result(2, 100, eight(99));  // of the former life
  hand.take_back(handed_back(hand.sent()).at(0));
  hand.finish(contributions(hand.sent()));
}

TEST_CASE("a second restart, at any moment of the first", "[engine][restart]") {
  const int moment = GENERATE(0, 1, 2, 3);
  CAPTURE(moment);
  Half hand;
  auto sent = hand.lose_place();
  std::uint32_t incarnation = hand.body_of(hand.next_rejoin(sent)).join.incarnation;
  auto rejoin = hand.named_rejoin(sent);
  std::uint32_t base = 500;
  if (moment == 0) {  // in, and another life answers what is repeated
    rejoin = hand.form(rejoin);
    hand.reply(rejoin, hand.stranger());
    sent = hand.run_for(50 * millisecond);
  } else if (moment == 1) {
    rejoin = hand.form(rejoin);
    sent = hand.lose_place();  // by a Ping
  } else {
    hand.go_on(rejoin, base, 1, 4);
    const auto back = handed_back(hand.sent());
    REQUIRE(back.size() == 2);
    if (moment == 3) {
      for (const auto& result : back) hand.take_back(result);
      hand.answer(contributions(hand.sent()).at(0), 2);  // position 2
    }
    sent = hand.lose_place();
    base = 800;
  }
  rejoin = hand.next_rejoin(sent);
  const auto body = hand.body_of(rejoin);
  CHECK(body.join.incarnation != incarnation);
  CHECK(body.life == 0);
  CHECK(body.origin == 100);
  CHECK(body.newest == (moment < 2 ? 100U : 500U));
  CHECK(body.position == (moment == 3 ? 4U : 2U));
  CHECK(body.end == 4U);
  rejoin = hand.named_rejoin({rejoin}, 78);
  hand.go_on(rejoin, base, 1, 4);
  const auto back = handed_back(hand.sent());
  CHECK(segments(back) ==
        (moment == 3 ? std::set<std::uint32_t>{1, 2, 3} : std::set<std::uint32_t>{1, 3}));
  for (const auto& result : back) {
    CHECK(result.header.round == base);
    hand.take_back(result);
  }
  auto again = contributions(hand.sent());
  if (moment != 3) return hand.finish(again);
  REQUIRE(again.size() == 1);
  hand.answer(again[0], 2);
  CHECK_FALSE(hand.completion().error);
}

TEST_CASE("an answer of an earlier life is not believed", "[engine][restart]") {
  Half hand;
  const auto early = hand.next_rejoin(hand.lose_place());
  const auto later = hand.next_rejoin({});
  CHECK(later.header.round != early.header.round);
  CHECK(later.header.set > early.header.set);
  hand.answer_rejoin(early, 500, {Fresh::none, 1, 3, {}});
  CHECK(hand.engine.state() == EngineState::joining);
  CHECK(handed_back(hand.sent()).empty());
}

TEST_CASE("a job that starts afresh says why", "[engine][restart]") {
  const auto reason = GENERATE(Fresh::stranger, Fresh::other_origin, Fresh::other_shape,
                               Fresh::too_far_apart, Fresh::went_on, Fresh::reset);
  CAPTURE(static_cast<int>(reason));
  Half hand;
  const auto rejoin = hand.named_rejoin(hand.lose_place());
  if (reason == Fresh::other_shape) hand.job.slots = 512;
  hand.answer_rejoin(rejoin, 500, {reason, 0, reason == Fresh::too_far_apart ? 1500U : 0U, {}});
  const Completion failed = hand.completion();
  CHECK(failed.error.code == ErrorCode::job_reset);
  CHECK(has(failed.error.text, wire::fresh_reason_name(reason)));
  if (reason == Fresh::other_shape) CHECK(has(failed.error.text, "1024 slots before, 512 now"));
  if (reason == Fresh::too_far_apart) CHECK(has(failed.error.text, "by 1500 segments"));
  CHECK(hand.sent().empty());
  // All begin again together, at position 0.
  std::vector<float> next = counted(8);
  hand.sum(next, next);
  const auto sent = hand.sent();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].contribution());
  CHECK(sent[0].header.segment == 0);
  CHECK(sent[0].header.round == 500);
  hand.answer(sent[0]);
  CHECK_FALSE(hand.completion().error);
  // And what it has is of the new stream.
  const auto body = hand.body_of(hand.next_rejoin(hand.lose_place()));
  CHECK(body.origin == 500);
  CHECK(body.position == 1);
}

TEST_CASE("another key, mode or data type after the restart: an error, and nothing is sent",
          "[engine][restart]") {
  const auto status = GENERATE(wire::Status::bad_tag, wire::Status::unsupported);
  Half hand;
  const auto rejoin = hand.next_rejoin(hand.lose_place());
  hand.job.mode = wire::Mode::async;
  hand.reply(rejoin, status);
  const Completion failed = hand.completion();
  CHECK(failed.error.code == ErrorCode::refused);
  CHECK(failed.error.status == status);
  CHECK(has(failed.error.text, wire::status_name(status)));
  CHECK(has(failed.error.text,
            status == wire::Status::bad_tag
                ? "the key differs"
                : "the job is asynchronous, this agent was started for a synchronous one"));
  CHECK(hand.run_for(3 * second).empty());
}

TEST_CASE("positions that do not fit: an error and a Reset, no wrong sum", "[engine][restart]") {
  struct Case {
    std::uint32_t first, count;
  };
  const Case wrong = GENERATE(Case{3, 2}, Case{0, 3}, Case{1, 1025}, Case{0xFFFF'FFFF, 10});
  Half hand;
  const auto rejoin = hand.named_rejoin(hand.lose_place());
  hand.answer_rejoin(rejoin, 500, {Fresh::none, wrong.first, wrong.count, {}});
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  const auto sent = hand.run_for(500 * millisecond);
  CHECK(handed_back(sent).empty());
  CHECK(contributions(sent).empty());
  CHECK(!requests(sent, wire::Action::reset).empty());
}

TEST_CASE("an older switch answers Pings and no Rejoin: a plain Join, and an error that says so",
          "[engine][restart]") {
  Half hand;
  auto sent = hand.lose_place();
  std::set<std::uint32_t> incarnations;
  unsigned rejoins = 0;
  SentDatagram join;
  for (int i = 0; i < 100 && join.bytes.empty(); ++i) {
    for (const auto& datagram : sent) {
      if (datagram.is(wire::Action::ping)) {
        CHECK(datagram.header.member == 1);
        hand.reply(datagram, hand.stranger());
      }
      if (datagram.is(wire::Action::rejoin)) {
        ++rejoins;
        incarnations.insert(hand.body_of(datagram).join.incarnation);
      }
      if (datagram.is(wire::Action::join)) join = datagram;
    }
    sent = hand.run_for(20 * millisecond);
  }
  REQUIRE(!join.bytes.empty());
  CHECK(rejoins >= 5);
  CHECK(rejoins <= 6);
  CHECK(incarnations.size() == 1);
  CHECK(incarnations.count(wire::read_join(join.body())->incarnation) == 0);
  CHECK(hand.idle());
  hand.job.base_round = 300;
  hand.reply(join, hand.job);
  const Completion failed = hand.completion();
  CHECK(failed.error.code == ErrorCode::job_reset);
  CHECK(has(failed.error.text, "does not know how to go on"));
  hand.barrier();
  CHECK(contributions(hand.sent()).at(0).header.round == 300);
}

TEST_CASE("Pings that are answered do not count while Rejoins are answered too",
          "[engine][restart]") {
  Half hand;
  auto sent = hand.lose_place();
  for (int i = 0; i < 60; ++i) {
    for (const auto& datagram : sent) {
      if (datagram.is(wire::Action::ping)) hand.reply(datagram, hand.stranger());
      if (datagram.is(wire::Action::rejoin) && i % 4 == 0)
        hand.reply(datagram, wire::Status::parent_not_ready);
      CHECK_FALSE(datagram.is(wire::Action::join));
    }
    sent = hand.run_for(50 * millisecond);
  }
}

TEST_CASE("five Pings are answered and none of five Rejoins: not four, nor an answer in between",
          "[engine][restart]") {
  Half hand;
  std::vector<SentDatagram> sent = hand.lose_place();
  SentDatagram rejoin;  // the latest
  bool joins = false;
  // Lets so many Rejoins pass, their Pings answered.
  const auto deaf_to = [&](int count) {
    for (int i = 0; count > 0 && i < 500; ++i) {
      if (sent.empty()) sent = hand.run_for(10 * millisecond);
      for (const auto& datagram : std::exchange(sent, {})) {
        if (datagram.is(wire::Action::rejoin)) rejoin = datagram;
        joins = joins || datagram.is(wire::Action::join);
        if (!datagram.is(wire::Action::ping)) continue;
        REQUIRE(count > 0);
        hand.reply(datagram, hand.stranger());
        --count;
      }
    }
    CHECK(count == 0);
    for (const auto& datagram : hand.sent()) joins = joins || datagram.is(wire::Action::join);
  };
  deaf_to(4);
  CHECK_FALSE(joins);
  if (GENERATE(true, false)) {
    hand.reply(rejoin, wire::Status::parent_not_ready);
    deaf_to(4);
    CHECK_FALSE(joins);
  }
  deaf_to(1);
  CHECK(joins);
}

TEST_CASE("the switch does not come back in time", "[engine][restart]") {
  const bool forming = GENERATE(false, true);
  const bool busy = GENERATE(true, false);
  CAPTURE(forming, busy);
  RestartHand hand(RestartHand::resuming(4 * second));
  hand.join();
  std::vector<float> vector = counted(8);
  if (busy) hand.sum(vector, vector, 60 * second);
  hand.sent();
  auto sent = hand.lose_place();
  std::uint32_t incarnation = 0;
  const Time start = hand.now;
  SentDatagram join;
  while (hand.now < start + 5 * second) {
    for (const auto& datagram : sent) {
      if (datagram.is(wire::Action::rejoin)) {
        incarnation = hand.body_of(datagram).join.incarnation;
        if (!forming) continue;
        wire::ReplyBody body = hand.job;
        body.state = wire::JobState::forming;
        body.members_now = 3;
        hand.reply(datagram, body);
      }
      if (datagram.is(wire::Action::join)) join = datagram;
    }
    if (hand.now < start + 3900 * millisecond) CHECK(hand.idle());
    sent = hand.run_for(10 * millisecond);
  }
  if (!busy) hand.barrier();
  const Completion failed = hand.completion();
  CHECK(failed.error.code == (forming ? ErrorCode::timed_out : ErrorCode::switch_gone));
  CHECK(has(failed.error.text, "did not go on within 4.0 s"));
  if (forming) CHECK(has(failed.error.text, "3 of 4 members are back"));
  // It comes with nothing to go on with, under another incarnation.
  REQUIRE(!join.bytes.empty());
  CHECK(wire::read_join(join.body())->incarnation != incarnation);
  hand.job.base_round = 900;
  hand.reply(requests(hand.run_for(2 * second), wire::Action::join).back(), hand.job);
  hand.barrier();
  CHECK(contributions(hand.sent()).at(0).header.round == 900);
}

TEST_CASE("a deadline while the switch is away", "[engine][restart]") {
  RestartHand hand;
  hand.join();
  std::vector<float> vector = counted(8);
  hand.sum(vector, vector, second);
  hand.sent();
  auto sent = hand.lose_place();
  hand.barrier(30 * second);  // queued
  const auto before = hand.body_of(hand.next_rejoin(sent)).join.incarnation;
  sent = hand.run_for(1100 * millisecond);
  Completion failed = hand.completion();
  CHECK(failed.error.code == ErrorCode::switch_gone);
  CHECK(has(failed.error.text, "did not end within 1.0 s"));
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  const auto joins = requests(sent, wire::Action::join);
  REQUIRE(!joins.empty());
  CHECK(wire::read_join(joins[0].body())->incarnation != before);
  hand.job.base_round = 500;
  hand.reply(requests(hand.run_for(2 * second), wire::Action::join).back(), hand.job);
  hand.barrier();
  CHECK(contributions(hand.sent()).at(0).header.round == 500);
}

TEST_CASE("operations that begin while the switch is away go when it is back",
          "[engine][restart]") {
  Half hand;
  const auto sent = hand.lose_place();
  std::vector<float> next = counted(16, 50);
  hand.sum(next, next);
  CHECK(contributions(hand.sent()).empty());
  hand.go_on(hand.named_rejoin(sent), 500, 3, 4);  // the position it lacks, 2, is not below E
  // 3 > 2: does not fit.
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  CHECK(hand.completion().error.code == ErrorCode::job_reset);

  Half good;
  const auto sent_then = good.lose_place();
  good.sum(next, next);
  good.go_on(good.named_rejoin(sent_then), 500, 2, 4);
  good.take_back(handed_back(good.sent()).at(0));
  const auto all = contributions(good.sent());
  CHECK(segments(all) == std::set<std::uint32_t>{2, 4, 5, 6});
  for (const auto& datagram : all) good.answer(datagram, 1);
  CHECK_FALSE(good.completion().error);
  CHECK_FALSE(good.completion().error);
  CHECK(next[15] == 65);
}

TEST_CASE("leaving while the switch is away", "[engine][restart]") {
  const bool forming = GENERATE(false, true);
  Half hand;
  const auto rejoin = hand.named_rejoin(hand.lose_place());
  if (forming) hand.form(rejoin);
  hand.engine.leave(hand.now, hand.now + second);
  CHECK(hand.completion().error.code == ErrorCode::closed);
  const auto sent = hand.sent();
  CHECK(!requests(sent, wire::Action::leave).empty());
  if (forming) hand.reply(requests(sent, wire::Action::leave).back(), wire::Status::ok);
  CHECK(hand.engine.state() == EngineState::left);
  CHECK(hand.run_for(3 * second).empty());
}

TEST_CASE("a switch that says Leave is waited for", "[engine][restart]") {
  Half hand;
  hand.request(wire::Action::leave);
  CHECK(hand.idle());
  auto sent = hand.run_for(3 * second);
  CHECK(contributions(sent).empty());
  CHECK(hand.idle());
  const auto rejoins = requests(sent, wire::Action::rejoin);
  CHECK(rejoins.size() >= 10);
  CHECK(rejoins.size() < 30);
  hand.go_on(hand.named_rejoin(sent), 500, 2, 4);
  hand.take_back(handed_back(hand.sent()).at(0));
  hand.finish(contributions(hand.sent()));
}

TEST_CASE("a Reset while results are handed back ends it", "[engine][restart]") {
  Half hand;
  hand.go_on(hand.named_rejoin(hand.lose_place()), 500, 1, 4);
  CHECK(handed_back(hand.sent()).size() == 2);
  hand.request_reset(510);
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  hand.barrier();
  const auto sent = hand.run_for(500 * millisecond);
  CHECK(handed_back(sent).empty());
  CHECK(contributions(sent).at(0).header.round == 510);
  CHECK(contributions(sent).at(0).header.segment == 0);
}

TEST_CASE("a Halt while results are handed back holds them", "[engine][restart]") {
  Half hand;
  hand.go_on(hand.named_rejoin(hand.lose_place()), 500, 1, 4);
  CHECK(handed_back(hand.sent()).size() == 2);
  hand.request(wire::Action::halt);
  CHECK(handed_back(hand.run_for(2 * second)).empty());
  hand.request(wire::Action::resume);
  std::set<std::uint32_t> back;
  std::vector<SentDatagram> again;
  for (int i = 0; i < 2000 && again.size() < 2; ++i) {
    const auto all = hand.run_for(millisecond);
    for (const auto& result : handed_back(all)) {
      back.insert(result.header.segment);
      hand.take_back(result);
    }
    for (const auto& datagram : contributions(all)) again.push_back(datagram);
  }
  CHECK(back == std::set<std::uint32_t>{1, 3});
  hand.finish(again);
}

TEST_CASE("answers to Pings do not keep results from being handed back again",
          "[engine][restart]") {
  EngineOptions options = RestartHand::resuming();
  options.ping_interval = 11 * millisecond;
  Half hand(options);
  const auto sent = hand.lose_place();
  hand.go_on(hand.named_rejoin(sent), 500, 1, 4);
  CHECK(handed_back(hand.sent()).size() == 2);  // lost
  std::size_t again = 0;
  for (int i = 0; i < 2000; ++i) {
    for (const auto& datagram : hand.run_for(millisecond)) {
      if (datagram.is(wire::Action::ping)) hand.reply(datagram, wire::Status::ok);
      if (datagram.handed_back()) ++again;
    }
  }
  CHECK(again >= 3);
}

TEST_CASE("many results go back within a window, and all arrive", "[engine][restart]") {
  RestartHand hand(RestartHand::resuming(), RestartHand::job_with(256));
  hand.join();
  std::vector<float> vector = counted(8 * 1000);
  std::vector<float> right = vector;
  for (float& value : right) value *= 3;
  hand.sum(vector, vector, 60 * second);
  std::uint32_t done = 0;
  while (done < 900) {
    for (const auto& datagram : contributions(hand.run_for(5 * millisecond))) {
      if (done < 900) {
        hand.answer(datagram, 3);
        ++done;
      }
    }
  }
  const auto sent = hand.lose_place();
  const auto body = hand.body_of(hand.next_rejoin(sent));
  CHECK(body.position == 900);
  // Somebody has nothing of the last 256.
  hand.go_on(hand.named_rejoin(sent), 500, 900 - 256, 900);
  std::set<std::uint32_t> back;
  std::size_t most = 0;
  for (int i = 0; i < 4000 && back.size() < 256; ++i) {
    const auto some = handed_back(hand.run_for(millisecond));
    most = std::max(most, some.size());
    std::size_t nth = 0;
    for (const auto& result : some) {
      const std::uint32_t turn = result.header.round - 500;
      const std::uint32_t position = turn * 256 + result.header.segment;
      REQUIRE(position >= 900 - 256);
      REQUIRE(position < 900);
      REQUIRE(result.floats[0] == right[position * 8]);
      if (nth++ % 3 == 1) continue;  // lost
      back.insert(position);
      hand.take_back(result);
    }
  }
  CHECK(back.size() == 256);
  CHECK(most <= 64);
  done = 0;
  for (int i = 0; i < 1000 && hand.idle(); ++i)
    for (const auto& datagram : contributions(hand.run_for(5 * millisecond)))
      hand.answer(datagram, 3);
  CHECK(vector == right);
}

TEST_CASE("without resume_within a lost place fails everything at once", "[engine][restart]") {
  Half hand(RestartHand::resuming(0));
  const auto sent = hand.lose_place();
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  CHECK(requests(sent, wire::Action::rejoin).empty());
  CHECK(requests(sent, wire::Action::join).size() == 1);
}

TEST_CASE("a member that has failed an operation has nothing to go on with", "[engine][restart]") {
  Half hand;
  hand.unasked(wire::Status::mismatch, 2, 100);
  CHECK(hand.completion().error.code == ErrorCode::mismatch);
  const auto sent = hand.lose_place();
  CHECK(requests(sent, wire::Action::rejoin).empty());
  CHECK(requests(sent, wire::Action::join).size() == 1);
}
