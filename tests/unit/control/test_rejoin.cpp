// Restart without loss, protocol.md section 9: who says what, whether the job goes on and where.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/control/parent.h"
#include "wire/serial.h"

using namespace control_test;
using Fresh = wire::Resumed::Fresh;
using Rig = ChildRig;

namespace {

constexpr Time ms = millisecond;
constexpr std::uint32_t origin = 777;

wire::RejoinBody rejoin_body(const Client& client, MemberId wanted, std::uint64_t position,
                             std::uint64_t end) {
  wire::RejoinBody body;
  body.join = join_body(client, wanted);
  body.origin = origin;
  body.newest = first_base + 50;
  body.slots = job_config().slots;
  body.segment_bytes = 1440;
  body.position = position;
  body.end = end;
  return body;
}

/// Asks as a member does: once without the switch's life, and again with it. The last reply.
std::optional<Sent> rejoin(Bench& bench, Client& from, wire::RejoinBody body) {
  std::optional<Sent> reply;
  for (int i = 0; i < 2; ++i) {
    const auto header = from.next_header(Action::rejoin);
    bench.deliver(from, wire::write_rejoin(header, body, from.as_client()));
    reply = bench.reply_to(from, header);
    if (!reply) return reply;
    const auto life = wire::decode_life(reply->missing());
    if (!life) break;
    body.life = *life;
  }
  if (reply->status() == Status::ok) from.id = reply->body_member();
  return reply;
}

struct Members {
  Client a = client(0), b = client(1);
  wire::RejoinBody first = rejoin_body(a, 0, 3000, 3010);
  wire::RejoinBody second = rejoin_body(b, 1, 3005, 3012);
};

wire::Resumed said(const std::optional<Sent>& reply) {
  REQUIRE(reply);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->state() == JobState::running);
  return wire::decode_resumed(reply->missing());
}

datapath::Start last_start(const Bench& bench) {
  const auto starts = orders_of<datapath::Start>(bench.datapath);
  REQUIRE_FALSE(starts.empty());
  return starts.back();
}

std::size_t told_lost(const Bench& bench, const Client& client) {
  const auto all = bench.to(client);
  return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const Sent& one) {
    return one.is_reply && one.request_id == 0 && one.status() == Status::not_a_member;
  }));
}

}  // namespace

TEST_CASE("all come back: the job goes on from the first position that somebody lacks",
          "[control][rejoin]") {
  Bench bench;
  Members m;
  const auto forming = rejoin(bench, m.a, m.first);
  REQUIRE(forming);
  CHECK(forming->action == Action::rejoin);
  CHECK(forming->status() == Status::ok);
  CHECK(forming->state() == JobState::forming);
  CHECK(forming->missing() == 0);
  CHECK(forming->body_member() == 0);
  m.second.newest = first_base + 70;
  const wire::Resumed on{Fresh::none, 3000, 12, {}};
  const auto running = rejoin(bench, m.b, m.second);
  CHECK(said(running) == on);
  CHECK(running->base_round() == first_base + 72);  // newer than what anybody has used
  CHECK(last_start(bench).base_round == first_base + 72);
  CHECK(last_start(bench).resumed == datapath::Resumption{3000, 3012});
  const auto stream = bench.view().stream;
  REQUIRE(stream);
  CHECK(stream->resumed == on);
  CHECK(stream->origin == origin);
  CHECK(stream->at == datapath::Resumption{3000, 3012});
  // The same incarnation again: the same answer, and nothing is done.
  const auto orders = bench.datapath.log.size();
  CHECK(said(rejoin(bench, m.a, m.first)) == on);
  CHECK(said(rejoin(bench, m.b, m.second)) == on);
  CHECK(bench.datapath.log.size() == orders);

  SECTION("after a Reset they are told that") {
    const auto reset = bench.reset(m.a);
    REQUIRE(reset);
    CHECK(said(rejoin(bench, m.b, m.second)).fresh == Fresh::reset);
    CHECK_FALSE(last_start(bench).resumed);
    // Back again, of the stream that has begun then.
    m.first.origin = m.second.origin = reset->base_round();
    ++m.a.incarnation;
    m.first.join.incarnation = m.a.incarnation;
    rejoin(bench, m.a, m.first);
    CHECK(bench.view().state == JobState::forming);
  }
  SECTION("the stream keeps its origin when it goes on once more") {
    for (Client* one : {&m.a, &m.b}) ++one->incarnation;
    m.first.join.incarnation = m.second.join.incarnation = m.a.incarnation;
    m.first.newest = m.second.newest = first_base + 80;
    rejoin(bench, m.a, m.first);
    CHECK(bench.view().state == JobState::forming);
    CHECK(told_lost(bench, m.b) == 1);
    CHECK(said(rejoin(bench, m.b, m.second)) == on);
    CHECK(bench.view().stream->origin == origin);
    CHECK(wire::serial_distance(bench.view().base_round, first_base + 80) >= 2);
  }
}

TEST_CASE("why a job starts afresh", "[control][rejoin]") {
  Bench bench;
  Members m;
  const auto outcome = [&] { return said(rejoin(bench, m.b, m.second)); };
  SECTION("1: somebody does not know the stream") {
    bench.join(m.a);
    CHECK(outcome() == wire::Resumed{Fresh::stranger, 0, 0, {}});
  }
  SECTION("2: they are of different streams") {
    m.first.origin = origin + 1;
    rejoin(bench, m.a, m.first);
    CHECK(outcome() == wire::Resumed{Fresh::other_origin, 0, 0, {}});
  }
  SECTION("3: they had other slots") {
    m.first.slots /= 2;
    rejoin(bench, m.a, m.first);
    CHECK(outcome() == wire::Resumed{Fresh::other_shape, 0, 0, {}});
  }
  SECTION("3: this switch has another segment size") {
    m.first.segment_bytes = m.second.segment_bytes = 1408;
    rejoin(bench, m.a, m.first);
    CHECK(outcome() == wire::Resumed{Fresh::other_shape, 0, 0, {}});
  }
  SECTION("4: they are further apart than what is kept") {
    m.second.end = 3000 + 65;
    rejoin(bench, m.a, m.first);
    CHECK(outcome() == wire::Resumed{Fresh::too_far_apart, 0, 65, {}});
  }
  SECTION("not 4: just not") {
    m.second.end = 3000 + 64;
    rejoin(bench, m.a, m.first);
    CHECK(outcome().goes_on());
    return;
  }
  CHECK_FALSE(last_start(bench).resumed);
  // Also then nothing that was used before is used again.
  CHECK(bench.view().base_round == first_base + 52);
  CHECK_FALSE(bench.view().stream->at);
}

TEST_CASE("5: a job that went on without a worker", "[control][rejoin]") {
  const wire::Mode mode = GENERATE(wire::Mode::sync, wire::Mode::async);
  JobConfig config = job_config();
  config.mode = mode;
  Bench bench({config});
  std::vector<Client> members{client(0), client(1)};
  for (Client& one : members) {
    wire::JoinBody body = join_body(one);
    body.mode = mode;
    CHECK(bench.join(one, body)->missing() == 0);
  }
  const std::uint32_t base = bench.view().base_round;
  bench.control.remove_member(1, 1, bench.now, bench.effects, {});
  bench.settle();
  ++members[1].incarnation;
  wire::RejoinBody body = rejoin_body(members[1], 1, 0, 0);
  body.join.mode = mode;
  body.origin = base;
  const wire::Resumed resumed = said(rejoin(bench, members[1], body));
  CHECK(resumed.fresh == Fresh::went_on);
  CHECK_FALSE(resumed.origin);  // it is base_round
  CHECK(bench.view().members.size() == 2);
  CHECK((bench.view().base_round == base) == (mode == wire::Mode::async));
}

TEST_CASE("who comes late to an asynchronous job that has gone on learns its origin",
          "[control][rejoin]") {
  JobConfig config = job_config();
  config.mode = wire::Mode::async;
  Bench bench({config});
  Members m;
  for (auto* body : {&m.first, &m.second}) {
    body->join.mode = wire::Mode::async;
    body->position = body->end = 0;
  }
  rejoin(bench, m.a, m.first);
  CHECK(said(rejoin(bench, m.b, m.second)) == wire::Resumed{Fresh::none, 0, 0, {}});
  CHECK(last_start(bench).resumed == datapath::Resumption{});
  ++m.b.incarnation;
  SECTION("by Join") {
    wire::JoinBody body = join_body(m.b);
    body.mode = wire::Mode::async;
    CHECK(wire::decode_resumed(bench.join(m.b, body)->missing()).origin == origin);
  }
  SECTION("by Rejoin, of another stream") {
    m.second.join.incarnation = m.b.incarnation;
    m.second.origin = 5;
    const wire::Resumed late = said(rejoin(bench, m.b, m.second));
    CHECK(late.fresh == Fresh::went_on);
    CHECK(late.origin == origin);
  }
  SECTION("a child switch that does not know it resets the job") {
    const std::uint32_t base = bench.view().base_round;
    wire::JoinBody body = join_body(m.b);
    body.mode = wire::Mode::async;
    body.kind = wire::MemberKind::child_switch;
    body.shards = 1;
    CHECK(bench.join(m.b, body)->missing() == 0);
    CHECK(bench.view().base_round != base);
  }
}

TEST_CASE("a Rejoin that names another life of the switch does nothing", "[control][rejoin]") {
  Bench bench;
  Members m;
  m.first.life = 1234;
  const auto header = m.a.next_header(Action::rejoin);
  bench.deliver(m.a, wire::write_rejoin(header, m.first, m.a.as_client()));
  const auto reply = bench.reply_to(m.a, header);
  REQUIRE(reply);
  CHECK(reply->status() == Status::ok);
  const auto life = wire::decode_life(reply->missing());
  REQUIRE(life);
  CHECK(bench.view().members.empty());
  // The same bytes again are answered the same.
  const auto before = bench.sent.size();
  bench.deliver(m.a, wire::write_rejoin(header, m.first, m.a.as_client()));
  REQUIRE(bench.sent.size() == before + 1);
  CHECK(wire::decode_life(bench.sent.back().missing()) == life);
  // Another start of the switch has another life.
  Bench other({job_config()}, 1);
  CHECK(bench.view().members.empty());
  rejoin(bench, m.a, m.first);
  CHECK(bench.view().members.size() == 1);
}

TEST_CASE("a Rejoin with values that nobody could mean is refused", "[control][rejoin]") {
  Bench bench;
  Members m;
  m.first.end = m.first.position - 1;
  CHECK(rejoin(bench, m.a, m.first)->status() == Status::bad_value);
  m.first.end = m.first.position;
  m.first.join.mode = wire::Mode::async;
  CHECK(rejoin(bench, m.a, m.first)->status() == Status::bad_value);
  m.first.position = m.first.end = 0;
  CHECK(rejoin(bench, m.a, m.first)->status() == Status::unsupported);
  CHECK(bench.view().members.empty());
}

TEST_CASE("a Join after a Rejoin of the same incarnation knows no stream", "[control][rejoin]") {
  Bench bench;
  Members m;
  rejoin(bench, m.a, m.first);
  bench.join(m.a, MemberId{0});
  CHECK(said(rejoin(bench, m.b, m.second)).fresh == Fresh::stranger);
}

// ---- forming again

TEST_CASE("a Rejoin to a job that runs calls all members", "[control][rejoin]") {
  JobConfig config = job_config(1, 3);
  Bench bench({config});
  auto members = bench.joined(3);
  const std::uint32_t base = bench.view().base_round;
  wire::RejoinBody body = rejoin_body(members[2], 2, 5, 9);
  body.origin = base;
  body.newest = base + 9;
  const auto come_back = [&](unsigned n) {
    ++members[n].incarnation;
    wire::RejoinBody mine = body;
    mine.join.incarnation = members[n].incarnation;
    mine.join.wanted_member = static_cast<MemberId>(n);
    return rejoin(bench, members[n], mine);
  };
  const auto log = bench.datapath.log.size();
  CHECK(come_back(2)->state() == JobState::forming);
  // Nothing is summed without anybody: the slots go before the rows.
  std::size_t stopped = 0, dropped = 0;
  for (std::size_t i = log; i < bench.datapath.log.size(); ++i) {
    const auto& what = bench.datapath.log[i].what;
    if (std::holds_alternative<datapath::Stop>(what) && stopped == 0) stopped = i;
    if (std::holds_alternative<datapath::DropMember>(what) && dropped == 0) dropped = i;
  }
  CHECK(stopped != 0);
  CHECK(stopped < dropped);
  for (unsigned n : {0u, 1u}) {
    CHECK(told_lost(bench, members[n]) == 1);
    CHECK(bench.plain(members[n], Action::ping)->status() == Status::not_a_member);
  }
  CHECK(bench.view().members.size() == 1);
  CHECK_FALSE(bench.datapath.shard(0).running);
  CHECK(come_back(0)->state() == JobState::forming);
  CHECK(said(come_back(1)) == wire::Resumed{Fresh::none, 5, 4, {}});
  CHECK(bench.datapath.shard(0).running);
  CHECK(bench.datapath.shard(0).members.size() == 3);
  CHECK(wire::serial_distance(bench.view().base_round, base + 9) >= 2);
}

TEST_CASE("who of those that have no place may call all", "[control][rejoin]") {
  Bench bench;
  auto members = bench.joined(2);
  const std::uint32_t base = bench.view().base_round;
  bench.control.remove_member(1, 1, bench.now, bench.effects, {});
  bench.settle();
  Client other = client(1);
  other.nonce = 5000;
  ++other.incarnation;
  wire::RejoinBody body = rejoin_body(other, 1, 5, 9);
  SECTION("a child switch of the stream") {
    body.join.kind = wire::MemberKind::child_switch;
    body.join.shards = 1;
    body.origin = base;
    CHECK(rejoin(bench, other, body)->state() == JobState::forming);
    CHECK(told_lost(bench, members[0]) == 1);
  }
  SECTION("not one of another stream") {
    body.join.kind = wire::MemberKind::child_switch;
    body.join.shards = 1;
    body.origin = base - 1;
    CHECK(said(rejoin(bench, other, body)).fresh == Fresh::went_on);
    CHECK(told_lost(bench, members[0]) == 0);
  }
}

TEST_CASE("while the datapath starts, a member comes back once more", "[control][rejoin]") {
  Bench bench;
  Members m;
  rejoin(bench, m.a, m.first);
  bench.answering = false;
  rejoin(bench, m.b, m.second);
  m.second.life = 0;
  while (bench.answer_one(0))
    if (!orders_of<datapath::Start>(bench.datapath).empty()) break;
  ++m.a.incarnation;
  m.first.join.incarnation = m.a.incarnation;
  rejoin(bench, m.a, m.first);
  bench.answering = true;
  bench.answer_all();
  bench.settle();
  CHECK(bench.view().state == JobState::forming);
  CHECK_FALSE(bench.datapath.shard(0).running);
  ++m.b.incarnation;
  m.second.join.incarnation = m.b.incarnation;
  CHECK(said(rejoin(bench, m.b, m.second)).goes_on());
}

// ---- updates that are scattered

TEST_CASE("a Help for an update that members may have is passed on to them", "[control][rejoin]") {
  JobConfig config = job_config(1, 3);
  config.mode = wire::Mode::async;
  Bench bench({config});
  std::vector<Client> members{client(0), client(1), client(2)};
  for (Client& one : members) {
    wire::JoinBody body = join_body(one);
    body.mode = wire::Mode::async;
    bench.join(one, body);
  }
  bench.datapath.slots[{3, 9}] =
      GENERATE(datapath::SlotState::elsewhere, datapath::SlotState::with_members);
  const auto reply = bench.help(members[1], 3, 9);
  REQUIRE(reply);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->missing() == 0);
  CHECK(bench.requests_to(members[1]).empty());
  for (unsigned n : {0u, 2u}) {
    const auto asked = bench.requests_to(members[n]);
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].action == Action::help);
    CHECK(asked[0].slot_segment() == 3);
    CHECK(asked[0].slot_round() == 9);
  }
}

// ---- a child

namespace {

wire::RejoinBody child_member(const Client& client, MemberId wanted, std::uint64_t position,
                              std::uint64_t end) {
  wire::RejoinBody body = rejoin_body(client, wanted, position, end);
  body.slots = 64;
  return body;
}

/// What a Rejoin of the child's says, by its offsets.
wire::RejoinBody body_of(const Sent& sent) {
  const auto body = wire::read_rejoin(sent.body);
  REQUIRE(body);
  return *body;
}

/// A parent that answers a Rejoin by hand.
struct ChildStream : Rig {
  ChildStream() {
    parent.answers = false;
    parent.show_address();
    parent.row = Parent::Row{3, 0};
  }
  void all_back() {
    Members m;
    rejoin(bench, m.a, child_member(m.a, 0, 5'000'000'003, 5'000'000'010));
    rejoin(bench, m.b, child_member(m.b, 1, 5'000'000'007, 5'000'000'020));
    members = {m.a, m.b};
  }
  /// The last Rejoin; answered with `missing`.
  Sent last() const {
    const auto all = parent.got(Action::rejoin);
    REQUIRE_FALSE(all.empty());
    return all.back();
  }
  void answer(std::uint64_t missing, JobState state = JobState::running) {
    wire::ReplyBody body = parent.describe();
    body.state = state;
    body.missing = missing;
    parent.reply(last(), Status::ok, body);
  }
};

}  // namespace

TEST_CASE("child: its members are back: it says what all of them have", "[control][rejoin]") {
  ChildStream rig;
  rig.all_back();
  CHECK(rig.parent.got(Action::join).empty());
  const wire::RejoinBody said_up = body_of(rig.last());
  CHECK(said_up.join.kind == wire::MemberKind::child_switch);
  CHECK(said_up.origin == origin);
  CHECK(said_up.newest == first_base + 50);
  CHECK(said_up.slots == 64);
  CHECK(said_up.segment_bytes == 1440);
  CHECK(said_up.position == 5'000'000'003);
  CHECK(said_up.end == 5'000'000'020);
  CHECK(said_up.life == 0);
  rig.answer(wire::encode_life(0xABCD), JobState::forming);
  CHECK(body_of(rig.last()).life == 0xABCD);
  CHECK(body_of(rig.last()).join.incarnation == said_up.join.incarnation);

  SECTION("the stream goes on from before what any of them lacks") {
    const std::uint64_t first = 4'999'999'990;
    const wire::Resumed on{Fresh::none, static_cast<std::uint32_t>(first), 40, {}};
    rig.answer(wire::encode_resumed(on));
    CHECK(rig.bench.view().state == JobState::running);
    CHECK(last_start(rig.bench).resumed == datapath::Resumption{first, first + 40});
    CHECK(last_start(rig.bench).base_round == parent_base);
    CHECK(rig.bench.view().stream->origin == origin);
    for (Client& one : rig.members) {
      const auto reply =
          rejoin(rig.bench, one, child_member(one, one.id, 5'000'000'007, 5'000'000'020));
      CHECK(said(reply) == on);
    }
  }
  SECTION("it starts afresh, and why is passed on") {
    rig.answer(wire::encode_resumed({Fresh::too_far_apart, 0, 77, {}}));
    CHECK_FALSE(last_start(rig.bench).resumed);
    const auto reply = rejoin(rig.bench, rig.members[0], child_member(rig.members[0], 0, 1, 1));
    CHECK(said(reply) == wire::Resumed{Fresh::too_far_apart, 0, 77, {}});
  }
  SECTION("the parent forms yet, and is asked again when a Ping says that it runs") {
    rig.answer(0, JobState::forming);
    CHECK(rig.bench.view().state == JobState::forming);
    const auto before = rig.parent.got(Action::rejoin).size();
    rig.parent.state = JobState::running;
    rig.bench.at(rig.bench.now + 300 * ms);
    REQUIRE_FALSE(rig.parent.got(Action::ping).empty());
    rig.parent.reply(rig.parent.got(Action::ping).back(), Status::ok);
    CHECK(rig.bench.view().state == JobState::forming);
    CHECK(rig.parent.got(Action::rejoin).size() == before + 1);
    CHECK(body_of(rig.last()).join.incarnation == said_up.join.incarnation);
    rig.answer(wire::encode_resumed({Fresh::none, 705'032'707, 17, {}}));
    CHECK(rig.bench.view().state == JobState::running);
    CHECK(last_start(rig.bench).resumed->first == 5'000'000'003);
  }
  SECTION("a Reset came before it was heard") {
    rig.answer(wire::encode_resumed({Fresh::none, 705'032'707, 17, {}}));
    rig.parent.order_reset(parent_base + 10);
    CHECK(rig.bench.view().state == JobState::running);
    CHECK_FALSE(last_start(rig.bench).resumed);
    CHECK(said(rejoin(rig.bench, rig.members[1],
                      child_member(rig.members[1], 1, 5'000'000'007, 5'000'000'020)))
              .fresh == Fresh::reset);
  }
}

TEST_CASE("child: members that are not of one stream: it joins", "[control][rejoin]") {
  ChildStream rig;
  Members m;
  rejoin(rig.bench, m.a, child_member(m.a, 0, 3, 3));
  SECTION("one knows none") { rig.bench.join(m.b); }
  SECTION("another one") {
    auto other = child_member(m.b, 1, 3, 3);
    other.origin = 5;
    rejoin(rig.bench, m.b, other);
  }
  CHECK(rig.parent.got(Action::rejoin).empty());
  rig.parent.row.reset();
  rig.parent.answers = true;
  rig.parent.pass(500 * ms);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK_FALSE(said(rejoin(rig.bench, m.a, child_member(m.a, 0, 3, 3))).goes_on());
}

TEST_CASE("child: a parent that knows no Rejoin is joined", "[control][rejoin]") {
  ChildStream rig;
  rig.all_back();
  rig.parent.row.reset();
  // It drops Rejoins as malformed, and answers Pings.
  std::size_t answered = 0;
  for (int i = 0; i < 60 && rig.parent.got(Action::join).empty(); ++i) {
    rig.bench.at(rig.bench.now + 100 * ms);
    const auto pings = rig.parent.got(Action::ping);
    for (; answered < pings.size(); ++answered)
      rig.parent.reply(pings[answered], Status::not_a_member);
  }
  CHECK(rig.parent.got(Action::rejoin).size() >= 5);
  REQUIRE_FALSE(rig.parent.got(Action::join).empty());
  rig.parent.answer(rig.parent.got(Action::join).back());
  CHECK(rig.bench.view().state == JobState::running);
  CHECK_FALSE(last_start(rig.bench).resumed);
}

TEST_CASE("child: its place is lost: its members are called, and it comes back with them",
          "[control][rejoin]") {
  Rig rig;
  rig.run();
  const auto incarnation = rig.shard().parent->incarnation;
  const auto stops = rig.shard().stops;
  rig.parent.forget();
  rig.parent.pass(1500 * ms);
  CHECK(rig.bench.view().members.empty());
  CHECK(rig.shard().stops > stops);
  CHECK(rig.parent.leaves == 0);
  const auto joins = rig.parent.got(Action::join).size();
  for (unsigned n = 0; n < 2; ++n) {
    CHECK(told_lost(rig.bench, rig.members[n]) >= 1);
    ++rig.members[n].incarnation;
    rejoin(rig.bench, rig.members[n], child_member(rig.members[n], static_cast<MemberId>(n), 3, 5));
  }
  CHECK(rig.parent.got(Action::join).size() == joins);
  const auto rejoins = rig.parent.got(Action::rejoin);
  REQUIRE_FALSE(rejoins.empty());
  CHECK(body_of(rejoins.back()).join.incarnation != incarnation);
}

TEST_CASE("child: a member comes back while it runs: it gives up its place without a Leave",
          "[control][rejoin]") {
  Rig rig;
  rig.run();
  const auto base = rig.bench.view().base_round;
  for (unsigned n = 0; n < 2; ++n) {
    ++rig.members[n].incarnation;
    auto body = child_member(rig.members[n], static_cast<MemberId>(n), 3, 5);
    body.origin = base;
    rejoin(rig.bench, rig.members[n], body);
    if (n == 0) CHECK(rig.view().state == control::ParentView::State::idle);
  }
  CHECK(rig.parent.leaves == 0);
  const auto rejoins = rig.parent.got(Action::rejoin);
  REQUIRE_FALSE(rejoins.empty());
  CHECK(body_of(rejoins.back()).origin == base);
}

TEST_CASE("child: an end after which it comes back: members are told, the parent is not",
          "[control][rejoin]") {
  Rig rig;
  rig.run();
  const auto before = rig.bench.sent.size();
  rig.bench.control.pause_all(rig.bench.now, rig.bench.effects);
  rig.bench.settle();
  REQUIRE(rig.bench.sent.size() == before + 2);
  for (std::size_t i = before; i < rig.bench.sent.size(); ++i) {
    CHECK(rig.bench.sent[i].action == Action::leave);
    CHECK(rig.bench.sent[i].to.ip != parent_ip);
  }
  rig.bench.control.leave_all(rig.bench.now, rig.bench.effects);
  rig.bench.settle();
  CHECK(rig.bench.sent.size() == before + 2);
  CHECK(rig.bench.control.next_deadline() == never);
}

TEST_CASE("who comes back gets the id that it had", "[control][rejoin]") {
  Bench bench({job_config(1, 3)});
  Members m;
  Client any = client(2);
  SECTION("who comes back and wants any is given the last one") {
    CHECK(rejoin(bench, any, rejoin_body(any, wire::no_member, 3000, 3010))->body_member() == 2);
    CHECK(rejoin(bench, m.a, m.first)->body_member() == 0);
    CHECK(told_lost(bench, any) == 0);
  }
  SECTION("who joined and wanted any makes way") {
    CHECK(bench.join(any)->body_member() == 0);
    CHECK(rejoin(bench, m.a, m.first)->body_member() == 0);
    CHECK(told_lost(bench, any) == 1);
    CHECK(bench.plain(any, Action::ping)->status() == Status::not_a_member);
    CHECK(bench.view().members.size() == 1);
    CHECK(bench.join(any)->body_member() == 1);
  }
  SECTION("who wanted that very id does not") {
    CHECK(bench.join(any, MemberId{0})->body_member() == 0);
    CHECK(rejoin(bench, m.a, m.first)->status() == Status::job_full);
  }
}
