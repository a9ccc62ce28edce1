// Deadlines, Resets, Halts, lost memberships: how an epoch ends and what each member is told.
#include <random>

#include "tests/unit/engine/hand.h"

using namespace iswitch;
using namespace iswitch::agent;

namespace {
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Lets time pass while the switch answers each Help with who is missing.
std::vector<SentDatagram> run_helped(Hand& hand, Time end, wire::MemberMask missing) {
  std::vector<SentDatagram> all;
  wire::ReplyBody body = hand.job;
  body.missing = missing;
  while (hand.now < end) {
    for (auto& datagram : hand.run_until(std::min(end, hand.now + 5 * millisecond))) {
      if (datagram.is(wire::Action::help)) hand.reply(datagram, body);
      all.push_back(std::move(datagram));
    }
  }
  return all;
}

/// A vector whose memory is taken away when its operation has ended.
struct Poisoned {
  std::unique_ptr<std::vector<float>> vector = std::make_unique<std::vector<float>>(counted(64));
  std::span<float> span() { return *vector; }
  void free() { vector.reset(); }  // the address sanitizer sees any use
};
}  // namespace

TEST_CASE("a deadline names the members that are missing, then the job is reset",
          "[engine][failure]") {
  Hand hand;
  hand.join();
  Poisoned a;
  Poisoned b;
  hand.sum(a.span(), a.span(), second);
  hand.sum(b.span(), b.span(), 5 * second);
  auto sent = hand.sent();
  REQUIRE(contributions(sent).size() == 10);  // of 16: the first window
  hand.result(0, 100, std::vector<float>(8, 1));
  sent = run_helped(hand, 990 * millisecond, 1 << 2 | 1 << 3);
  const auto helps = requests(sent, wire::Action::help);
  REQUIRE(!helps.empty());
  CHECK(helps.size() < 8);
  CHECK(wire::read_slot(helps[0].body()).segment == 1);  // the oldest outstanding
  CHECK(wire::read_slot(helps[0].body()).round == 100);
  CHECK(hand.idle());
  sent = hand.run_until(second + 10 * millisecond);
  Completion completion = hand.completion();
  CHECK(completion.id == 1);
  CHECK(completion.error.code == ErrorCode::timed_out);
  CHECK(completion.error.missing == 0b1100);
  CHECK(has(completion.error.text, "members 2, 3 have not contributed to segment 1, round 100"));
  completion = hand.completion();
  CHECK(completion.id == 2);
  CHECK(completion.error.code == ErrorCode::job_reset);
  CHECK(completion.error.missing == 0b1100);
  // Nothing touches the vectors from here on.
  a.free();
  b.free();
  hand.result(1, 100, std::vector<float>(8, 1));
  hand.request_help(1, 100);

  // What comes next waits for the Reset, which is asked for until it is there.
  std::vector<float> next = counted(8);
  hand.sum(next, next);
  sent = hand.run_for(300 * millisecond);
  CHECK(contributions(sent).empty());
  const auto resets = requests(sent, wire::Action::reset);
  REQUIRE(!resets.empty());
  CHECK(wire::read_reset(resets[0].body()) == 0);
  wire::ReplyBody after = hand.job;
  hand.reply(resets[0], after);  // answered before it is done
  CHECK(contributions(hand.run_for(50 * millisecond)).empty());
  after.base_round = 102;
  hand.request_reset(102);
  sent = hand.sent();
  REQUIRE(contributions(sent).size() == 1);
  CHECK(contributions(sent)[0].header.round == 102);
  CHECK(contributions(sent)[0].header.segment == 0);
  REQUIRE(replies(sent).size() == 1);
  hand.answer(contributions(sent)[0]);
  CHECK_FALSE(hand.completion().error);  // told once, not twice
  CHECK(requests(hand.run_for(3 * second), wire::Action::reset).empty());
}

TEST_CASE("members are named also where the timeout has grown beyond the deadline",
          "[engine][failure]") {
  EngineOptions options = Hand::default_options();
  options.min_retransmit = options.max_retransmit = 2 * second;
  Hand hand(options);
  hand.join();
  hand.barrier(second);
  run_helped(hand, second + 10 * millisecond, 1 << 3);
  const Completion completion = hand.completion();
  CHECK(completion.error.code == ErrorCode::timed_out);
  CHECK(completion.error.missing == 0b1000);
}

TEST_CASE("a Reset that is answered but never comes is asked for again", "[engine][failure]") {
  Hand hand;
  hand.join();
  hand.barrier(100 * millisecond);
  hand.run_for(150 * millisecond);
  CHECK(hand.completion().error);
  int asked = 0;
  for (int i = 0; i < 100; ++i) {
    for (const auto& request : requests(hand.run_for(50 * millisecond), wire::Action::reset)) {
      ++asked;
      hand.reply(request, wire::Status::ok);
    }
  }
  CHECK(asked >= 5);
  CHECK(asked < 20);
}

TEST_CASE("this member itself may be the missing one: it sends again", "[engine][failure]") {
  Hand hand;
  hand.join();
  hand.barrier(second);
  hand.sent();
  const auto helps = requests(hand.run_for(200 * millisecond), wire::Action::help);
  REQUIRE(!helps.empty());
  wire::ReplyBody missing = hand.job;
  missing.missing = 0b1010;
  hand.reply(helps.back(), missing);
  const auto sent = hand.sent();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].retransmitted());
  run_helped(hand, second + 10 * millisecond, 0b1010);
  const Completion completion = hand.completion();
  CHECK(has(completion.error.text, "member 3 and this member (1) have not contributed"));
}

TEST_CASE("a switch that does not answer is gone", "[engine][failure]") {
  const Time timeout = GENERATE(300 * millisecond, 2 * second);
  Hand hand;
  hand.join();
  hand.barrier(timeout);
  hand.run_for(timeout + 10 * millisecond);
  const Completion completion = hand.completion();
  CHECK(completion.error.code == ErrorCode::switch_gone);
  CHECK(has(completion.error.text, "no answer from the switch"));
}

TEST_CASE("a switch that finds all tags wrong has another key", "[engine][failure]") {
  Hand hand;
  hand.join();
  std::vector<float> vector = counted(8);
  hand.sum(vector, vector, 2 * second);
  const int told = GENERATE(2, 3);
  const std::vector<std::uint8_t> own_key = hand.options.key;
  for (int left = told; hand.now < 3 * second;) {
    for (const SentDatagram& datagram : hand.run_for(10 * millisecond)) {
      if (datagram.header.type != wire::Type::request || left == 0) continue;
      --left;
      hand.options.key.assign(16, 0x77);
      hand.reply(datagram, wire::Status::bad_tag);
      hand.options.key = own_key;
    }
    if (const auto completion = hand.engine.take_completion()) {
      CHECK(completion->error.code == (told == 3 ? ErrorCode::refused : ErrorCode::switch_gone));
      const bool named =
          completion->error.text.find("the key differs from the switch's") != std::string::npos;
      CHECK(named == (told == 3));
      return;
    }
  }
  FAIL("it has not ended");
}

TEST_CASE("a short deadline still asks, and does not blame the switch", "[engine][failure]") {
  Hand hand;
  hand.join();
  hand.barrier(40 * millisecond);
  const auto sent = hand.run_for(50 * millisecond);
  CHECK(!requests(sent, wire::Action::help).empty());
  CHECK(hand.completion().error.code == ErrorCode::timed_out);
}

TEST_CASE("Halt holds contributions, Resume lets them go", "[engine][failure]") {
  Hand hand;
  hand.join();
  std::vector<float> vector = counted(8);
  hand.sum(vector, vector, 3 * second);
  REQUIRE(hand.sent().size() == 1);
  hand.request(wire::Action::halt);
  CHECK(hand.engine.state() == EngineState::halted);
  hand.barrier(3 * second);
  auto sent = hand.run_for(second + 500 * millisecond);
  CHECK(contributions(sent).empty());
  REQUIRE(replies(sent).size() == 1);
  CHECK(replies(sent)[0].header.flags == static_cast<std::uint8_t>(wire::Action::halt));
  const auto pings = requests(sent, wire::Action::ping);
  REQUIRE(!pings.empty());
  SECTION("by request") { hand.request(wire::Action::resume); }
  SECTION("by the state in a reply") { hand.reply(pings.back(), wire::Status::ok); }
  CHECK(hand.engine.state() == EngineState::running);
  sent = contributions(hand.run_for(30 * millisecond));
  // The barrier, and the sum again by timeout: it may have been refused.
  REQUIRE(sent.size() >= 2);
  CHECK(sent[0].header.segment == 1);
  CHECK_FALSE(sent[0].retransmitted());
  CHECK(sent[1].header.segment == 0);
  CHECK(sent[1].retransmitted());
  hand.answer(sent[0]);
  hand.answer(sent[1]);
  CHECK_FALSE(hand.completion().error);
  CHECK_FALSE(hand.completion().error);
}

TEST_CASE("a deadline while halted", "[engine][failure]") {
  Hand hand;
  hand.join();
  wire::ReplyBody body = hand.job;
  body.state = wire::JobState::halted;
  body.status = wire::Status::halted;
  hand.unasked(body);
  CHECK(hand.engine.state() == EngineState::halted);
  hand.barrier(500 * millisecond);
  hand.run_for(600 * millisecond);
  CHECK(hand.completion().error.code == ErrorCode::halted);
}

TEST_CASE("a Reset fails what is outstanding, once, and is answered each time",
          "[engine][failure]") {
  Hand hand;
  hand.join();
  Poisoned vector;
  hand.sum(vector.span(), vector.span());
  hand.barrier();
  hand.sent();
  const auto header = hand.request_header(wire::Action::reset);
  const auto reset = wire::write_reset(header, 110, hand.asking_switch());
  hand.receive(reset);
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  vector.free();
  hand.receive(reset);      // repeated: the answer was lost
  hand.request_reset(110);  // not newer
  hand.request_reset(108);
  auto sent = hand.sent();
  REQUIRE(replies(sent).size() == 4);
  for (const auto& reply : replies(sent)) CHECK(wire::read_reply(reply.body())->base_round == 110);
  CHECK(contributions(sent).empty());
  std::vector<float> next = counted(8);
  hand.sum(next, next);
  sent = hand.sent();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].header.round == 110);
  hand.receive(reset);
  CHECK(hand.idle());
  hand.answer(sent[0]);
  CHECK_FALSE(hand.completion().error);
  CHECK(hand.engine.statistics().resets == 1);
}

TEST_CASE("an idle member learns of a Reset by its next operation, only once",
          "[engine][failure]") {
  Hand hand;
  hand.join();
  hand.request_reset(110);
  hand.request_reset(120);
  hand.barrier();
  hand.barrier();  // submitted before the failure could be known
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  hand.barrier();
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  CHECK(hand.idle());
  hand.barrier();
  const auto sent = contributions(hand.sent());
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].header.round == 120);
  CHECK(sent[0].header.segment == 0);
}

TEST_CASE("a newer base round in any reply is a Reset", "[engine][failure]") {
  Hand hand;
  hand.join();
  hand.barrier();
  hand.sent();
  wire::ReplyBody body = hand.job;
  body.base_round = 103;
  hand.unasked(body);
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  body.base_round = 101;  // overtaken
  hand.unasked(body);
  hand.barrier();
  CHECK(contributions(hand.sent()).at(0).header.round == 103);
}

TEST_CASE("requests of the switch: replays are refused, forgeries ignored", "[engine][failure]") {
  EngineOptions options = Hand::default_options();
  options.key.assign(16, 9);
  Hand hand(options);
  hand.join();
  const auto early = hand.request_header(wire::Action::halt);
  hand.request(wire::Action::resume);
  hand.sent();
  hand.receive(wire::write_plain_request(early, hand.asking_switch()));
  auto sent = hand.sent();
  REQUIRE(sent.size() == 1);
  CHECK(wire::read_reply(sent[0].body())->status == wire::Status::replayed_nonce);
  CHECK(hand.engine.state() == EngineState::running);
  const std::vector<std::uint8_t> wrong(16, 8);
  hand.receive(wire::write_plain_request(hand.request_header(wire::Action::halt),
                                         {wrong, options.switch_ip, options.switch_port}));
  CHECK(hand.sent().empty());
  CHECK(hand.engine.state() == EngineState::running);
}

TEST_CASE("Help from the switch: the contribution goes again at once", "[engine][failure]") {
  Hand hand;
  hand.join();
  std::vector<float> vector = counted(16);
  hand.sum(vector, vector);
  hand.sent();
  hand.request_help(1, 100);
  hand.request_help(9, 100);  // not contributed
  const auto sent = hand.sent();
  const auto again = contributions(sent);
  REQUIRE(again.size() == 1);
  CHECK(again[0].header.segment == 1);
  CHECK(again[0].retransmitted());
  CHECK(again[0].floats[0] == 9);
}

TEST_CASE("mismatch and gone fail the operation they mean", "[engine][failure]") {
  const bool gone = GENERATE(false, true);
  Hand hand;
  hand.join();
  std::vector<float> vector = counted(16);
  hand.barrier();
  hand.sum(vector, vector);
  hand.sent();
  hand.unasked(gone ? wire::Status::gone : wire::Status::mismatch, 50,
               100);  // nothing of this member
  CHECK(hand.idle());
  hand.unasked(gone ? wire::Status::gone : wire::Status::mismatch, 2, 100);
  Completion completion = hand.completion();
  CHECK(completion.id == 1);
  CHECK(completion.error.code == ErrorCode::job_reset);
  completion = hand.completion();
  CHECK(completion.id == 2);
  CHECK(completion.error.code == (gone ? ErrorCode::gone : ErrorCode::mismatch));
  CHECK(has(completion.error.text, "segment 2, round 100"));
  CHECK(!requests(hand.run_for(500 * millisecond), wire::Action::reset).empty());
}

TEST_CASE("a switch that restarted: the operation fails, the member joins again",
          "[engine][failure]") {
  Hand hand;
  hand.join();
  Poisoned vector;
  hand.sum(vector.span(), vector.span());
  hand.sent();
  wire::ReplyBody stranger;
  stranger.status = wire::Status::not_a_member;
  hand.unasked(stranger);
  CHECK(hand.idle());  // only a hint, perhaps about an old packet
  auto sent = hand.sent();
  REQUIRE(requests(sent, wire::Action::ping).size() == 1);
  hand.reply(requests(sent, wire::Action::ping)[0], stranger);
  const Completion completion = hand.completion();
  CHECK(completion.error.code == ErrorCode::job_reset);
  CHECK(has(completion.error.text, "restarted or evicted"));
  vector.free();
  CHECK(hand.engine.state() == EngineState::joining);
  std::vector<float> next = counted(8);
  hand.sum(next, next);
  sent = hand.run_for(100 * millisecond);
  CHECK(contributions(sent).empty());
  const auto joins = requests(sent, wire::Action::join);
  REQUIRE(!joins.empty());
  CHECK(wire::read_join(joins[0].body())->wanted_member == 1);
  wire::ReplyBody other = hand.job;
  other.base_round = 7;  // a fixed one, older than before
  hand.reply(joins[0], other);
  sent = hand.sent();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].header.round == 7);
  CHECK(sent[0].header.segment == 0);
  hand.answer(sent[0]);
  CHECK_FALSE(hand.completion().error);
}

TEST_CASE("a member that lost its place to another takes any place, unless it wanted that one",
          "[engine][failure]") {
  const bool wanted = GENERATE(false, true);
  EngineOptions options = Hand::default_options();
  if (wanted) options.wanted_member = 1;
  Hand hand(options);
  hand.join();
  wire::ReplyBody stranger;
  stranger.status = wire::Status::not_a_member;
  hand.reply(hand.run_for(1100 * millisecond).back(), stranger);
  auto joins = requests(hand.sent(), wire::Action::join);
  REQUIRE(joins.size() == 1);
  CHECK(wire::read_join(joins[0].body())->wanted_member == 1);
  hand.reply(joins[0], wire::Status::job_full);
  joins = requests(hand.run_for(50 * millisecond), wire::Action::join);
  REQUIRE(!joins.empty());
  CHECK(wire::read_join(joins[0].body())->wanted_member == (wanted ? 1 : wire::no_member));
  wire::ReplyBody place = hand.job;
  place.member = wanted ? 1 : 3;
  hand.reply(joins[0], place);
  CHECK(hand.engine.state() == EngineState::running);
  CHECK(hand.engine.member() == place.member);
}

TEST_CASE("a switch that restarts while the job forms, with an older base round",
          "[engine][failure]") {
  // The repeated Join makes this a member of the new life; a Halt of it comes before the answer.
  Hand hand;
  hand.engine.join(0, 10 * second);
  wire::ReplyBody body = hand.job;
  body.state = wire::JobState::forming;
  body.base_round = 0xFFFF'FFF0;
  hand.reply(hand.sent()[0], body);
  hand.barrier();
  const auto joins = requests(hand.run_for(25 * millisecond), wire::Action::join);
  REQUIRE(joins.size() == 1);
  hand.request(wire::Action::halt);
  CHECK(contributions(hand.sent()).empty());
  hand.request(wire::Action::resume);
  CHECK(contributions(hand.sent()).empty());
  hand.reply(joins[0], hand.job);  // running, base round 100
  const auto sent = contributions(hand.sent());
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].header.round == 100);
}

TEST_CASE("an older base round in an answer: overtaken, or another life", "[engine][failure]") {
  Hand hand;
  hand.join();
  hand.barrier();
  hand.sent();
  const auto before = requests(hand.run_for(1100 * millisecond), wire::Action::ping);
  REQUIRE(!before.empty());
  hand.request_reset(120);
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  hand.reply(before.back(), wire::Status::ok);  // says 100: asked before the Reset came
  CHECK(hand.engine.state() == EngineState::running);
  hand.now += millisecond;
  const auto after = requests(hand.run_for(1100 * millisecond), wire::Action::ping);
  REQUIRE(!after.empty());
  hand.reply(after.back(), wire::Status::ok);  // says 100 although asked since
  CHECK(hand.engine.state() == EngineState::joining);
}

TEST_CASE("a job that forms again is asked about, and goes on", "[engine][failure]") {
  const bool known = GENERATE(true, false);
  const std::uint32_t base_round = GENERATE(100U, 110U);
  Hand hand;
  hand.join();
  hand.barrier();
  const auto barrier = hand.sent();
  wire::ReplyBody body = hand.job;
  body.state = wire::JobState::forming;
  hand.unasked(body);
  CHECK(hand.engine.state() == EngineState::forming);
  const auto sent = hand.run_for(50 * millisecond);
  CHECK(contributions(sent).empty());
  // By Ping: a Join could make it a member of the switch's next life unnoticed.
  CHECK(requests(sent, wire::Action::join).empty());
  const auto pings = requests(hand.run_for(150 * millisecond), wire::Action::ping);
  REQUIRE(!pings.empty());
  if (!known) {
    wire::ReplyBody stranger;
    stranger.status = wire::Status::not_a_member;
    hand.reply(pings.back(), stranger);
    CHECK(hand.engine.state() == EngineState::joining);
    CHECK(hand.completion().error.code == ErrorCode::job_reset);
    return;
  }
  body.state = wire::JobState::running;
  body.base_round = base_round;
  hand.reply(pings.back(), body);
  CHECK(hand.engine.state() == EngineState::running);
  if (base_round == 100) {
    CHECK(contributions(hand.run_for(50 * millisecond)).size() >= 1);
    hand.answer(barrier[0]);
    CHECK_FALSE(hand.completion().error);
  } else {
    CHECK(hand.completion().error.code == ErrorCode::job_reset);
  }
}

TEST_CASE("a hint of a lost membership that is not true", "[engine][failure]") {
  Hand hand;
  hand.join();
  hand.barrier();
  const auto barrier = hand.sent();
  wire::ReplyBody stranger;
  stranger.status = wire::Status::not_a_member;
  hand.unasked(stranger);
  const auto pings = requests(hand.run_for(50 * millisecond), wire::Action::ping);
  REQUIRE(pings.size() >= 2);  // repeated soon
  hand.reply(pings.back(), wire::Status::ok);
  CHECK(hand.engine.state() == EngineState::running);
  hand.answer(barrier[0]);
  CHECK_FALSE(hand.completion().error);
}

TEST_CASE("an idle member whose switch restarted is told by its next operation",
          "[engine][failure]") {
  Hand hand;
  hand.join();
  const auto ping = hand.run_for(1100 * millisecond);
  wire::ReplyBody stranger;
  stranger.status = wire::Status::not_a_member;
  hand.reply(ping.back(), stranger);
  hand.reply(hand.sent().back(), hand.job);
  CHECK(hand.engine.state() == EngineState::running);
  hand.barrier();
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  hand.barrier();
  CHECK(contributions(hand.sent()).size() == 1);
}

TEST_CASE("a switch that says Leave is gone at once, and the next one is joined",
          "[engine][failure]") {
  const bool busy = GENERATE(true, false);
  Hand hand;
  hand.join();
  if (busy) hand.barrier();
  hand.sent();
  hand.request(wire::Action::leave);
  auto sent = hand.sent();
  CHECK(replies(sent).size() == 1);
  if (!busy) hand.barrier();
  CHECK(hand.completion().error.code == ErrorCode::switch_gone);
  hand.barrier(400 * millisecond);
  sent = hand.run_for(500 * millisecond);
  CHECK(hand.completion().error.code == ErrorCode::switch_gone);
  const auto joins = requests(sent, wire::Action::join);
  REQUIRE(joins.size() >= 3);
  CHECK(hand.engine.state() == EngineState::joining);
  hand.reply(joins.back(), hand.job);
  // The operation that ran out meanwhile is one that others may have begun: they must be told.
  sent = hand.run_for(500 * millisecond);
  REQUIRE(!requests(sent, wire::Action::reset).empty());
  hand.request_reset(104);
  hand.barrier();
  sent = contributions(hand.sent());
  REQUIRE(sent.size() == 1);
  hand.answer(sent[0]);
  CHECK_FALSE(hand.completion().error);
}

TEST_CASE("abandon fails everything and leaves the vectors alone", "[engine][failure]") {
  Hand hand;
  hand.join();
  Poisoned vector;
  hand.sum(vector.span(), vector.span());
  hand.engine.abandon({ErrorCode::system, wire::Status::ok, 0, "socket closed"});
  CHECK(hand.completion().error.code == ErrorCode::system);
  vector.free();
  CHECK(hand.run_for(5 * second).empty());
  CHECK(hand.engine.next_deadline() == never);
  hand.barrier();
  CHECK(hand.completion().error.text == "socket closed");
}

TEST_CASE("damaged datagrams do no harm", "[engine][failure]") {
  EngineOptions options = Hand::default_options();
  options.key.assign(16, 3);
  Hand hand(options);
  hand.join();
  std::vector<float> vector = counted(80);
  hand.sum(vector, vector);
  const auto sent = contributions(hand.sent());
  std::mt19937 random(11);
  const auto control = [&](const wire::ControlDatagram& datagram) {
    return std::vector<std::uint8_t>(datagram.view().begin(), datagram.view().end());
  };
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::uint8_t> bytes;
    switch (random() % 4) {
      case 0:
        bytes = control(
            wire::write_reset(hand.request_header(wire::Action::reset), 500, hand.asking_switch()));
        break;
      case 1:
        bytes = control(wire::write_plain_request(hand.request_header(wire::Action::leave),
                                                  hand.asking_switch()));
        break;
      case 2:
        bytes = control(wire::write_reply({.action = wire::Action::ping,
                                           .job = 7,
                                           .member = 1,
                                           .request_id = 0,
                                           .nonce = ++hand.switch_nonce},
                                          hand.job, hand.client()));
        break;
      default:
        // Results have no tag: one whose header is damaged must still find no wrong place.
        bytes = hand.result_bytes(2000 + random() % 100, 100, std::vector<float>(8, 1));
        break;
    }
    const std::vector<std::uint8_t> whole = bytes;
    const std::size_t flips = 1 + random() % 3;
    for (std::size_t flip = 0; flip < flips; ++flip)
      bytes[16 + random() % (bytes.size() - 16)] ^= static_cast<std::uint8_t>(1 + random() % 255);
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (bytes != whole) hand.receive(bytes);
  }
  CHECK(hand.engine.state() == EngineState::running);
  CHECK(hand.engine.job() == hand.job);
  CHECK(hand.idle());
  for (const auto& datagram : sent) hand.answer(datagram, 2);
  CHECK_FALSE(hand.completion().error);
  CHECK(vector[79] == 2 * counted(80)[79]);
}

TEST_CASE("a flood of requests and replies is bounded", "[engine][failure]") {
  Hand hand;
  hand.join();
  for (int i = 0; i < 1000; ++i) {
    hand.request(wire::Action::resume);
    hand.unasked(wire::Status::ok, 0, 0);
    hand.engine.request_reset(hand.now);
  }
  CHECK(hand.sent().size() <= 40);
}
