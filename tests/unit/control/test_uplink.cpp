// A child job's link to its parent: the address, the Join, the parameters, silence.
#include <catch2/catch.hpp>

#include "tests/unit/control/parent.h"

using namespace control_test;
using control::ParentView;

namespace {

constexpr Time ms = millisecond;

using Rig = ChildRig;

std::uint32_t word(const Sent& sent, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | sent.body.at(at + i);
  return value;
}

}  // namespace

TEST_CASE("the parent's MAC is asked for from the start, ever more slowly", "[control][uplink]") {
  Rig rig;
  Bench& bench = rig.bench;
  bench.at(start_time);
  REQUIRE(bench.arps.size() == 1);
  const auto& request = bench.arps[0];
  CHECK(request.port == parent_port);
  const std::vector<std::uint8_t> expected{
      0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2,    0,    0, 0,    0, 0xFE, 8, 6,  // Ethernet
      0,    1,    8,    0,    6,    4,    0,    1,                             // a request
      2,    0,    0,    0,    0,    0xFE, 0x0A, 0x4D, 0, 0xFE,                 // from
      0,    0,    0,    0,    0,    0,    0x0A, 0x4D, 0, 0xFD};                // for
  REQUIRE(request.bytes.size() >= 60);
  CHECK(std::vector<std::uint8_t>(request.bytes.begin(), request.bytes.begin() + 42) == expected);
  std::vector<Time> at;
  for (int i = 0; i < 7; ++i) {
    const Time due = bench.control.next_deadline();
    bench.at(due);
    at.push_back(due - start_time);
  }
  CHECK(at == std::vector<Time>{100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 5100 * ms,
                                7100 * ms});
  CHECK(bench.arps.size() == 8);
  CHECK(rig.view().state == ParentView::State::idle);
  rig.members_join();
  CHECK(rig.view().state == ParentView::State::resolving);
  CHECK_THAT(control::parent_text(rig.view(), bench.now + 12 * second),
             Catch::StartsWith("parent 10.77.0.253 does not answer ARP since 12 s"));
  CHECK(rig.parent.got().empty());
  rig.parent.show_address();
  CHECK(rig.parent.got(Action::join).size() == 1);
}

TEST_CASE("only the parent's answer on the parent's port counts, and it is refreshed",
          "[control][uplink]") {
  Rig rig;
  Bench& bench = rig.bench;
  rig.members_join();
  rig.parent.ingress = 1;
  rig.parent.show_address();
  CHECK_FALSE(rig.view().mac);
  rig.parent.ingress = parent_port;
  rig.parent.endpoint.ip = {0x0A4D0001};
  rig.parent.show_address();
  CHECK_FALSE(rig.view().mac);
  rig.parent.endpoint.ip = parent_ip;
  rig.parent.endpoint.mac = {{3, 0, 0, 0, 0, 1}};
  rig.parent.show_address();
  CHECK_FALSE(rig.view().mac);
  rig.parent.endpoint.mac = {{2, 0, 0, 0, 0, 0xFD}};
  rig.parent.show_address();
  REQUIRE(rig.view().mac == rig.parent.endpoint.mac);
  rig.parent.pass(100 * ms);
  REQUIRE(bench.view().state == JobState::running);

  // Half a minute later it is asked again; another MAC goes to the datapath.
  const auto asked = bench.arps.size();
  rig.parent.pass(29 * second, 500 * ms);
  CHECK(bench.arps.size() == asked);
  rig.parent.pass(2 * second, 500 * ms);
  CHECK(bench.arps.size() > asked);
  rig.parent.endpoint.mac = {{2, 0, 0, 0, 0, 0x77}};
  rig.parent.show_address();
  CHECK(rig.shard().parent->endpoint.mac == rig.parent.endpoint.mac);
  CHECK(bench.view().state == JobState::running);
  CHECK(rig.shard().stops == 0);
}

TEST_CASE("a MAC in the config is not asked for", "[control][uplink]") {
  auto config = parent_config();
  config.mac = wire::Mac{{2, 0, 0, 0, 0, 0xFD}};
  Bench bench({job_config()}, config);
  Parent parent(bench);
  for (unsigned i = 0; i < 2; ++i) {
    Client member = client(i);
    bench.join(member);
  }
  parent.pass(100 * ms);
  CHECK(bench.arps.empty());
  CHECK(bench.view().state == JobState::running);
}

TEST_CASE("the Join says what this switch is and can", "[control][uplink]") {
  Rig rig(job_config(), 2);
  rig.parent.show_address();
  CHECK(rig.parent.got().empty());  // not before the own members are there
  rig.members_join();
  const auto joins = rig.parent.got(Action::join);
  REQUIRE(joins.size() == 1);
  const Sent& join = joins[0];
  CHECK(join.to == rig.parent.endpoint);
  CHECK(join.port == parent_port);
  CHECK(join.member == wire::no_member);
  CHECK(join.request_id != 0);
  CHECK(join.nonce >= start_unix_seconds * 1'000'000);
  CHECK(join.body[0] == 1);  // a switch
  CHECK(join.body[1] == 0);
  CHECK(join.body[2] == 0);             // sync
  CHECK(word(join, 4) == 0xFFFF0002U);  // any id, two shards
  CHECK(word(join, 8) == 1440);
  rig.parent.pass(20 * ms);
  CHECK(rig.shard().parent->incarnation == word(join, 12));
  CHECK(rig.shard().parent->member == 3);
  CHECK(rig.shard().parent->endpoint == rig.parent.endpoint);
  CHECK(rig.shard().parent->port == parent_port);
  CHECK(rig.shard().parent->shards == 2);
  CHECK(rig.shard().base == parent_base);
  CHECK(rig.shard().spec.child);
  CHECK(rig.bench.view().base_round == parent_base);
}

TEST_CASE("a Join is repeated until answered, and its repetitions are the same",
          "[control][uplink]") {
  Rig rig;
  rig.parent.answers = false;
  rig.parent.show_address();
  rig.members_join();
  rig.parent.pass(4 * second);
  const auto joins = rig.parent.got(Action::join);
  CHECK(joins.size() == 8);  // after 0, 50, 150, 350, 750, 1550, 2550, 3550 ms
  for (const Sent& one : joins) CHECK(one.datagram == joins[0].datagram);
  CHECK(rig.view().state == ParentView::State::joining);
  CHECK_THAT(control::parent_text(rig.view(), rig.bench.now),
             Catch::Contains("does not answer the Join since 4 s"));
  // An answer to it that comes late does.
  rig.parent.row = Parent::Row{3, word(joins[0], 12)};
  rig.parent.reply(joins[0]);
  CHECK(rig.bench.view().state == JobState::running);
}

TEST_CASE("until the parent runs members are told that it is not ready", "[control][uplink]") {
  Rig rig;
  rig.parent.state = JobState::forming;
  rig.parent.show_address();
  rig.members_join();
  rig.parent.pass(2 * second);
  CHECK(rig.view().state == ParentView::State::forming);
  CHECK_FALSE(rig.shard().running);
  const auto ping = rig.bench.plain(rig.members[0], Action::ping);
  REQUIRE(ping);
  CHECK(ping->status() == Status::parent_not_ready);
  CHECK(ping->state() == JobState::forming);
  const auto join = rig.bench.join(rig.members[0], 0);
  CHECK(join->status() == Status::ok);
  CHECK(join->state() == JobState::forming);
  const auto before = rig.bench.sent.size();
  rig.bench.notice(datapath::Notice::Kind::not_running, rig.members[1]);
  REQUIRE(rig.bench.to(rig.members[1], before).size() == 1);
  CHECK(rig.bench.to(rig.members[1], before)[0].status() == Status::parent_not_ready);

  rig.parent.state = JobState::running;
  rig.parent.base = 77;
  rig.parent.pass(300 * ms);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.shard().base == 77);
  CHECK(rig.bench.plain(rig.members[0], Action::ping)->status() == Status::ok);
  // They learn the base_round as at a root: from the Join that they repeat, not from a Reset.
  CHECK(rig.bench.requests_to(rig.members[0]).empty());
  CHECK(rig.bench.join(rig.members[0], 0)->base_round() == 77);
}

TEST_CASE("a parent that is halted is halted here", "[control][uplink]") {
  Rig rig;
  rig.parent.state = JobState::halted;
  rig.parent.show_address();
  rig.members_join();
  rig.parent.pass(100 * ms);
  CHECK(rig.bench.view().state == JobState::halted);
  CHECK(rig.shard().halted);
  rig.parent.state = JobState::running;
  rig.parent.pass(1100 * ms);  // the next ping says so
  CHECK(rig.bench.view().state == JobState::running);
  CHECK_FALSE(rig.shard().halted);
}

TEST_CASE("the parent's parameters are taken where they fit", "[control][uplink]") {
  JobConfig config = job_config();
  config.slots = 100;
  config.segment_bytes = 1440;
  config.history = 4;
  config.threshold = 1;
  Rig rig(config, 2);
  rig.parent.terms.slots = 50;
  rig.parent.terms.segment_bytes = 512;
  rig.parent.terms.history = 8;  // 50 x 8 is what 100 x 4 was planned for
  rig.parent.terms.shards = 5;
  rig.run();
  for (std::uint16_t shard = 0; shard < 2; ++shard) {
    const auto& state = rig.bench.datapath.shard(shard);
    CHECK(state.spec.slots == 50);
    CHECK(state.spec.segment_bytes == 512);
    CHECK(state.spec.history == 8);
    CHECK(state.spec.child);
    CHECK(state.running);
    CHECK(state.members.size() == 2);
    CHECK(state.threshold == 1);
    CHECK(state.parent->shards == 5);
  }
  const auto reply = rig.bench.join(rig.members[0], 0);
  CHECK(reply->slots() == 50);
  CHECK(reply->segment_bytes() == 512);
  CHECK(reply->history() == 8);
  CHECK(reply->shards() == 2);
  CHECK(rig.bench.view().config.slots == 100);
  CHECK(rig.bench.view().spec.slots == 50);
}

TEST_CASE("a child keeps at least as many results as its config says", "[control][uplink]") {
  JobConfig config = job_config();
  config.history = 4;
  Rig rig(config);
  rig.run();
  CHECK(rig.shard().spec.history == 4);
  CHECK(orders_of<datapath::Install>(rig.bench.datapath).size() == 1);
}

TEST_CASE("what does not fit is refused in one line, and asked about again", "[control][uplink]") {
  JobConfig config = job_config();
  Rig rig(config);
  rig.parent.show_address();
  std::string expected;
  SECTION("slots") {
    rig.parent.terms.slots = 65;
    expected =
        "job 1: the parent 10.77.0.253 has slots 65, memory here is planned for 64; raise "
        "slots of this job here or lower it there";
  }
  SECTION("segment_bytes") {
    rig.parent.terms.segment_bytes = 8928;
    expected = "has segment_bytes 8928, memory here is planned for 1440; raise segment_bytes";
  }
  SECTION("history") {
    rig.parent.terms.history = 2;
    expected = "has history 2, memory here is planned for 1; raise history";
  }
  SECTION("mode") {
    rig.parent.terms.mode = wire::Mode::async;
    expected = "has it in mode async, this switch in mode sync; set the same mode in both configs";
  }
  SECTION("nonsense") {
    rig.parent.terms.shards = 0;
    expected = "has shards 0, which no job can have";
  }
  rig.members_join();
  rig.parent.pass(500 * ms);
  const auto joins = rig.parent.joins;
  CHECK(rig.view().state == ParentView::State::refused);
  CHECK_THAT(rig.view().fault, Catch::Contains(expected));
  CHECK(rig.bench.view().fault == rig.view().fault);
  CHECK(rig.view().fault.find('\n') == std::string::npos);
  CHECK(rig.bench.view().state == JobState::forming);
  CHECK(rig.parent.leaves == 1);  // others must not wait for it
  CHECK_FALSE(rig.shard().running);

  // It asks without joining: a Join would reset the others each time.
  rig.parent.pass(10 * second);
  CHECK(rig.parent.joins == joins);
  CHECK(rig.view().state == ParentView::State::refused);
  rig.parent.terms = {};
  rig.parent.terms.slots = 64;
  rig.parent.terms.segment_bytes = 1440;
  rig.parent.terms.shards = 1;
  rig.parent.terms.history = 1;
  rig.parent.pass(3 * second);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.view().fault.empty());
}

TEST_CASE("a refused Join says why and is made again", "[control][uplink]") {
  Rig rig;
  rig.parent.show_address();
  std::string expected;
  SECTION("no such job") {
    rig.parent.knows_job = false;
    expected = "job 1: the parent 10.77.0.253 has no such job; add it there or remove it here";
  }
  SECTION("job full") {
    rig.parent.statuses[Action::join] = Status::job_full;
    expected = "has all 2 members of it; raise members of the job there";
  }
  SECTION("too small") {
    rig.parent.statuses[Action::join] = Status::unsupported;
    rig.parent.terms.segment_bytes = 8928;
    expected = "has segment_bytes 8928, memory here is planned for 1440";
  }
  SECTION("bad value") {
    rig.parent.statuses[Action::join] = Status::bad_value;
    expected = "refuses the Join: bad value";
  }
  rig.members_join();
  rig.parent.pass(10 * second);
  CHECK(rig.view().state == ParentView::State::joining);
  CHECK_THAT(rig.view().fault, Catch::Contains(expected));
  const auto joins = rig.parent.got(Action::join);
  CHECK(joins.size() >= 5);
  CHECK(joins.size() <= 10);  // with pauses of up to two seconds
  for (std::size_t i = 1; i < joins.size(); ++i) CHECK(joins[i].nonce > joins[i - 1].nonce);
  rig.parent.knows_job = true;
  rig.parent.statuses.clear();
  rig.parent.terms.segment_bytes = 1440;
  rig.parent.pass(3 * second);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.view().fault.empty());
}

TEST_CASE("with a key every request is signed and another key is named", "[control][uplink]") {
  JobConfig config = job_config();
  config.key.assign(16, 0x5A);
  Rig rig(config);
  rig.parent.show_address();
  SECTION("the same") {
    rig.members_join();
    rig.parent.pass(3 * second);
    CHECK(rig.bench.view().state == JobState::running);
    for (const Sent& one : rig.parent.got())
      CHECK(wire::tag_is_right(config.key, one.datagram, switch_address().rules.ip, 17170));
  }
  SECTION("another") {
    rig.members_join();
    rig.parent.key.assign(16, 0x77);
    rig.parent.statuses[Action::join] = Status::bad_tag;
    rig.parent.pass(3 * second);
    CHECK_THAT(rig.view().fault,
               Catch::Contains("bad tag: the parent 10.77.0.253 has another key for job 1"));
    CHECK(rig.bench.view().state == JobState::forming);
    // Said by somebody without the key it is a hint, and no more: an answer with it is believed.
    rig.parent.key = config.key;
    rig.parent.statuses.clear();
    rig.parent.pass(2 * second);
    CHECK(rig.bench.view().state == JobState::running);
    CHECK(rig.view().fault.empty());
  }
  SECTION("a wrong tag makes nobody run") {
    rig.members_join();
    rig.parent.key.assign(16, 0x77);
    rig.parent.pass(3 * second);
    CHECK(rig.view().state == ParentView::State::joining);
    CHECK_FALSE(rig.shard().running);
  }
}

TEST_CASE("what comes from elsewhere than the parent is not believed", "[control][uplink]") {
  Rig rig;
  rig.parent.answers = false;
  rig.parent.show_address();
  rig.members_join();
  rig.parent.row = Parent::Row{3, 1};
  const Sent join = rig.parent.got(Action::join).front();
  SECTION("another port") { rig.parent.ingress = 2; }
  SECTION("another address") { rig.parent.endpoint.ip = {0x0A4D0099}; }
  SECTION("another UDP port") { rig.parent.endpoint.udp_port = 17171; }
  SECTION("another nonce") {
    Sent other = join;
    ++other.nonce;
    rig.parent.reply(other);
    CHECK(rig.view().state == ParentView::State::joining);
    return;
  }
  rig.parent.reply(join);
  CHECK(rig.view().state == ParentView::State::joining);
}

TEST_CASE("a parent that remembers a later clock is reached all the same", "[control][uplink]") {
  Rig rig;
  rig.parent.show_address();
  rig.parent.answers = false;
  rig.members_join();
  const std::uint64_t remembered = start_unix_seconds * 1'000'000 + 3'600'000'000;  // an hour ahead
  for (int i = 0; i < 200 && rig.bench.view().state != JobState::running; ++i) {
    rig.bench.at(rig.bench.now + 50 * ms);
    const Sent last = rig.parent.got(Action::join).back();
    if (last.nonce > remembered) {
      rig.parent.answers = true;
      rig.parent.pump();
    } else {
      rig.parent.reply(last, Status::replayed_nonce);
    }
  }
  CHECK(rig.bench.view().state == JobState::running);
}

TEST_CASE("it is pinged each second, and its silence is noticed after three", "[control][uplink]") {
  Rig rig;
  rig.run();
  const auto pings = rig.parent.got(Action::ping).size();
  rig.parent.pass(10 * second);
  CHECK(rig.parent.got(Action::ping).size() - pings == 10);
  CHECK(rig.view().state == ParentView::State::running);

  rig.parent.answers = false;
  const Time last_word = rig.bench.now;
  rig.parent.pass(2 * second);
  CHECK(rig.bench.view().state == JobState::running);
  rig.parent.pass(10 * second);
  CHECK(rig.view().state == ParentView::State::silent);
  CHECK(rig.view().since <= last_word);
  CHECK(rig.view().since > last_word - second);
  CHECK_THAT(control::parent_text(rig.view(), rig.bench.now),
             Catch::Matches("parent 10.77.0.253 does not answer since 1[23] s"));
  CHECK(rig.bench.view().state == JobState::forming);
  CHECK(rig.shard().running);  // what is in the slots may be finished yet
  CHECK(rig.shard().halted);
  CHECK(rig.shard().stops == 0);
  CHECK(rig.bench.plain(rig.members[0], Action::ping)->status() == Status::parent_not_ready);

  SECTION("it comes back as it was: nothing is lost") {
    rig.parent.answers = true;
    rig.parent.pass(1100 * ms);
    CHECK(rig.bench.view().state == JobState::running);
    CHECK_FALSE(rig.shard().halted);
    CHECK(rig.shard().stops == 0);
    CHECK(rig.shard().base == parent_base);
    CHECK(rig.bench.requests_to(rig.members[0]).empty());
  }
  SECTION("it was reset meanwhile") {
    rig.parent.base = parent_base + 100;
    rig.parent.answers = true;
    rig.parent.pass(1100 * ms);
    CHECK(rig.bench.view().state == JobState::running);
    CHECK(rig.shard().base == parent_base + 100);
    REQUIRE(rig.bench.requests_to(rig.members[0]).size() >= 1);
    CHECK(rig.bench.requests_to(rig.members[0])[0].reset_base() == parent_base + 100);
  }
  SECTION("it restarted") {
    rig.parent.forget();
    rig.parent.base = parent_base + 100'000;
    rig.parent.next_id = 1;
    rig.parent.answers = true;
    const auto incarnation = rig.shard().parent->incarnation;
    rig.parent.pass(1500 * ms);
    rig.members_come_back();
    CHECK(rig.bench.view().state == JobState::running);
    CHECK(rig.shard().base == rig.parent.base);
    CHECK(rig.shard().parent->member == 1);
    CHECK(rig.shard().parent->incarnation != incarnation);
    CHECK(rig.bench.join(rig.members[1])->base_round() == rig.parent.base);
  }
  SECTION("it restarted with a clock behind: members cannot be told that by a Reset") {
    rig.parent.forget();
    rig.parent.base = 40;
    rig.parent.joins = 0;
    rig.parent.answers = true;
    rig.parent.pass(1500 * ms);
    CHECK(rig.bench.view().members.empty());
    CHECK(rig.bench.plain(rig.members[0], Action::ping)->status() == Status::not_a_member);
    CHECK(rig.parent.joins == 0);
    rig.members_come_back();
    CHECK(rig.bench.view().state == JobState::running);
    CHECK(rig.shard().base == rig.parent.base);
    CHECK(rig.bench.join(rig.members[0])->base_round() == rig.parent.base);
    CHECK(rig.parent.joins == 1);
    CHECK(rig.parent.leaves == 0);
  }
  SECTION("its job is gone") {
    rig.parent.knows_job = false;
    rig.parent.answers = true;
    rig.parent.pass(2 * second);
    CHECK_THAT(control::parent_text(rig.view(), rig.bench.now), Catch::Contains("no such job"));
    rig.parent.knows_job = true;
    rig.parent.forget();
    rig.parent.base += 100;
    rig.parent.pass(4 * second);
    rig.members_come_back();
    CHECK(rig.bench.view().state == JobState::running);
  }
}

TEST_CASE("a parent that forms again is not ready", "[control][uplink]") {
  Rig rig;
  rig.run();
  rig.parent.state = JobState::forming;
  rig.parent.pass(1100 * ms);
  CHECK(rig.view().state == ParentView::State::forming);
  CHECK(rig.bench.view().state == JobState::forming);
  CHECK(rig.shard().halted);
  rig.parent.state = JobState::running;
  rig.parent.pass(300 * ms);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.shard().stops == 0);
}

TEST_CASE("a job of another shape under the same number is joined anew", "[control][uplink]") {
  Rig rig;
  rig.run();
  rig.parent.terms.slots = 32;
  rig.parent.base += 1000;
  rig.parent.pass(2 * second);
  rig.members_come_back();
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.shard().spec.slots == 32);
  CHECK(rig.shard().members.size() == 2);
  CHECK(rig.shard().base == rig.parent.base);
}

TEST_CASE("a switch without members leaves its parent", "[control][uplink]") {
  Rig rig;
  rig.run();
  const auto incarnation = rig.shard().parent->incarnation;
  rig.parent.answers = false;
  rig.bench.plain(rig.members[0], Action::leave);
  CHECK(rig.parent.got(Action::leave).empty());
  rig.bench.plain(rig.members[1], Action::leave);
  rig.parent.pass(500 * ms);
  CHECK(rig.parent.got(Action::leave).size() >= 3);  // repeated until answered
  rig.parent.answers = true;
  rig.parent.pass(3 * second);
  CHECK(rig.parent.leaves == 1);
  CHECK(rig.view().state == ParentView::State::idle);
  CHECK_FALSE(rig.shard().running);
  const auto said = rig.bench.sent.size();
  rig.parent.pass(5 * second);
  CHECK(rig.parent.got(said).empty());
  // They come back, and it joins in another life.
  for (auto& member : rig.members) rig.bench.join(member);
  rig.parent.pass(500 * ms);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.shard().parent->incarnation != incarnation);
  CHECK(rig.shard().base == rig.parent.base);
}

TEST_CASE("an unanswered Leave ends, and a Join takes its place", "[control][uplink]") {
  Rig rig;
  rig.run();
  rig.parent.answers = false;
  for (auto& member : rig.members) rig.bench.plain(member, Action::leave);
  SECTION("ends") {
    rig.parent.pass(60 * second, 500 * ms);
    CHECK(rig.parent.got(Action::leave).size() == 10);
  }
  SECTION("replaced") {
    for (auto& member : rig.members) rig.bench.join(member);
    const auto leaves = rig.parent.got(Action::leave).size();
    rig.parent.answers = true;
    rig.parent.pass(2 * second);
    CHECK(rig.parent.got(Action::leave).size() == leaves);
    CHECK(rig.bench.view().state == JobState::running);
    CHECK(rig.shard().base == rig.parent.base);
  }
}

TEST_CASE("a switch that goes down, or removes the job, tells its parent", "[control][uplink]") {
  Rig rig;
  rig.run();
  SECTION("goes down") { rig.bench.control.leave_all(rig.bench.now, rig.bench.effects); }
  SECTION("removes the job") {
    rig.bench.control.remove_job(1, rig.bench.now, rig.bench.effects, {});
  }
  rig.bench.settle();
  CHECK(rig.parent.got(Action::leave).size() == 1);
  CHECK(rig.bench.requests_to(rig.members[0]).back().action == Action::leave);
}

TEST_CASE("an answer to a Ping from before the last Join is of another life", "[control][uplink]") {
  Rig rig;
  rig.run();
  rig.parent.answers = false;
  rig.parent.pass(1100 * ms);
  const Sent ping = rig.parent.got(Action::ping).back();
  wire::ReplyBody old = rig.parent.describe();
  old.base_round += 500;
  rig.parent.forget();
  rig.parent.base -= 100;  // it restarted with its clock behind
  rig.parent.joins = 0;
  rig.parent.answers = true;
  rig.parent.pass(1100 * ms);
  for (auto& member : rig.members) rig.bench.join(member);
  rig.parent.pass(500 * ms);
  REQUIRE(rig.bench.view().state == JobState::running);
  const auto base = rig.bench.view().base_round;
  rig.parent.reply(ping, Status::ok, old);
  CHECK(rig.bench.view().base_round == base);
  CHECK(rig.shard().base == base);
}

TEST_CASE("a restarted parent that took an old Join for a new one is found out",
          "[control][uplink]") {
  Rig rig;
  rig.run();
  const auto incarnation = rig.shard().parent->incarnation;
  const auto joins = rig.parent.got(Action::join).size();
  SECTION("by its older base_round") { rig.parent.base -= 100; }
  SECTION("by another id") { rig.parent.row->id = 9; }
  rig.parent.pass(1100 * ms);
  rig.members_come_back();
  CHECK(rig.parent.got(Action::join).size() == joins + 1);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.shard().base == rig.parent.base);
  CHECK(rig.shard().parent->member == rig.parent.row->id);
  CHECK(rig.shard().parent->incarnation == rig.parent.row->incarnation);
  CHECK(rig.shard().parent->incarnation != incarnation);
}

TEST_CASE("after a newer base_round that nothing announced the place is made sure of",
          "[control][uplink]") {
  Rig rig;
  rig.run();
  rig.parent.base += 100'000;
  rig.parent.row->incarnation = 1;  // of an earlier Join that came late
  const auto incarnation = rig.shard().parent->incarnation;
  rig.parent.pass(1500 * ms);
  CHECK(rig.parent.row->incarnation == incarnation);
  CHECK(rig.bench.view().state == JobState::running);
  CHECK(rig.shard().base == rig.parent.base);
}
