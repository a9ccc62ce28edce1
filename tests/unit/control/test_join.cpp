// Join: every rule of protocol.md section 6, one by one.
#include <catch2/catch.hpp>

#include "tests/unit/control/harness.h"
#include "wire/serial.h"

using namespace control_test;

TEST_CASE("a job forms until its expected members have joined, then runs", "[control][join]") {
  Bench bench({job_config(1, 3)}, 2);
  Client a = client(0);
  Client b = client(1);
  Client c = client(2);
  const auto first = bench.join(a);
  REQUIRE(first);
  CHECK(first->status() == Status::ok);
  CHECK(first->state() == JobState::forming);
  CHECK(first->body_member() == 0);
  CHECK(first->member == 0);
  CHECK(first->members_now() == 1);
  CHECK(first->members_expected() == 3);
  CHECK(orders_of<datapath::Start>(bench.datapath).empty());
  CHECK(bench.join(b)->body_member() == 1);
  const auto last = bench.join(c);
  REQUIRE(last);
  CHECK(last->state() == JobState::running);
  CHECK(last->body_member() == 2);
  CHECK(last->members_now() == 3);
  CHECK(last->threshold() == 3);
  CHECK(last->shards() == 2);
  CHECK(last->segment_bytes() == 1440);
  CHECK(last->slots() == 64);
  CHECK(last->history() == 1);
  CHECK(last->base_round() == first_base);
  CHECK(last->missing() == 0);
  for (std::uint16_t shard = 0; shard < 2; ++shard) {
    CHECK(bench.datapath.shard(shard).running);
    CHECK(bench.datapath.shard(shard).base == first_base);
    CHECK(bench.datapath.shard(shard).members.size() == 3);
  }
  // A joiner repeats its Join (the same nonce) until the reply says running.
  const wire::ControlHeader again{Action::join, 1, wire::no_member, a.request_id, a.nonce};
  bench.deliver(a, wire::write_join(again, join_body(a), a.as_client()));
  CHECK(bench.reply_to(a, again)->state() == JobState::running);
  CHECK(bench.control.counters().joins == 3);
}

TEST_CASE("the reply that says running waits for every shard", "[control][join]") {
  Bench bench({job_config(1, 1)}, 2);
  bench.answering = false;
  Client a = client(0);
  CHECK_FALSE(bench.join(a));
  while (bench.answer_one(0)) {
  }
  CHECK(bench.to(a).empty());
  const auto view = bench.view();
  CHECK(view.state == JobState::forming);
  while (bench.answer_one(1)) {
  }
  // The Start goes out when the row is there or with it; either way shard 0 has it to answer.
  while (bench.answer_one(0)) {
  }
  REQUIRE(bench.to(a).size() == 1);
  CHECK(bench.to(a).front().state() == JobState::running);
}

TEST_CASE("the first base_round is the config's, or 65536 a second since 1970", "[control][join]") {
  auto fixed = job_config(2, 1);
  fixed.base_round = 0xFFFF'FFFE;
  Bench bench({job_config(1, 1), fixed});
  Client a = client(0);
  Client b = client(0, 2);
  CHECK(bench.join(a)->base_round() == first_base);
  CHECK(bench.join(b)->base_round() == 0xFFFF'FFFE);
  // A reset over the wrap of rounds.
  CHECK(bench.reset(b)->base_round() == 0);
  bench.now += 10 * second + 250 * millisecond;  // the fraction counts as well
  const auto since_start = static_cast<std::uint64_t>((bench.now - start_time) / microsecond);
  std::string error = "not called";
  bench.control.add_job(job_config(3, 1), bench.now, bench.effects,
                        [&](const control::OperatorReply& reply) { error = reply.error; });
  bench.settle();
  CHECK(error.empty());
  Client c = client(0, 3);
  CHECK(bench.join(c)->base_round() ==
        first_base + static_cast<std::uint32_t>(since_start * 65536 / 1'000'000));
  CHECK(since_start >= 10'250'000);
}

TEST_CASE("what a Join is refused for", "[control][join]") {
  Bench bench({job_config(1, 2)});
  Client a = client(0);
  auto body = join_body(a);
  SECTION("unknown job: status 1, zeros but the status") {
    a.job = 9;
    const auto reply = bench.join(a);
    REQUIRE(reply);
    CHECK(reply->status() == Status::no_such_job);
    std::vector<std::uint8_t> zeros(40, 0);
    zeros[1] = 1;
    CHECK(reply->body == zeros);
    CHECK(reply->tag == std::vector<std::uint8_t>(16, 0));
    CHECK(reply->job == 9);
  }
  SECTION("a data type that is not built: status 6") {
    for (const auto type :
         {wire::DataType::float16, wire::DataType::bfloat16, wire::DataType::int32}) {
      body.data_type = type;
      CHECK(bench.join(a, body)->status() == Status::unsupported);
    }
  }
  SECTION("another mode than the job's: status 6") {
    body.mode = wire::Mode::async;
    CHECK(bench.join(a, body)->status() == Status::unsupported);
  }
  SECTION("segments longer than it can take: status 6, and the reply says how long they are") {
    body.max_segment_bytes = 1439;
    const auto reply = bench.join(a, body);
    CHECK(reply->status() == Status::unsupported);
    CHECK(reply->segment_bytes() == 1440);
    CHECK(reply->body_member() == wire::no_member);
  }
  SECTION("a wanted id that is not below the expected members: status 5") {
    for (const MemberId wanted : {2, 63, 64, 0xFFFE})
      CHECK(bench.join(a, wanted)->status() == Status::bad_value);
  }
  SECTION("a child switch without shards, a worker with some, an unknown kind: status 5") {
    body.kind = wire::MemberKind::child_switch;
    CHECK(bench.join(a, body)->status() == Status::bad_value);
    body.kind = wire::MemberKind::worker;
    body.shards = 2;
    CHECK(bench.join(a, body)->status() == Status::bad_value);
    body.shards = 0;
    const auto header = a.next_header(Action::join);
    auto datagram = wire::write_join(header, body, a.as_client());
    datagram.bytes[22] = 7;
    bench.deliver(a, datagram);
    CHECK(bench.reply_to(a, header)->status() == Status::bad_value);
  }
  CHECK(bench.view().members.empty());
  CHECK(orders_of<datapath::PutMember>(bench.datapath).empty());
}

TEST_CASE("a full job is refused: status 3", "[control][join]") {
  Bench bench;
  bench.joined(2);
  Client c = client(2);
  CHECK(bench.join(c)->status() == Status::job_full);
  CHECK(bench.join(c, 1)->status() == Status::job_full);
  CHECK(bench.view().members.size() == 2);
  CHECK(bench.control.counters().refused[3] == 2);
}

TEST_CASE("a child switch is a direct member with its shards", "[control][join]") {
  Bench bench({job_config(1, 1)});
  Client a = client(0);
  auto body = join_body(a);
  body.kind = wire::MemberKind::child_switch;
  body.shards = 4;
  CHECK(bench.join(a, body)->status() == Status::ok);
  const auto row = bench.datapath.shard(0).members.at(0);
  CHECK(row.kind == wire::MemberKind::child_switch);
  CHECK(row.shards == 4);
}

TEST_CASE("any id: the lowest free one", "[control][join]") {
  Bench bench({job_config(1, 4)});
  Client a = client(0);
  Client b = client(1);
  Client c = client(2);
  Client d = client(3);
  CHECK(bench.join(a, 1)->body_member() == 1);
  CHECK(bench.join(b)->body_member() == 0);
  CHECK(bench.join(c)->body_member() == 2);
  CHECK(bench.join(d)->body_member() == 3);
}

TEST_CASE("the same place and incarnation: the same id, the MAC refreshed, no reset",
          "[control][join]") {
  Bench bench;
  auto members = bench.joined(2);
  const std::size_t before = bench.sent.size();
  members[1].endpoint.mac.bytes[5] = 0x77;
  const auto reply = bench.join(members[1], wire::no_member);
  REQUIRE(reply);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->body_member() == 1);
  CHECK(reply->base_round() == first_base);
  CHECK(reply->to.mac == members[1].endpoint.mac);
  CHECK(bench.datapath.shard(0).members.at(1).endpoint.mac == members[1].endpoint.mac);
  CHECK(bench.view().members[1].spec.endpoint.mac == members[1].endpoint.mac);
  CHECK(orders_of<datapath::Stop>(bench.datapath).empty());
  CHECK(bench.requests_to(members[0], before).empty());
  CHECK(bench.control.counters().joins == 2);
}

TEST_CASE("another incarnation from the same place replaces at once and resets",
          "[control][join]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.datapath.highest[0] = first_base + 41;
  members[1].incarnation = 999;
  const std::size_t before = bench.sent.size();
  const auto reply = bench.join(members[1]);
  REQUIRE(reply);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->body_member() == 1);
  CHECK(reply->state() == JobState::running);
  CHECK(reply->base_round() == first_base + 43);
  // The other is told by a Reset that carries the new base; the joiner by its reply alone.
  const auto told = bench.requests_to(members[0], before);
  REQUIRE(told.size() == 1);
  CHECK(told[0].action == Action::reset);
  CHECK(told[0].reset_base() == first_base + 43);
  CHECK(bench.requests_to(members[1], before).empty());
  CHECK(bench.control.counters().replacements == 1);
  CHECK(bench.control.counters().resets == 1);
  CHECK(bench.view().members[1].incarnation == 999);
}

TEST_CASE("a restarted process may want another id: it gives up its old one", "[control][join]") {
  Bench bench({job_config(1, 3)});
  auto members = bench.joined(3);
  bench.plain(members[2], Action::leave);
  members[0].incarnation = 999;
  SECTION("a free one") {
    CHECK(bench.join(members[0], 2)->body_member() == 2);
    CHECK(bench.view().members.size() == 2);
    CHECK(bench.datapath.shard(0).members.count(0) == 0);
    CHECK(bench.datapath.shard(0).members.count(2) == 1);
  }
  SECTION("one that is taken: refused, the old row stays") {
    CHECK(bench.join(members[0], 1)->status() == Status::job_full);
    CHECK(bench.view().members.size() == 2);
    CHECK(bench.view().members[0].incarnation == 100);
  }
}

TEST_CASE("a wanted id is taken over only from a member silent for longer than the timeout",
          "[control][join]") {
  Bench bench;
  auto members = bench.joined(2);
  const Time heard = bench.now;
  Client c = client(2);
  bench.now = heard + 5 * second;
  bench.control.heard(1, 1, bench.now - 1);  // member 1 speaks, member 0 does not
  CHECK(bench.join(c, 0)->status() == Status::job_full);
  bench.now = heard + 5 * second + 1;
  CHECK(bench.join(c, 1)->status() == Status::job_full);
  const auto reply = bench.join(c, 0);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->body_member() == 0);
  CHECK(reply->base_round() == first_base + 2);
  CHECK(bench.datapath.shard(0).members.at(0).endpoint == c.endpoint);
  // The one that lost its place is a stranger now.
  CHECK(bench.plain(members[0], Action::ping)->status() == Status::not_a_member);
}

TEST_CASE("where no place is free, any id takes one that has timed out", "[control][join]") {
  Bench bench({job_config(1, 3)});
  auto members = bench.joined(3);
  bench.now += 2 * second;
  bench.plain(members[0], Action::ping);
  bench.now += second;
  bench.plain(members[2], Action::ping);
  Client c = client(5);
  CHECK(bench.join(c)->status() == Status::job_full);
  bench.now += 3 * second;  // 1 silent for 6 s, 0 for 4 s, 2 for 3 s
  const auto reply = bench.join(c);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->body_member() == 1);
}

TEST_CASE("any request but a refused one counts as being heard", "[control][join]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.now += 4 * second;
  bench.plain(members[0], Action::ping);
  CHECK(bench.view().members[0].last_heard == bench.now);
  CHECK(bench.view().members[1].last_heard == start_time);
  bench.control.heard(1, 1, start_time + second);
  bench.control.heard(1, 1, start_time);  // late news
  CHECK(bench.view().members[1].last_heard == start_time + second);
  bench.control.heard(1, 200, bench.now);
  bench.control.heard(77, 0, bench.now);
}

TEST_CASE("a place freed by Leave or eviction is refilled with a reset", "[control][join]") {
  Bench bench({job_config(1, 3)});
  auto members = bench.joined(3);
  SECTION("after Leave") { bench.plain(members[1], Action::leave); }
  SECTION("after eviction") {
    bench.control.remove_member(1, 1, bench.now, bench.effects, {});
    bench.settle();
  }
  CHECK(bench.view().state == JobState::running);
  CHECK(bench.view().members.size() == 2);
  CHECK(bench.view().base_round == first_base);
  Client c = client(7);
  const std::size_t before = bench.sent.size();
  const auto reply = bench.join(c);
  CHECK(reply->body_member() == 1);
  CHECK(reply->base_round() == first_base + 2);
  for (const auto& other : {members[0], members[2]}) {
    const auto told = bench.requests_to(other, before);
    REQUIRE(told.size() == 1);
    CHECK(told[0].reset_base() == first_base + 2);
  }
}

TEST_CASE("an asynchronous job is not reset by a joiner", "[control][join]") {
  auto config = job_config(1, 2);
  config.mode = wire::Mode::async;
  Bench bench({config});
  Client a = client(0);
  Client b = client(1);
  auto body = join_body(a);
  body.mode = wire::Mode::async;
  bench.join(a, body);
  body.incarnation = b.incarnation;
  const auto running = bench.join(b, body);
  CHECK(running->state() == JobState::running);
  CHECK(running->history() == 8);
  body.incarnation = 999;
  const auto reply = bench.join(b, body);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->base_round() == first_base);
  CHECK(orders_of<datapath::Stop>(bench.datapath).empty());
  CHECK(bench.requests_to(a).empty());
}

TEST_CASE("two members behind one address, or one port number on two hosts, are two members",
          "[control][join]") {
  Bench bench({job_config(1, 4)});
  Client a = client(0);
  Client b = client(0);
  Client c = client(0);
  Client d = client(0);
  b.endpoint.udp_port++;
  c.endpoint.ip.value++;
  d.ingress++;
  CHECK(bench.join(a)->body_member() == 0);
  CHECK(bench.join(b)->body_member() == 1);
  CHECK(bench.join(c)->body_member() == 2);
  CHECK(bench.join(d)->body_member() == 3);
}

TEST_CASE("when all have left the job is forming again and starts with a newer base_round",
          "[control][join]") {
  Bench bench({job_config(1, 2)}, 2);
  auto members = bench.joined(2);
  bench.datapath.highest[1] = first_base + 10;
  bench.plain(members[0], Action::leave);
  CHECK(bench.view().state == JobState::running);
  bench.plain(members[1], Action::leave);
  CHECK(bench.view().state == JobState::forming);
  CHECK_FALSE(bench.datapath.shard(0).running);
  CHECK_FALSE(bench.datapath.shard(1).running);
  members[0].incarnation = 1;
  members[1].incarnation = 2;
  CHECK(bench.join(members[1])->state() == JobState::forming);
  const auto reply = bench.join(members[0]);
  CHECK(reply->state() == JobState::running);
  CHECK(reply->base_round() == first_base + 12);
}

TEST_CASE("a Join while a Start is under way starts once more with its row in place",
          "[control][join]") {
  Bench bench({job_config(1, 2)}, 2);
  auto members = bench.joined(2);
  bench.answering = false;
  bench.reset(members[0]);
  // Shard 0 has stopped and started, shard 1 has stopped: the Start is out.
  bench.answer_one(0);
  bench.answer_one(1);
  bench.answer_one(0);
  REQUIRE(bench.datapath.shard(0).running);
  members[1].incarnation = 999;
  CHECK_FALSE(bench.join(members[1]));
  bench.answer_all();
  for (std::uint16_t shard = 0; shard < 2; ++shard)
    CHECK(bench.datapath.shard(shard).put_at[1] < bench.datapath.shard(shard).started_at);
  CHECK(bench.view().base_round == first_base + 4);
}

TEST_CASE("an evicted joiner is not told that it is in", "[control][join]") {
  Bench bench({job_config(1, 1)});
  bench.answering = false;
  Client a = client(0);
  const auto header = a.next_header(Action::join);
  bench.deliver(a, wire::write_join(header, join_body(a), a.as_client()));
  bench.control.remove_member(1, 0, bench.now, bench.effects, {});
  bench.settle();
  bench.answer_all();
  REQUIRE(bench.reply_to(a, header));
  CHECK(bench.reply_to(a, header)->status() == Status::not_a_member);
  CHECK(bench.view().state == JobState::forming);
}

TEST_CASE("a repeated Join of somebody evicted since is answered: not a member",
          "[control][join]") {
  Bench bench({job_config(1, 2)});
  Client a = client(0);
  const auto header = a.next_header(Action::join);
  const auto datagram = wire::write_join(header, join_body(a), a.as_client());
  bench.deliver(a, datagram);
  CHECK(bench.reply_to(a, header)->status() == Status::ok);
  bench.control.remove_member(1, 0, bench.now, bench.effects, {});
  bench.settle();
  bench.deliver(a, datagram);
  CHECK(bench.reply_to(a, header)->status() == Status::not_a_member);
}

TEST_CASE("a job whose tables found no memory lets nobody in and says why", "[control][join]") {
  Bench bench({job_config(1, 1)}, 2, false);
  bench.datapath.memory = false;
  Client early = client(0);
  CHECK_FALSE(bench.join(early));
  bench.answering = true;
  bench.settle();
  CHECK(bench.to(early).front().status() == Status::unsupported);
  Client late = client(1);
  CHECK(bench.join(late)->status() == Status::unsupported);
  CHECK(bench.view().fault.find("no memory") != std::string::npos);
  CHECK(bench.view().members.empty());
  CHECK(orders_of<datapath::Start>(bench.datapath).empty());
}
