// A child job: what goes up to its parent, and what comes down.
#include <catch2/catch.hpp>

#include "tests/unit/control/parent.h"

using namespace control_test;
using control::ParentView;
using datapath::SlotState;
using Kind = datapath::Notice::Kind;

namespace {

constexpr Time ms = millisecond;

std::uint64_t operation(std::uint32_t segment, std::uint32_t round) {
  return std::uint64_t{segment} << 32 | round;
}

struct Outcome {
  int calls = 0;
  std::string error;
  control::OperatorDone done() {
    return [this](const control::OperatorReply& given) {
      ++calls;
      error = given.error;
    };
  }
};

wire::ControlDatagram plain(Client& from, Action action, wire::ControlHeader& header) {
  header = from.next_header(action);
  return wire::write_plain_request(header, from.as_client());
}

}  // namespace

// ---- Reset

TEST_CASE("a member's Reset goes up and is done when it comes down", "[control][child]") {
  ChildRig rig(job_config(), 2);
  rig.run();
  const auto header = rig.members[0].next_header(Action::reset);
  const auto datagram = wire::write_reset(header, 0, rig.members[0].as_client());
  rig.bench.deliver(rig.members[0], datagram);
  CHECK(rig.parent.got(Action::reset).size() == 1);
  CHECK(rig.parent.got(Action::reset)[0].reset_base() == 0);
  CHECK(rig.parent.got(Action::reset)[0].member == 3);
  CHECK_FALSE(rig.bench.reply_to(rig.members[0], header));
  CHECK(rig.shard().stops == 0);  // nothing is cleared before the root has said so
  rig.bench.deliver(rig.members[0], datagram);
  CHECK(rig.parent.got(Action::reset).size() == 1);
  rig.parent.pump();
  const auto reply = rig.bench.reply_to(rig.members[0], header);
  REQUIRE(reply);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->state() == JobState::running);
  CHECK(reply->base_round() == parent_base + 10);
  for (std::uint16_t shard = 0; shard < 2; ++shard) {
    CHECK(rig.bench.datapath.shard(shard).stops == 1);
    CHECK(rig.bench.datapath.shard(shard).base == parent_base + 10);
  }
  for (const auto& member : rig.members) {
    REQUIRE(rig.bench.requests_to(member).size() == 1);
    CHECK(rig.bench.requests_to(member)[0].reset_base() == parent_base + 10);
  }
  // The order that the parent passes on to all its members says nothing new.
  const auto answer = rig.parent.order_reset(parent_base + 10);
  REQUIRE(answer);
  CHECK(answer->status() == Status::ok);
  CHECK(rig.shard().stops == 1);
}

TEST_CASE("Resets of several members at once are one", "[control][child]") {
  ChildRig rig;
  rig.run();
  wire::ControlHeader headers[2];
  for (int i = 0; i < 2; ++i) {
    headers[i] = rig.members[i].next_header(Action::reset);
    rig.bench.deliver(rig.members[i], wire::write_reset(headers[i], 0, rig.members[i].as_client()));
  }
  rig.parent.pass(100 * ms);
  CHECK(rig.parent.resets == 1);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(rig.bench.reply_to(rig.members[i], headers[i]));
    CHECK(rig.bench.reply_to(rig.members[i], headers[i])->base_round() == parent_base + 10);
  }
}

TEST_CASE("a Reset of the parent's clears, starts, and is answered when that is done",
          "[control][child]") {
  ChildRig rig(job_config(), 2);
  rig.run();
  rig.bench.answering = false;
  const auto header = rig.parent.next_header(Action::reset);
  const auto datagram = wire::write_reset(header, parent_base + 6, rig.parent.client());
  CHECK_FALSE(rig.parent.deliver_order(header, datagram));
  CHECK_FALSE(rig.parent.deliver_order(header, datagram));  // being done
  CHECK(rig.bench.requests_to(rig.members[0]).empty());
  rig.bench.answer_all();
  rig.bench.answering = true;
  const auto replies = rig.parent.got();
  REQUIRE(replies.back().is_reply);
  CHECK(replies.back().action == Action::reset);
  CHECK(replies.back().status() == Status::ok);
  CHECK(replies.back().body_member() == 3);
  CHECK(replies.back().nonce == header.nonce);
  CHECK(rig.shard().base == parent_base + 6);
  CHECK(rig.shard().parent->member == 3);
  CHECK(rig.bench.requests_to(rig.members[1])[0].reset_base() == parent_base + 6);

  // Repeated it is answered again, and not done again.
  CHECK(rig.parent.deliver_order(header, datagram)->status() == Status::ok);
  CHECK(rig.shard().stops == 1);
  // Not newer: answered and not done.
  CHECK(rig.parent.order_reset(parent_base)->status() == Status::ok);
  CHECK(rig.shard().stops == 1);
  // An older nonce: replayed by somebody.
  CHECK(rig.parent.deliver_order(header, datagram)->status() == Status::replayed_nonce);
  auto forged = header;
  forged.nonce = 1;
  CHECK(rig.parent
            .deliver_order(forged, wire::write_reset(forged, parent_base + 50, rig.parent.client()))
            ->status() == Status::replayed_nonce);
  CHECK(rig.shard().stops == 1);
}

TEST_CASE("orders are taken from the parent alone, with its key, for jobs it was asked about",
          "[control][child]") {
  JobConfig config = job_config();
  config.key.assign(16, 0x5A);
  ChildRig rig(config);
  SECTION("before the Join was answered") {
    rig.parent.answers = false;
    rig.parent.show_address();
    rig.members_join();
    CHECK_FALSE(rig.parent.order_reset(parent_base + 6));
    CHECK_FALSE(rig.parent.order(Action::halt));
    CHECK_FALSE(rig.bench.view().state == JobState::halted);
    return;
  }
  rig.run();
  SECTION("another key") {
    rig.parent.key.assign(16, 0x77);
    CHECK_FALSE(rig.parent.order_reset(parent_base + 6));
    CHECK_FALSE(rig.parent.order(Action::halt));
    rig.parent.unasked(Status::halted);
  }
  SECTION("another ingress") {
    rig.parent.ingress = 2;
    rig.parent.order_reset(parent_base + 6);
    rig.parent.order(Action::halt);
    rig.parent.unasked(Status::halted);
  }
  SECTION("another address") {
    rig.parent.endpoint.ip = {0x0A4D0042};
    rig.parent.order_reset(parent_base + 6);
    rig.parent.order(Action::halt);
  }
  CHECK(rig.shard().stops == 0);
  CHECK_FALSE(rig.shard().halted);
  CHECK(rig.bench.view().state == JobState::running);
}

TEST_CASE("a Join into a running child job resets the whole job", "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.members[1].incarnation = 999;  // its process restarted
  const auto header = rig.members[1].next_header(Action::join);
  rig.bench.deliver(rig.members[1], wire::write_join(header, join_body(rig.members[1], 1),
                                                     rig.members[1].as_client()));
  CHECK(rig.parent.got(Action::reset).size() == 1);
  CHECK_FALSE(rig.bench.reply_to(rig.members[1], header));
  rig.parent.pump();
  const auto reply = rig.bench.reply_to(rig.members[1], header);
  REQUIRE(reply);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->state() == JobState::running);
  CHECK(reply->base_round() == parent_base + 10);
  CHECK(rig.bench.requests_to(rig.members[1]).empty());
  CHECK(rig.bench.requests_to(rig.members[0])[0].reset_base() == parent_base + 10);
  const auto& shard = rig.shard();
  CHECK(shard.put_at.at(1) < shard.started_at);
  CHECK(shard.members.at(1).incarnation == 999);
}

TEST_CASE("while the parent is away a Reset is owed to it", "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.parent.answers = false;
  rig.parent.pass(5 * second);
  REQUIRE(rig.view().state == ParentView::State::silent);
  SECTION("asked by a member") {
    const auto reply = rig.bench.reset(rig.members[0]);
    REQUIRE(reply);
    CHECK(reply->status() == Status::parent_not_ready);
    CHECK(reply->state() == JobState::forming);
  }
  SECTION("asked by the operator") {
    Outcome outcome;
    rig.bench.control.reset(1, rig.bench.now, rig.bench.effects, outcome.done());
    rig.bench.settle();
    CHECK(outcome.calls == 1);
    CHECK_THAT(outcome.error,
               Catch::Contains("job 1: not done: parent 10.77.0.253 does not answer since"));
  }
  SECTION("caused by a Join") {
    rig.members[1].incarnation = 999;
    const auto reply = rig.bench.join(rig.members[1], 1);
    REQUIRE(reply);
    CHECK(reply->status() == Status::ok);
    CHECK(reply->state() == JobState::forming);  // it starts with the others, after the Reset
  }
  CHECK(rig.parent.got(Action::reset).empty());
  rig.parent.answers = true;
  rig.parent.pass(1500 * ms);
  CHECK(rig.parent.resets == 1);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.shard().base == parent_base + 10);
  CHECK(rig.bench.join(rig.members[1], 1)->base_round() == parent_base + 10);
}

TEST_CASE("a Reset is not owed when the parent comes back in another life", "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.parent.answers = false;
  rig.parent.pass(5 * second);
  rig.bench.reset(rig.members[0]);
  rig.parent.forget();
  rig.parent.base += 500;
  rig.parent.answers = true;
  rig.parent.pass(2 * second);
  rig.members_come_back();
  CHECK(rig.parent.resets == 0);
  CHECK(rig.bench.view().state == JobState::running);
}

TEST_CASE("when the parent falls silent in the middle of a Reset the asker is told",
          "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.parent.answers = false;
  const auto header = rig.members[0].next_header(Action::reset);
  rig.bench.deliver(rig.members[0], wire::write_reset(header, 0, rig.members[0].as_client()));
  Outcome outcome;
  rig.bench.control.reset(1, rig.bench.now, rig.bench.effects, outcome.done());
  rig.bench.settle();
  rig.parent.pass(2 * second);
  CHECK_FALSE(rig.bench.reply_to(rig.members[0], header));
  CHECK(outcome.calls == 0);
  CHECK(rig.parent.got(Action::reset).size() > 3);
  rig.parent.pass(2 * second);
  REQUIRE(rig.bench.reply_to(rig.members[0], header));
  CHECK(rig.bench.reply_to(rig.members[0], header)->status() == Status::parent_not_ready);
  CHECK(outcome.calls == 1);
  rig.parent.answers = true;
  rig.parent.pass(1500 * ms);
  CHECK(rig.parent.resets >= 1);
  CHECK(rig.bench.view().base_round == rig.parent.base);
  CHECK(rig.bench.view().state == JobState::running);
}

// ---- Halt and Resume

TEST_CASE("Halt and Resume go up and are done when they come down", "[control][child]") {
  ChildRig rig;
  rig.run();
  for (const Action action : {Action::halt, Action::resume}) {
    const bool halted = action == Action::halt;
    wire::ControlHeader header;
    const auto datagram = plain(rig.members[0], action, header);
    rig.bench.deliver(rig.members[0], datagram);
    CHECK(rig.parent.got(action).size() == 1);
    CHECK(rig.shard().halted == !halted);
    CHECK_FALSE(rig.bench.reply_to(rig.members[0], header));
    rig.parent.pump();
    REQUIRE(rig.bench.reply_to(rig.members[0], header));
    CHECK(rig.bench.reply_to(rig.members[0], header)->status() == Status::ok);
    CHECK(rig.shard().halted == halted);
    const auto told = rig.bench.requests_to(rig.members[1]).back();
    CHECK(told.action == action);
    for (const auto& member : rig.members)
      rig.bench.member_reply(member, rig.bench.requests_to(member).back());
  }
}

TEST_CASE("the parent's Halt and Resume are passed on", "[control][child]") {
  ChildRig rig;
  rig.run();
  CHECK(rig.parent.order(Action::halt)->status() == Status::ok);
  CHECK(rig.shard().halted);
  CHECK(rig.bench.view().state == JobState::halted);
  for (const auto& member : rig.members)
    CHECK(rig.bench.requests_to(member).back().action == Action::halt);
  // A reply that was under way when it was halted does not end it.
  const auto pings = rig.parent.got(Action::ping);
  rig.parent.pass(1100 * ms);
  CHECK(rig.bench.view().state == JobState::halted);
  CHECK(rig.parent.order(Action::resume)->status() == Status::ok);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK_FALSE(rig.shard().halted);
}

TEST_CASE("a reply that an order has overtaken says nothing about the state", "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.parent.answers = false;
  rig.parent.pass(1 * second);
  const Sent ping = rig.parent.got(Action::ping).back();
  wire::ReplyBody old = rig.parent.describe();
  rig.bench.now += 10 * ms;
  rig.parent.order(Action::halt);
  rig.parent.reply(ping, Status::ok, old);
  CHECK(rig.bench.view().state == JobState::halted);
  CHECK(rig.shard().halted);
}

TEST_CASE("Halt with the parent away is refused, a halted job outlasts the absence",
          "[control][child]") {
  ChildRig rig;
  rig.run();
  SECTION("refused") {
    rig.parent.answers = false;
    rig.parent.pass(5 * second);
    CHECK(rig.bench.plain(rig.members[0], Action::halt)->status() == Status::parent_not_ready);
    Outcome outcome;
    rig.bench.control.halt(1, true, rig.bench.now, rig.bench.effects, outcome.done());
    rig.bench.settle();
    CHECK_THAT(outcome.error, Catch::Contains("does not answer"));
    rig.parent.answers = true;
    rig.parent.pass(1500 * ms);
    CHECK(rig.bench.view().state == JobState::running);
  }
  SECTION("outlasts") {
    rig.parent.order(Action::halt);
    rig.parent.answers = false;
    rig.parent.pass(5 * second);
    CHECK(rig.bench.view().state == JobState::forming);
    rig.parent.answers = true;
    rig.parent.pass(1500 * ms);
    CHECK(rig.bench.view().state == JobState::halted);
    CHECK(rig.shard().halted);
  }
}

TEST_CASE("what one member asks waits for what another asked; each is answered",
          "[control][child]") {
  ChildRig rig;
  rig.run();
  wire::ControlHeader halt, resume;
  const auto first = plain(rig.members[0], Action::halt, halt);
  const auto second_one = plain(rig.members[1], Action::resume, resume);
  rig.bench.deliver(rig.members[0], first);
  rig.bench.deliver(rig.members[1], second_one);
  CHECK(rig.parent.got(Action::halt).size() == 1);
  CHECK(rig.parent.got(Action::resume).empty());  // one request is outstanding at a time
  rig.parent.pass(100 * ms);
  CHECK(rig.bench.reply_to(rig.members[0], halt)->status() == Status::ok);
  CHECK(rig.bench.reply_to(rig.members[1], resume)->status() == Status::ok);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK_FALSE(rig.shard().halted);
  CHECK(rig.parent.state == JobState::running);
}

// ---- FBcast

TEST_CASE("FBcast of a sum that waits at the parent is passed up", "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.bench.datapath.slots[{4, 9}] = SlotState::waiting;
  rig.bench.datapath.slots[{5, 9}] = SlotState::open;
  CHECK(rig.bench.force(rig.members[0], 5, 9)->status() == Status::ok);
  CHECK(rig.parent.got(Action::force_broadcast).empty());
  const Status answer = GENERATE(Status::ok, Status::bad_value);
  rig.parent.statuses[Action::force_broadcast] = answer;
  const auto header = rig.members[0].next_header(Action::force_broadcast);
  rig.bench.deliver(rig.members[0],
                    wire::write_slot_request(header, {4, 9}, rig.members[0].as_client()));
  const auto up = rig.parent.got(Action::force_broadcast);
  REQUIRE(up.size() == 1);
  CHECK(up[0].slot_segment() == 4);
  CHECK(up[0].slot_round() == 9);
  rig.parent.pump();
  CHECK(rig.bench.reply_to(rig.members[0], header)->status() == answer);
  Outcome outcome;
  rig.bench.control.force(1, 4, 9, rig.bench.now, rig.bench.effects, outcome.done());
  rig.bench.settle();
  CHECK(outcome.calls == 0);
  rig.parent.pump();
  CHECK(outcome.calls == 1);
  CHECK(outcome.error.empty() == (answer == Status::ok));
}

// ---- Help

TEST_CASE("Help for what is neither kept nor open goes up, and its 7 comes back",
          "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.bench.datapath.slots[{1, 9}] = SlotState::kept;
  rig.bench.datapath.slots[{2, 9}] = SlotState::open;
  rig.bench.datapath.missing[{2, 9}] = 0b10;
  CHECK(rig.bench.help(rig.members[0], 1, 9)->status() == Status::ok);
  const auto open = rig.bench.help(rig.members[0], 2, 9);
  CHECK(open->missing() == 0b10);
  CHECK(rig.bench.requests_to(rig.members[1]).back().action == Action::help);
  CHECK(rig.parent.got(Action::help).empty());

  const SlotState state = GENERATE(SlotState::none, SlotState::waiting, SlotState::gone);
  const Status status = GENERATE(Status::ok, Status::gone);
  rig.bench.datapath.slots[{3, 9}] = state;
  rig.parent.statuses[Action::help] = status;
  const auto header = rig.members[0].next_header(Action::help);
  const auto datagram = wire::write_slot_request(header, {3, 9}, rig.members[0].as_client());
  rig.bench.deliver(rig.members[0], datagram);
  rig.bench.deliver(rig.members[0], datagram);
  const auto up = rig.parent.got(Action::help);
  REQUIRE(up.size() == 1);
  CHECK(up[0].slot_segment() == 3);
  CHECK(up[0].slot_round() == 9);
  CHECK_FALSE(rig.bench.reply_to(rig.members[0], header));
  rig.parent.pump();
  const auto reply = rig.bench.reply_to(rig.members[0], header);
  REQUIRE(reply);
  CHECK(reply->status() == status);
  CHECK(reply->missing() == (status == Status::gone ? operation(3, 9) : 0));
  // Only whoever asked is told: the others of a synchronous job may have the result.
  CHECK(rig.bench.to(rig.members[1]).back().status() != Status::gone);
}

TEST_CASE("a Help that the parent does not answer may be asked again", "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.parent.answers = false;
  const auto header = rig.members[0].next_header(Action::help);
  const auto datagram = wire::write_slot_request(header, {3, 9}, rig.members[0].as_client());
  rig.bench.deliver(rig.members[0], datagram);
  rig.parent.pass(1100 * ms);
  CHECK(rig.parent.got(Action::help).size() == 1);  // not repeated by the switch
  rig.bench.deliver(rig.members[0], datagram);
  CHECK(rig.parent.got(Action::help).size() == 2);
}

TEST_CASE("a stale contribution makes the child ask; gone is told when the parent says so",
          "[control][child]") {
  ChildRig rig;
  rig.run();
  const auto before = rig.bench.sent.size();
  rig.bench.notice(Kind::gone, rig.members[0], 3, 9);
  rig.bench.notice(Kind::gone, rig.members[0], 3, 9);
  rig.bench.notice(Kind::gone, rig.members[1], 3, 9);
  REQUIRE(rig.parent.got(Action::help, before).size() == 1);
  CHECK(rig.bench.to(rig.members[0], before).empty());
  SECTION("it has it") {
    rig.parent.pump();
    CHECK(rig.bench.to(rig.members[0], before).empty());
  }
  SECTION("gone there too") {
    rig.parent.statuses[Action::help] = Status::gone;
    rig.parent.pump();
    for (const auto& member : rig.members) {
      const auto told = rig.bench.to(member, before);
      REQUIRE(told.size() == 1);
      CHECK(told[0].status() == Status::gone);
      CHECK(told[0].missing() == operation(3, 9));
      CHECK(told[0].request_id == 0);
    }
  }
  SECTION("a flood of them is bounded") {
    for (std::uint32_t round = 10; round < 2000; ++round)
      rig.bench.notice(Kind::gone, rig.members[0], 3, round);
    CHECK(rig.parent.got(Action::help, before).size() == 256);
    rig.parent.answers = false;
    rig.parent.pass(1100 * ms);
    rig.bench.notice(Kind::gone, rig.members[0], 3, 9);
    CHECK(rig.parent.got(Action::help, before).size() == 257);
  }
}

TEST_CASE(
    "the parent's Help: members whose contribution is missing are asked, a waiting sum goes "
    "up again",
    "[control][child]") {
  ChildRig rig(job_config(), 2);
  rig.run();
  rig.bench.datapath.slots[{2, 9}] = SlotState::open;
  rig.bench.datapath.missing[{2, 9}] = 0b10;
  rig.bench.datapath.slots[{3, 9}] = SlotState::waiting;
  rig.bench.datapath.slots[{4, 9}] = SlotState::kept;
  rig.bench.datapath.slots[{5, 9}] = SlotState::gone;
  const auto asked = [&](std::uint32_t segment) {
    const auto before = rig.bench.sent.size();
    const auto answer = rig.parent.order_help(segment, 9);
    REQUIRE(answer);
    CHECK(answer->status() == Status::ok);
    const auto up = orders_of<datapath::SendUp>(rig.bench.datapath);
    REQUIRE_FALSE(up.empty());
    CHECK(up.back().segment == segment);
    CHECK(up.back().round == 9);
    std::vector<MemberId> ids;
    for (const auto& member : rig.members)
      for (const Sent& one : rig.bench.requests_to(member, before)) {
        CHECK(one.action == Action::help);
        CHECK(one.slot_segment() == segment);
        CHECK(one.slot_round() == 9);
        ids.push_back(member.id);
      }
    return ids;
  };
  CHECK(asked(2) == std::vector<MemberId>{1});
  CHECK(asked(3).empty());
  CHECK(asked(4).empty());
  CHECK(asked(5).empty());
  CHECK(asked(6) == std::vector<MemberId>{0, 1});  // nothing of it is here yet
  CHECK_FALSE(rig.parent.order_help(64, 9));       // no such slot
}

// ---- what the parent says unasked

TEST_CASE("a mismatch at the parent is everybody's, a gone result only where it is not here",
          "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.bench.datapath.slots[{4, 9}] = SlotState::kept;
  const auto before = rig.bench.sent.size();
  rig.parent.unasked(Status::mismatch, operation(2, 9));
  for (const auto& member : rig.members) {
    REQUIRE(rig.bench.to(member, before).size() == 1);
    CHECK(rig.bench.to(member, before)[0].status() == Status::mismatch);
    CHECK(rig.bench.to(member, before)[0].missing() == operation(2, 9));
  }
  const auto then = rig.bench.sent.size();
  rig.parent.unasked(Status::gone, operation(4, 9));
  CHECK(rig.bench.to(rig.members[0], then).empty());
  rig.parent.unasked(Status::gone, operation(5, 9));
  for (const auto& member : rig.members) {
    REQUIRE(rig.bench.to(member, then).size() == 1);
    CHECK(rig.bench.to(member, then)[0].status() == Status::gone);
    CHECK(rig.bench.to(member, then)[0].missing() == operation(5, 9));
  }
  // The same again, much later: somebody replays it.
  rig.bench.now += 2 * second;
  const auto said = rig.parent.unasked(Status::mismatch, operation(6, 9));
  rig.bench.now += 2 * second;
  const auto replayed = rig.bench.sent.size();
  rig.parent.deliver(said);
  CHECK(rig.bench.to(rig.members[0], replayed).empty());
  CHECK(rig.bench.control.counters().ignored == 1);
}

TEST_CASE("a newer base_round in whatever the parent says resets the members", "[control][child]") {
  ChildRig rig;
  rig.run();
  rig.parent.base = parent_base + 8;
  SECTION("unasked") { rig.parent.unasked(Status::ok); }
  SECTION("in the answer to a Ping") { rig.parent.pass(1100 * ms); }
  SECTION("in the answer to a Help") {
    rig.bench.help(rig.members[0], 3, 9);
    rig.parent.pump();
  }
  CHECK(rig.shard().base == parent_base + 8);
  CHECK(rig.bench.requests_to(rig.members[1])[0].reset_base() == parent_base + 8);
  // An older one is late news.
  rig.parent.base = parent_base;
  rig.parent.unasked(Status::ok);
  CHECK(rig.shard().base == parent_base + 8);
  CHECK(rig.shard().stops == 1);
}

TEST_CASE("not a member: the child makes sure, and joins again when its members have",
          "[control][child]") {
  ChildRig rig;
  rig.run();
  const auto incarnation = rig.shard().parent->incarnation;
  SECTION("about a contribution from before the last Join") {
    rig.bench.now += 500 * ms;
    rig.parent.unasked(Status::not_a_member);
    CHECK(rig.parent.got(Action::ping).size() == 1);
    rig.parent.pass(100 * ms);
    CHECK(rig.bench.view().state == JobState::running);
    CHECK(rig.parent.joins == 1);
  }
  SECTION("it was evicted there") {
    rig.parent.forget();
    rig.bench.now += 500 * ms;
    rig.parent.unasked(Status::not_a_member);
    rig.parent.pass(500 * ms);
    CHECK(rig.parent.joins == 1);
    rig.members_come_back();
    CHECK(rig.parent.joins == 2);
    CHECK(rig.shard().parent->incarnation != incarnation);
    CHECK(rig.bench.view().state == JobState::running);
    CHECK(rig.shard().base == rig.parent.base);
    CHECK(rig.parent.base == parent_base + 2);
    CHECK(rig.bench.join(rig.members[0])->base_round() == parent_base + 2);
  }
}

TEST_CASE("a parent that goes down says so, and is joined again when it is back",
          "[control][child]") {
  ChildRig rig;
  rig.run();
  CHECK(rig.parent.order(Action::leave)->status() == Status::ok);
  CHECK(rig.view().state == ParentView::State::idle);
  CHECK(rig.bench.view().state == JobState::forming);
  CHECK_FALSE(rig.shard().running);
  CHECK(rig.bench.plain(rig.members[0], Action::ping)->status() == Status::not_a_member);
  rig.parent.answers = false;
  rig.members_come_back();
  rig.parent.pass(5 * second);
  CHECK(rig.view().state == ParentView::State::silent);
  CHECK(rig.bench.plain(rig.members[0], Action::ping)->status() == Status::parent_not_ready);
  rig.parent.forget();
  rig.parent.answers = true;
  rig.parent.base += 1000;
  rig.parent.pass(1500 * ms);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.shard().base == rig.parent.base);
}

TEST_CASE("while its slots are cleared for one life of the parent's, another begins",
          "[control][child]") {
  ChildRig rig(job_config(), 2);
  rig.run();
  rig.bench.answering = false;
  rig.parent.order_reset(parent_base + 6);
  rig.bench.answer_one(0);
  rig.parent.order_reset(parent_base + 16);
  rig.bench.answer_all();
  rig.bench.answering = true;
  rig.bench.settle();
  rig.bench.answer_all();
  CHECK(rig.shard().base == parent_base + 16);
  CHECK(rig.bench.view().base_round == parent_base + 16);
  CHECK(rig.bench.view().state == JobState::running);
}

TEST_CASE("each job of a child has a link of its own", "[control][child]") {
  Bench bench({job_config(1), job_config(2)}, parent_config());
  Parent parent(bench);
  parent.show_address();
  std::vector<Client> ones, twos;
  for (unsigned i = 0; i < 2; ++i) {
    ones.push_back(client(i, 1));
    bench.join(ones.back());
  }
  parent.pass(100 * ms);
  CHECK(bench.view(1).state == JobState::running);
  CHECK(bench.view(2).state == JobState::forming);
  CHECK(bench.view(2).parent->state == ParentView::State::idle);
  for (const Sent& one : parent.got()) CHECK(one.job == 1);
}

TEST_CASE("a job added to a child, and one with no memory for its parent's tables",
          "[control][child]") {
  ChildRig rig;
  rig.run();
  Outcome added;
  rig.bench.control.add_job(job_config(2), rig.bench.now, rig.bench.effects, added.done());
  rig.bench.settle();
  CHECK(added.calls == 1);
  CHECK(added.error.empty());
  CHECK(rig.bench.view(2).parent);
  // Another shape, and the datapath has no room for it.
  rig.bench.datapath.memory = false;
  rig.parent.terms.slots = 32;
  rig.parent.base += 100;
  rig.parent.pass(2 * second);
  rig.members_come_back();
  CHECK_THAT(rig.bench.view(1).fault, Catch::Contains("no memory for 32 slots"));
  CHECK(rig.bench.view(1).state == JobState::forming);
  CHECK_FALSE(rig.parent.row);
}
