// Joining, its refusals, keys, and what keeps a membership alive.
#include "tests/unit/engine/hand.h"

using namespace iswitch;
using namespace iswitch::agent;

namespace {
wire::ReplyBody forming(unsigned now) {
  wire::ReplyBody body = Hand::default_job();
  body.state = wire::JobState::forming;
  body.members_now = static_cast<std::uint16_t>(now);
  return body;
}
}  // namespace

TEST_CASE("Join is repeated unchanged until answered, then asked anew until the job runs",
          "[engine][join]") {
  EngineOptions options = Hand::default_options();
  options.wanted_member = 1;
  Hand hand(options);
  hand.engine.join(0, 10 * second);
  CHECK(hand.engine.state() == EngineState::joining);
  const auto sent = hand.run_for(150 * millisecond);  // at 0, 20, 60, 140 ms
  REQUIRE(sent.size() == 4);
  for (const auto& datagram : sent) CHECK(datagram.bytes == sent[0].bytes);
  CHECK(sent[0].header.member == wire::no_member);
  CHECK(sent[0].tos == 0xBC);
  const auto body = wire::read_join(sent[0].body());
  REQUIRE(body.has_value());
  CHECK(body->wanted_member == 1);
  CHECK(body->incarnation == 0xABCD);
  CHECK(body->max_segment_bytes == wire::max_segment_bytes);
  hand.reply(sent[0], forming(2));
  CHECK(hand.engine.state() == EngineState::forming);
  CHECK(hand.engine.member() == 1);
  const auto again = requests(hand.run_for(200 * millisecond), wire::Action::join);
  REQUIRE(!again.empty());
  CHECK(again[0].header.set > sent[0].header.set);
  CHECK(again[0].header.round != sent[0].header.round);
  hand.reply(sent[0], hand.job);  // a late copy of the first answer
  CHECK(hand.engine.state() == EngineState::forming);
  hand.reply(again.back(), hand.job);
  CHECK(hand.engine.state() == EngineState::running);
  CHECK(requests(hand.run_for(5 * second), wire::Action::join).empty());
}

TEST_CASE("operations submitted while joining wait for the job to run", "[engine][join]") {
  Hand hand;
  hand.engine.join(0, 10 * second);
  std::vector<float> vector = counted(8);
  hand.sum(vector, vector);
  auto sent = hand.sent();
  REQUIRE(sent.size() == 1);
  hand.reply(sent[0], forming(3));
  sent = hand.run_for(30 * millisecond);
  REQUIRE(contributions(sent).empty());
  wire::ReplyBody running = hand.job;
  running.base_round = 104;  // somebody was replaced meanwhile: no concern of this member
  hand.reply(requests(sent, wire::Action::join).back(), running);
  sent = hand.sent();
  REQUIRE(contributions(sent).size() == 1);
  CHECK(sent[0].header.round == 104);
  CHECK(hand.idle());
}

TEST_CASE("refusals that can pass are tried again with a new nonce", "[engine][join]") {
  const wire::Status status =
      GENERATE(wire::Status::no_such_job, wire::Status::job_full, wire::Status::parent_not_ready,
               wire::Status::replayed_nonce);
  CAPTURE(wire::status_name(status));
  Hand hand;
  hand.engine.join(0, 2 * second);
  auto sent = hand.sent();
  wire::ReplyBody zeros;
  zeros.status = status;
  hand.reply(sent[0], zeros);
  CHECK(hand.engine.state() == EngineState::joining);
  auto next = hand.run_for(25 * millisecond);
  REQUIRE(next.size() == 1);
  CHECK(next[0].header.set > sent[0].header.set);
  if (status == wire::Status::replayed_nonce)
    CHECK(next[0].header.set > sent[0].header.set + 900'000);
  SECTION("and succeed") {
    hand.reply(next[0], hand.job);
    CHECK(hand.engine.state() == EngineState::running);
  }
  SECTION("and are told at the deadline") {
    for (int i = 0; i < 100 && hand.engine.state() == EngineState::joining; ++i) {
      if (!next.empty()) hand.reply(next.back(), zeros);
      next = hand.run_for(50 * millisecond);
    }
    CHECK(hand.now <= 2100 * millisecond);
    REQUIRE(hand.engine.state() == EngineState::failed);
    CHECK(hand.engine.join_error().code == ErrorCode::refused);
    CHECK(hand.engine.join_error().status == status);
    CHECK(hand.engine.join_error().text.find(wire::status_name(status)) != std::string::npos);
    hand.barrier();
    CHECK(hand.completion().error.code == ErrorCode::refused);
    CHECK(hand.run_for(second).empty());
    CHECK(hand.engine.next_deadline() == never);
  }
}

TEST_CASE("refusals that cannot pass end the join at once", "[engine][join]") {
  const wire::Status status =
      GENERATE(wire::Status::bad_tag, wire::Status::bad_value, wire::Status::unsupported);
  Hand hand;
  hand.engine.join(0, 10 * second);
  hand.barrier();
  wire::ReplyBody zeros;
  zeros.status = status;
  hand.reply(hand.sent()[0], zeros);
  CHECK(hand.engine.state() == EngineState::failed);
  CHECK(hand.engine.join_error().code == ErrorCode::refused);
  CHECK(hand.engine.join_error().status == status);
  CHECK(hand.completion().error.code == ErrorCode::refused);
  // And a new attempt may be made.
  hand.engine.join(hand.now, hand.now + second);
  hand.reply(hand.sent()[0], hand.job);
  CHECK(hand.engine.state() == EngineState::running);
}

TEST_CASE("a job this agent cannot work with is refused, naming the field", "[engine][join]") {
  Hand hand;
  std::string field;
  wire::ReplyBody body = hand.job;
  SECTION("slots") {
    body.slots = 0;
    field = "slots";
  }
  SECTION("shards") {
    body.shards = 0;
    field = "shards";
  }
  SECTION("no segment bytes") {
    body.segment_bytes = 0;
    field = "segment_bytes";
  }
  SECTION("odd segment bytes") {
    body.segment_bytes = 100;
    field = "segment_bytes";
  }
  SECTION("huge segment bytes") {
    body.segment_bytes = 8960;
    field = "segment_bytes";
  }
  SECTION("mode") {
    body.mode = wire::Mode::async;
    field = "mode";
  }
  SECTION("data type") {
    body.data_type = wire::DataType::float16;
    field = "data type";
  }
  SECTION("member id") {
    body.member = wire::no_member;
    field = "member id";
  }
  SECTION("all zeros") {
    body = {};
    body.member = 0;
    field = "slots";
  }
  hand.engine.join(0, 10 * second);
  hand.reply(hand.sent()[0], body);
  CHECK(hand.engine.state() == EngineState::failed);
  CHECK(hand.engine.join_error().code == ErrorCode::refused);
  CHECK(hand.engine.join_error().text.find(field) != std::string::npos);
}

TEST_CASE("segments larger than the host can carry, or another id than wanted", "[engine][join]") {
  EngineOptions options = Hand::default_options();
  options.max_segment_bytes = 1440;
  options.wanted_member = 2;
  Hand hand(options);
  hand.engine.join(0, 10 * second);
  wire::ReplyBody body = hand.job;
  SECTION("size") {
    body.member = 2;
    body.segment_bytes = 8928;
    hand.reply(hand.sent()[0], body);
    CHECK(hand.engine.join_error().text.find("8928") != std::string::npos);
    CHECK(hand.engine.join_error().text.find("1440") != std::string::npos);
  }
  SECTION("id") {
    hand.reply(hand.sent()[0], body);
    CHECK(hand.engine.join_error().text.find("wanted was 2") != std::string::npos);
  }
  CHECK(hand.engine.state() == EngineState::failed);
}

TEST_CASE("no answer, and a job that does not form", "[engine][join]") {
  Hand hand;
  hand.engine.join(0, second);
  SECTION("silence") {
    hand.run_for(1100 * millisecond);
    CHECK(hand.engine.join_error().code == ErrorCode::switch_gone);
  }
  SECTION("forming") {
    hand.reply(hand.sent()[0], forming(2));
    const auto sent = hand.run_for(1100 * millisecond);
    CHECK(hand.engine.join_error().code == ErrorCode::timed_out);
    CHECK(hand.engine.join_error().text.find("2 of 4") != std::string::npos);
    CHECK(requests(sent, wire::Action::leave).size() == 1);  // its place is given back
  }
  CHECK(hand.engine.state() == EngineState::failed);
}

TEST_CASE("replies that answer nothing are ignored", "[engine][join]") {
  Hand hand;
  hand.engine.join(0, 10 * second);
  const auto sent = hand.sent();
  const auto with = [&](auto change) {
    wire::ControlHeader header{.action = wire::Action::join,
                               .job = 7,
                               .member = 1,
                               .request_id = sent[0].header.round,
                               .nonce = sent[0].header.set};
    change(header);
    hand.receive(wire::write_reply(header, hand.job, hand.client()));
    CHECK(hand.engine.state() == EngineState::joining);
  };
  with([](auto& header) { header.nonce += 1; });
  with([](auto& header) { header.request_id += 1; });
  with([](auto& header) { header.action = wire::Action::ping; });
  with([](auto& header) { header.job = 8; });
  auto forged = wire::write_reply({.action = wire::Action::join,
                                   .job = 7,
                                   .member = 1,
                                   .request_id = sent[0].header.round,
                                   .nonce = sent[0].header.set},
                                  hand.job, hand.client());
  forged.bytes[forged.size - 1] = 1;  // not the sixteen zeros of a job without a key
  hand.receive(forged);
  CHECK(hand.engine.state() == EngineState::joining);
}

TEST_CASE("keys: a right tag is needed, and a switch with another key is recognised",
          "[engine][join]") {
  EngineOptions options = Hand::default_options();
  options.key.assign(32, 0x5A);
  Hand hand(options);
  hand.engine.join(0, 10 * second);
  auto sent = hand.sent();
  const std::vector<std::uint8_t> other_key(32, 0x11);
  const auto refuse = [&](const SentDatagram& join, wire::Status status, wire::Key key) {
    wire::ReplyBody body;
    body.status = status;
    hand.receive(wire::write_reply({.action = wire::Action::join,
                                    .job = 7,
                                    .member = wire::no_member,
                                    .request_id = join.header.round,
                                    .nonce = join.header.set},
                                   body, {key, options.own_ip, options.own_port}));
  };
  SECTION("right") {
    hand.reply(sent[0], hand.job);
    CHECK(hand.engine.state() == EngineState::running);
  }
  SECTION("an acceptance without the key is worth nothing") {
    hand.receive(wire::write_reply({.action = wire::Action::join,
                                    .job = 7,
                                    .member = 1,
                                    .request_id = sent[0].header.round,
                                    .nonce = sent[0].header.set},
                                   hand.job, {other_key, options.own_ip, options.own_port}));
    CHECK(hand.engine.state() == EngineState::joining);
  }
  SECTION("insisting on a bad tag") {
    for (int i = 0; i < 3; ++i) {
      CHECK(hand.engine.state() == EngineState::joining);
      refuse(sent.back(), wire::Status::bad_tag, other_key);
      if (i < 2) {
        sent = hand.run_for(100 * millisecond);
        REQUIRE(!sent.empty());
      }
    }
    CHECK(hand.engine.state() == EngineState::failed);
    CHECK(hand.engine.join_error().status == wire::Status::bad_tag);
  }
  SECTION("no such job, told without a key") {
    refuse(sent[0], wire::Status::no_such_job, {});
    hand.run_for(11 * second);
    CHECK(hand.engine.join_error().status == wire::Status::no_such_job);
  }
}

TEST_CASE("nonces grow, and a quiet member Pings", "[engine][join]") {
  Hand hand;
  hand.join();
  const auto sent = hand.run_for(5500 * millisecond);
  REQUIRE(sent.size() == 5);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    CHECK(sent[i].is(wire::Action::ping));
    CHECK(sent[i].header.member == 1);
    if (i != 0) CHECK(sent[i].header.set > sent[i - 1].header.set);
  }
  // Microseconds since 1970, from what the driver said.
  CHECK(sent.back().header.set == hand.options.start_unix_microseconds + 5'000'000);
}

TEST_CASE("requests of a member are made one at a time", "[engine][join]") {
  Hand hand;
  hand.join();
  hand.engine.request_threshold(3, hand.now);
  hand.engine.request_halt(true, hand.now);
  hand.engine.request_force(4, 105, hand.now);
  auto sent = hand.run_for(50 * millisecond);
  REQUIRE(sent.size() == 2);  // repeated
  REQUIRE(sent[0].is(wire::Action::set_threshold));
  CHECK(wire::read_set_threshold(sent[0].body()) == 3);
  CHECK(sent[1].bytes == sent[0].bytes);
  hand.reply(sent[0], wire::Status::ok);
  sent = hand.sent();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].is(wire::Action::halt));
  hand.reply(sent[0], wire::Status::bad_value);
  sent = hand.sent();
  REQUIRE(sent.size() == 1);
  REQUIRE(sent[0].is(wire::Action::force_broadcast));
  CHECK(wire::read_slot(sent[0].body()).segment == 4);
  CHECK(wire::read_slot(sent[0].body()).round == 105);
}

TEST_CASE("a Reset is asked for once, until the job has been Reset", "[engine][join]") {
  Hand hand;
  hand.join();
  for (int i = 0; i < 3; ++i) hand.engine.request_reset(hand.now);
  const auto first = requests(hand.sent(), wire::Action::reset);
  REQUIRE(first.size() == 1);
  hand.engine.request_reset(hand.now);
  SECTION("another member's came first") {
    hand.request_reset(200);
    CHECK(requests(hand.run_for(second), wire::Action::reset).empty());
  }
  SECTION("answered: the next one is another") {
    hand.reply(first[0], wire::Status::ok);
    CHECK(requests(hand.run_for(second), wire::Action::reset).empty());
    hand.engine.request_reset(hand.now);
    CHECK(requests(hand.sent(), wire::Action::reset).size() == 1);
  }
  SECTION("one that waits for its turn is not needed any more either") {
    hand.reply(first[0], wire::Status::ok);
    hand.engine.request_threshold(3, hand.now);
    REQUIRE(requests(hand.sent(), wire::Action::set_threshold).size() == 1);
    hand.engine.request_reset(hand.now);
    hand.engine.request_halt(true, hand.now);
    hand.request_reset(200);
    hand.reply(requests(hand.run_for(second), wire::Action::set_threshold).at(0), wire::Status::ok);
    const auto sent = hand.sent();
    CHECK(requests(sent, wire::Action::reset).empty());
    CHECK(requests(sent, wire::Action::halt).size() == 1);
  }
}

TEST_CASE("leaving", "[engine][join]") {
  Hand hand;
  SECTION("as a member") {
    hand.join();
    std::vector<float> vector = counted(8);
    hand.sum(vector, vector);
    hand.sent();
    hand.engine.leave(hand.now, hand.now + 500 * millisecond);
    CHECK(hand.completion().error.code == ErrorCode::closed);
    SECTION("answered") {
      const auto sent = hand.run_for(30 * millisecond);
      REQUIRE(sent.size() == 2);
      REQUIRE(sent[0].is(wire::Action::leave));
      CHECK(sent[0].header.member == 1);
      hand.reply(sent[0], wire::Status::ok);
    }
    SECTION("never answered") { hand.run_for(600 * millisecond); }
  }
  SECTION("before being one") {
    hand.engine.join(0, second);
    hand.sent();
    hand.engine.leave(hand.now, hand.now + second);
  }
  CHECK(hand.engine.state() == EngineState::left);
  CHECK(hand.engine.next_deadline() == never);
  CHECK(hand.run_for(3 * second).empty());
  hand.barrier();
  CHECK(hand.completion().error.code == ErrorCode::closed);
}
