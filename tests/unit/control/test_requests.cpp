// Every action but Join, and what every request goes through first: job, tag, nonce, membership.
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/unit/control/harness.h"

using namespace control_test;

namespace {

const std::vector<std::uint8_t> key = [] {
  std::vector<std::uint8_t> bytes(32);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}();

JobConfig keyed_config() {
  JobConfig config = job_config();
  config.key = key;
  return config;
}

bool tag_is_right(const Sent& sent, const Client& client) {
  return wire::tag_is_right(client.key, sent.datagram, client.endpoint.ip,
                            client.endpoint.udp_port);
}

std::vector<std::uint8_t> from_hex(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

datapath::ControlFrame frame_of_bytes(const std::vector<std::uint8_t>& bytes) {
  datapath::ControlFrame frame;
  frame.size = static_cast<std::uint16_t>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), frame.bytes.begin());
  return frame;
}

}  // namespace

// ---- what comes first

TEST_CASE("a golden Join, byte by byte", "[control][request]") {
  Bench bench({job_config(1, 4)});
  bench.control.on_frame(frame_of_bytes(from_hex("0200000000fe020000000100080045bc00520000400040112"
                                                 "4470a4d00010a4d00fe9c414312003e315f12010001"
                                                 "ffff0000004d0000000000060a24181e400100000000ffff0"
                                                 "000000005a05eed0001000000000000000000000000"
                                                 "00000000")),
                         bench.now, bench.effects);
  bench.settle();
  REQUIRE(bench.sent.size() == 1);
  const Sent& reply = bench.sent.front();
  CHECK(reply.is_reply);
  CHECK(reply.action == Action::join);
  CHECK(reply.request_id == 77);
  CHECK(reply.nonce == 1700000000000001);
  CHECK(reply.status() == Status::ok);
  CHECK(reply.body_member() == 0);
  CHECK(reply.to.udp_port == 40001);
}

TEST_CASE("with a key the tag is checked before anything else: status 4", "[control][request]") {
  Bench bench({keyed_config()});
  Client good = client(0);
  good.key = key;
  Client bad = client(1);
  bad.key = key;
  bad.key[31] ^= 1;
  const auto welcome = bench.join(good);
  REQUIRE(welcome);
  CHECK(welcome->status() == Status::ok);
  CHECK(tag_is_right(*welcome, good));

  // Even a request that would fail otherwise (a wanted id out of range) fails by its tag.
  const auto refused = bench.join(bad, 63);
  REQUIRE(refused);
  CHECK(refused->status() == Status::bad_tag);
  Client with_the_key = bad;
  with_the_key.key = key;
  CHECK(tag_is_right(*refused, with_the_key));
  CHECK(bench.view().members.size() == 1);

  // A forged request leaves no nonce behind and does not count as heard.
  Client forger = good;
  forger.key = bad.key;
  forger.nonce = 1'000'000;
  bench.now += second;
  CHECK(bench.plain(forger, Action::leave)->status() == Status::bad_tag);
  CHECK(bench.view().members[0].last_heard == start_time);
  CHECK(bench.plain(good, Action::ping)->status() == Status::ok);
  CHECK(bench.set_threshold(good, 1)->status() == Status::ok);
  // The tag covers the client's address: the same bytes from elsewhere are not good.
  const auto header = good.next_header(Action::leave);
  Client elsewhere = good;
  elsewhere.endpoint.udp_port++;
  bench.deliver(elsewhere, wire::write_plain_request(header, good.as_client()));
  CHECK(bench.reply_to(elsewhere, header)->status() == Status::bad_tag);
  CHECK(bench.view().members.size() == 1);
}

TEST_CASE("without a key the tag is sixteen zeros, and nothing else", "[control][request]") {
  Bench bench;
  Client a = client(0);
  a.key = key;
  CHECK(bench.join(a)->status() == Status::bad_tag);
  a.key.clear();
  const auto reply = bench.join(a);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->tag == std::vector<std::uint8_t>(16, 0));
}

TEST_CASE("each bad tag is answered, and does not use up the notices", "[control][request]") {
  Bench bench({keyed_config()});
  auto members = bench.joined(2, 1, key);
  Client forger = members[0];
  forger.key[0] ^= 1;
  const std::size_t before = bench.sent.size();
  for (int i = 0; i < 100; ++i) {
    bench.plain(forger, Action::ping);
    bench.now += millisecond;
  }
  CHECK(bench.sent.size() - before == 100);
  CHECK(bench.control.counters().refused[4] == 100);
  bench.notice(datapath::Notice::Kind::gone, members[0], 3, first_base);
  CHECK(bench.sent.back().status() == Status::gone);
}

TEST_CASE("only members ask for anything but Join: status 2", "[control][request]") {
  Bench bench;
  Client stranger = client(5);
  stranger.id = 0;
  const auto ask_everything = [&](Client& who) {
    std::vector<Sent> replies;
    for (const auto action : {Action::leave, Action::halt, Action::resume, Action::ping})
      replies.push_back(*bench.plain(who, action));
    replies.push_back(*bench.reset(who));
    replies.push_back(*bench.set_threshold(who, 1));
    replies.push_back(*bench.force(who, 0, first_base));
    replies.push_back(*bench.help(who, 0, first_base));
    return replies;
  };
  auto members = bench.joined(2);
  const std::size_t orders = bench.datapath.log.size();
  const auto expect_refused = [&](Client who) {
    for (const Sent& reply : ask_everything(who)) {
      CHECK(reply.status() == Status::not_a_member);
      CHECK(reply.base_round() == first_base);  // the job's data all the same
    }
  };
  SECTION("from elsewhere") { expect_refused(stranger); }
  SECTION("another IP") {
    members[0].endpoint.ip.value += 100;
    expect_refused(members[0]);
  }
  SECTION("another UDP port") {
    members[0].endpoint.udp_port = 50000;
    expect_refused(members[0]);
  }
  SECTION("another ingress port") {
    members[0].ingress = 60;
    expect_refused(members[0]);
  }
  SECTION("another member's id") {
    members[0].id = 1;
    expect_refused(members[0]);
  }
  SECTION("no id") {
    members[0].id = wire::no_member;
    expect_refused(members[0]);
  }
  CHECK(bench.datapath.log.size() == orders);
  CHECK(bench.view().state == JobState::running);
}

TEST_CASE("a refused stranger leaves no nonce behind", "[control][request]") {
  Bench bench;
  Client a = client(0);
  a.id = 0;
  a.nonce = 50'000;
  CHECK(bench.plain(a, Action::leave)->status() == Status::not_a_member);
  a.nonce = 10;
  CHECK(bench.join(a)->status() == Status::ok);
}

TEST_CASE("the same nonce, id and action again is answered as before and not done again",
          "[control][nonce]") {
  Bench bench({job_config(1, 2)});
  auto members = bench.joined(2);
  const auto header = members[0].next_header(Action::reset);
  const auto datagram = wire::write_reset(header, 0, members[0].as_client());
  bench.deliver(members[0], datagram);
  CHECK(bench.reply_to(members[0], header)->base_round() == first_base + 2);
  const std::size_t orders = bench.datapath.log.size();
  for (int i = 0; i < 3; ++i) {
    const std::size_t before = bench.sent.size();
    bench.deliver(members[0], datagram);
    REQUIRE(bench.sent.size() == before + 1);
    CHECK(bench.sent.back().status() == Status::ok);
    CHECK(bench.sent.back().base_round() == first_base + 2);
  }
  CHECK(bench.datapath.log.size() == orders);
  // A refusal is repeated too, with the state of now.
  const auto bad = members[0].next_header(Action::set_threshold);
  const auto again = wire::write_set_threshold(bad, 65, members[0].as_client());
  bench.deliver(members[0], again);
  CHECK(bench.reply_to(members[0], bad)->status() == Status::bad_value);
  bench.plain(members[1], Action::halt);
  bench.deliver(members[0], again);
  CHECK(bench.reply_to(members[0], bad)->status() == Status::bad_value);
  CHECK(bench.reply_to(members[0], bad)->state() == JobState::halted);
}

TEST_CASE("a smaller or equal nonce is refused: status 10", "[control][nonce]") {
  Bench bench;
  auto members = bench.joined(2);
  Client& a = members[0];
  bench.set_threshold(a, 1);
  const std::size_t orders = bench.datapath.log.size();
  const auto expect_refused = [&](std::uint64_t nonce, std::uint32_t id, Action action) {
    const wire::ControlHeader header{action, 1, a.id, id, nonce};
    bench.deliver(a, wire::write_plain_request(header, a.as_client()));
    CHECK(bench.reply_to(a, header)->status() == Status::replayed_nonce);
  };
  expect_refused(a.nonce, a.request_id + 1, Action::halt);  // another id
  expect_refused(a.nonce, a.request_id, Action::halt);      // another action
  expect_refused(a.nonce - 1, a.request_id, Action::leave);
  expect_refused(0, 1, Action::leave);
  const wire::ControlHeader join{Action::join, 1, wire::no_member, 99, a.nonce};
  bench.deliver(a, wire::write_join(join, join_body(a), a.as_client()));
  CHECK(bench.reply_to(a, join)->status() == Status::replayed_nonce);
  CHECK(bench.datapath.log.size() == orders);
  CHECK(bench.control.counters().refused[10] == 5);
  // Sources are apart: the other member's nonces are its own.
  members[1].nonce = 1'900;
  CHECK(bench.plain(members[1], Action::halt)->status() == Status::ok);
  // The largest nonce is still one more.
  a.nonce = UINT64_MAX - 1;
  CHECK(bench.plain(a, Action::resume)->status() == Status::ok);
  CHECK(bench.set_threshold(a, 0)->status() == Status::replayed_nonce);
}

TEST_CASE("nonces are remembered per job", "[control][nonce]") {
  Bench bench({job_config(1, 1), job_config(2, 1)});
  Client a = client(0, 1);
  Client b = client(0, 2);
  a.nonce = 9'000;
  b.nonce = 5;
  CHECK(bench.join(a)->status() == Status::ok);
  CHECK(bench.join(b)->status() == Status::ok);
}

TEST_CASE("Ping and Help are exempt from the nonces", "[control][nonce]") {
  Bench bench;
  auto members = bench.joined(2);
  Client& a = members[0];
  for (const std::uint64_t nonce :
       {std::uint64_t{0}, std::uint64_t{5}, a.nonce, std::uint64_t{5}}) {
    const wire::ControlHeader ping{Action::ping, 1, a.id, 3, nonce};
    const std::size_t before = bench.sent.size();
    bench.deliver(a, wire::write_plain_request(ping, a.as_client()));
    REQUIRE(bench.sent.size() == before + 1);
    CHECK(bench.sent.back().status() == Status::ok);
    const wire::ControlHeader help{Action::help, 1, a.id, 3, nonce};
    bench.deliver(a, wire::write_slot_request(help, {1, first_base}, a.as_client()));
    CHECK(bench.sent.back().status() == Status::ok);
    CHECK(bench.sent.back().action == Action::help);
  }
  // Nor do they move them: a large nonce of theirs refuses nothing.
  const wire::ControlHeader ping{Action::ping, 1, a.id, 3, UINT64_MAX};
  bench.deliver(a, wire::write_plain_request(ping, a.as_client()));
  CHECK(bench.set_threshold(a, 1)->status() == Status::ok);
}

TEST_CASE("a request repeated while it is being done is absorbed", "[control][nonce]") {
  Bench bench({job_config(1, 2)}, 2);
  auto members = bench.joined(2);
  bench.answering = false;
  const auto header = members[0].next_header(Action::reset);
  const auto datagram = wire::write_reset(header, 0, members[0].as_client());
  const std::size_t before = bench.sent.size();
  bench.deliver(members[0], datagram);
  bench.deliver(members[0], datagram);
  bench.answer_one(0);
  bench.deliver(members[0], datagram);
  bench.answer_all();
  CHECK(orders_of<datapath::Stop>(bench.datapath).size() == 1);
  const auto to_asker = bench.to(members[0], before);
  CHECK(std::count_if(to_asker.begin(), to_asker.end(),
                      [](const Sent& one) { return one.is_reply; }) == 1);
}

TEST_CASE("a newer request replaces one that is being done", "[control][nonce]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.answering = false;
  const auto old_one = members[0].next_header(Action::reset);
  bench.deliver(members[0], wire::write_reset(old_one, 0, members[0].as_client()));
  const auto newer = members[0].next_header(Action::set_threshold);
  bench.deliver(members[0], wire::write_set_threshold(newer, 1, members[0].as_client()));
  bench.answer_all();
  CHECK_FALSE(bench.reply_to(members[0], old_one));
  CHECK(bench.reply_to(members[0], newer)->status() == Status::ok);
  CHECK(bench.view().base_round == first_base + 2);  // it was done all the same
  bench.deliver(members[0], wire::write_reset(old_one, 0, members[0].as_client()));
  CHECK(bench.reply_to(members[0], old_one)->status() == Status::replayed_nonce);
}

TEST_CASE("what is not a client's control packet is ignored", "[control][request]") {
  Bench bench;
  auto members = bench.joined(2);
  const std::size_t frames = bench.sent.size();
  const auto ignored = bench.control.counters().ignored;
  Client odd = client(9);
  SECTION("a source that is the switch itself") { odd.endpoint.ip = switch_address().rules.ip; }
  SECTION("a multicast source address") { odd.endpoint.ip = {0xE0000001}; }
  SECTION("no source address") { odd.endpoint.ip = {}; }
  SECTION("no source port") { odd.endpoint.udp_port = 0; }
  SECTION("a group source MAC") { odd.endpoint.mac.bytes[0] = 0x03; }
  CHECK_FALSE(bench.join(odd));
  CHECK(bench.sent.size() == frames);
  CHECK(bench.control.counters().ignored == ignored + 1);
}

TEST_CASE("truncated and corrupted frames are ignored", "[control][request]") {
  Bench bench;
  Client a = client(0);
  const auto frame =
      frame_of(a, wire::write_join(a.next_header(Action::join), join_body(a), a.as_client()));
  for (std::uint16_t size = 0; size < frame.size; ++size) {
    auto cut = frame;
    cut.size = size;
    bench.control.on_frame(cut, bench.now, bench.effects);
  }
  for (std::size_t byte = 0; byte < frame.size; ++byte) {
    auto broken = frame;
    broken.bytes.at(byte) ^= 0x10;
    // Its source MAC and destination MAC are under no checksum.
    if (byte < 12) continue;
    bench.control.on_frame(broken, bench.now, bench.effects);
  }
  bench.settle();
  CHECK(bench.sent.empty());
  CHECK(bench.view().members.empty());
}

// ---- Leave

TEST_CASE("Leave ends membership at once and drops the row", "[control][leave]") {
  Bench bench({job_config(1, 3)}, 2);
  auto members = bench.joined(3);
  const auto reply = bench.plain(members[1], Action::leave);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->members_now() == 2);
  CHECK(reply->threshold() == 2);
  CHECK(reply->member == 1);
  CHECK(reply->body_member() == wire::no_member);
  CHECK(bench.datapath.shard(0).members.count(1) == 0);
  CHECK(bench.datapath.shard(1).members.count(1) == 0);
  CHECK(bench.view().state == JobState::running);  // the others go on
  CHECK(bench.view().base_round == first_base);
  CHECK(bench.plain(members[1], Action::ping)->status() == Status::not_a_member);
  CHECK(bench.control.counters().leaves == 1);
  // Its reply was lost: the same Leave again is ok again.
  const wire::ControlHeader again{Action::leave, 1, 1, members[1].request_id - 1,
                                  members[1].nonce - 1};
  bench.deliver(members[1], wire::write_plain_request(again, members[1].as_client()));
  CHECK(bench.reply_to(members[1], again)->status() == Status::ok);
  CHECK(bench.control.counters().leaves == 1);
}

TEST_CASE("Leave is answered when every shard has dropped the row", "[control][leave]") {
  Bench bench({job_config(1, 2)}, 2);
  auto members = bench.joined(2);
  bench.answering = false;
  CHECK_FALSE(bench.plain(members[0], Action::leave));
  const std::size_t before = bench.sent.size();
  bench.answer_one(1);
  CHECK(bench.sent.size() == before);
  bench.answer_one(0);
  CHECK(bench.sent.size() == before + 1);
}

// ---- Reset

TEST_CASE("Reset: stopped, cleared and started everywhere before anybody hears of it",
          "[control][reset]") {
  Bench bench({job_config(1, 2)}, 2);
  auto members = bench.joined(2);
  bench.datapath.highest[0] = first_base + 5;
  bench.datapath.highest[1] = first_base + 1000;
  bench.answering = false;
  const std::size_t before = bench.sent.size();
  CHECK_FALSE(bench.reset(members[0]));
  CHECK(orders_of<datapath::Stop>(bench.datapath).size() == 1);
  CHECK(bench.view().base_round == first_base);
  bench.answer_one(0);
  CHECK(orders_of<datapath::Start>(bench.datapath).size() == 1);  // the first one
  bench.answer_one(1);
  REQUIRE(orders_of<datapath::Start>(bench.datapath).size() == 2);
  CHECK(orders_of<datapath::Start>(bench.datapath)[1].base_round == first_base + 1002);
  // A Ping in between still tells the old state: nothing is announced yet.
  CHECK(bench.plain(members[1], Action::ping)->base_round() == first_base);
  bench.answer_one(1);
  CHECK(bench.sent.size() == before + 1);
  bench.answer_one(0);
  CHECK(bench.view().base_round == first_base + 1002);
  const auto told = bench.requests_to(members[1], before);
  REQUIRE(told.size() == 1);
  CHECK(told[0].reset_base() == first_base + 1002);
  CHECK(bench.sent.back().is_reply);  // announced first, then answered
  CHECK(bench.sent.back().action == Action::reset);
  CHECK(bench.sent.back().base_round() == first_base + 1002);
}

TEST_CASE("the new base_round is two later than its own where no round was seen",
          "[control][reset]") {
  Bench bench({job_config(1, 1)}, 2);
  auto members = bench.joined(1);
  CHECK(bench.reset(members[0])->base_round() == first_base + 2);
  CHECK(bench.reset(members[0])->base_round() == first_base + 4);
}

TEST_CASE("a Reset whose base_round is not newer is answered and not done", "[control][reset]") {
  Bench bench({job_config(1, 1)});
  auto members = bench.joined(1);
  CHECK(bench.reset(members[0], first_base)->status() == Status::ok);
  CHECK(bench.reset(members[0], first_base - 1)->base_round() == first_base);
  CHECK(orders_of<datapath::Stop>(bench.datapath).empty());
  // A newer one is a wish for a newer one: the root chooses which.
  CHECK(bench.reset(members[0], first_base + 1'000'000)->base_round() == first_base + 2);
}

TEST_CASE("Resets while one is under way are part of it", "[control][reset]") {
  Bench bench({job_config(1, 3)}, 2);
  auto members = bench.joined(3);
  bench.answering = false;
  const std::size_t before = bench.sent.size();
  for (auto& member : members) CHECK_FALSE(bench.reset(member));
  bench.answer_all();
  CHECK(orders_of<datapath::Stop>(bench.datapath).size() == 1);
  for (auto& member : members) {
    const auto got = bench.to(member, before);
    REQUIRE(got.size() == 2);
    CHECK(got[0].reset_base() == first_base + 2);
    CHECK(got[1].base_round() == first_base + 2);
  }
}

TEST_CASE("a Reset of a forming job moves its base_round as well", "[control][reset]") {
  Bench bench({job_config(1, 2)});
  Client a = client(0);
  Client b = client(1);
  bench.join(a);
  const auto reply = bench.reset(a);
  CHECK(reply->state() == JobState::forming);
  CHECK(reply->base_round() == first_base + 2);
  CHECK(bench.join(b)->base_round() == first_base + 2);
  CHECK(bench.datapath.shard(0).base == first_base + 2);
}

TEST_CASE("a Reset during the very first start is not taken for it", "[control][reset]") {
  Bench bench({job_config(1, 2)});
  Client a = client(0);
  Client b = client(1);
  bench.join(a);
  bench.answering = false;
  bench.join(b);
  bench.reset(a);
  bench.answer_all();
  CHECK(bench.view().base_round == first_base + 2);
  CHECK(bench.view().state == JobState::running);
}

// ---- SetH

TEST_CASE("SetH: 0 to 64, in force never above the number of members", "[control][threshold]") {
  Bench bench({job_config(1, 3)}, 2);
  auto members = bench.joined(3);
  auto reply = bench.set_threshold(members[0], 2);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->threshold() == 2);
  CHECK(bench.datapath.shard(0).threshold == 2);
  CHECK(bench.datapath.shard(1).threshold == 2);
  reply = bench.set_threshold(members[0], 64);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->threshold() == 3);
  CHECK(bench.set_threshold(members[0], 65)->status() == Status::bad_value);
  CHECK(bench.set_threshold(members[0], 0xFFFF)->status() == Status::bad_value);
  CHECK(bench.view().threshold_wanted == 64);
  CHECK(bench.set_threshold(members[0], 3)->threshold() == 3);
  CHECK(bench.plain(members[2], Action::leave)->threshold() == 2);
  CHECK(bench.set_threshold(members[0], 0)->threshold() == 2);
  CHECK(bench.datapath.shard(1).threshold == 0);
  // A history of one stays: who falls behind is told that it is gone (section 4).
  CHECK(bench.view().history == 1);
}

TEST_CASE("a threshold from the config is ordered with the tables", "[control][threshold]") {
  auto config = job_config(1, 3);
  config.threshold = 2;
  Bench bench({config}, 2);
  CHECK(bench.datapath.shard(1).threshold == 2);
  auto members = bench.joined(3);
  CHECK(bench.view().threshold == 2);
  CHECK(bench.view().history == 8);
}

// ---- FBcast

TEST_CASE("FBcast: open or kept is ok, neither is a bad value", "[control][force]") {
  Bench bench({job_config(1, 2)}, 2);
  auto members = bench.joined(2);
  using datapath::SlotState;
  bench.datapath.slots[{3, first_base}] = SlotState::open;
  bench.datapath.slots[{4, first_base}] = SlotState::kept;
  CHECK(bench.force(members[0], 3, first_base)->status() == Status::ok);
  CHECK(bench.force(members[0], 4, first_base)->status() == Status::ok);
  CHECK(bench.force(members[0], 5, first_base)->status() == Status::bad_value);
  const auto orders = orders_of<datapath::Force>(bench.datapath);
  REQUIRE(orders.size() == 3);
  CHECK(orders[0].segment == 3);
  CHECK(orders[0].round == first_base);
  CHECK(bench.force(members[0], 64, first_base)->status() == Status::bad_value);
  CHECK(bench.force(members[0], 0xFFFF'FFFF, first_base)->status() == Status::bad_value);
  CHECK(orders_of<datapath::Force>(bench.datapath).size() == 3);
}

// ---- Help

TEST_CASE("Help for a kept result: the datapath sends it to the asker", "[control][help]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.datapath.slots[{3, first_base}] = datapath::SlotState::kept;
  const auto reply = bench.help(members[1], 3, first_base);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->missing() == 0);
  const auto orders = orders_of<datapath::Replay>(bench.datapath);
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].member == 1);
  CHECK(orders[0].segment == 3);
  CHECK(orders[0].round == first_base);
  CHECK(bench.requests_to(members[0]).empty());
}

TEST_CASE("Help for an open sum: says who is missing and asks them, once", "[control][help]") {
  Bench bench({job_config(1, 4)}, 2);
  auto members = bench.joined(4);
  bench.datapath.slots[{3, first_base + 1}] = datapath::SlotState::open;
  bench.datapath.missing[{3, first_base + 1}] = 0b1010;
  const std::size_t before = bench.sent.size();
  const auto reply = bench.help(members[0], 3, first_base + 1);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->missing() == 0b1010);
  CHECK(bench.requests_to(members[0], before).empty());
  CHECK(bench.requests_to(members[2], before).empty());
  for (const int asked : {1, 3}) {
    const auto got = bench.requests_to(members[static_cast<std::size_t>(asked)], before);
    REQUIRE(got.size() == 1);
    CHECK(got[0].action == Action::help);
    CHECK(got[0].member == asked);
    CHECK(got[0].slot_segment() == 3);
    CHECK(got[0].slot_round() == first_base + 1);
    CHECK(got[0].request_id != 0);
  }
  bench.at(bench.now + 10 * second);
  CHECK(bench.requests_to(members[1], before).size() == 1);
  const auto replies = bench.control.counters().replies_received;
  bench.member_reply(members[1], bench.requests_to(members[1], before)[0]);
  CHECK(bench.control.counters().replies_received == replies + 1);
}

TEST_CASE("Help for what is gone: status 7; for what is not there yet: ok, nobody missing",
          "[control][help]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.datapath.slots[{3, first_base + 4}] = datapath::SlotState::gone;
  const auto gone = bench.help(members[0], 3, first_base + 4);
  CHECK(gone->status() == Status::gone);
  CHECK(gone->missing() == (std::uint64_t{3} << 32 | (first_base + 4)));
  const auto later = bench.help(members[0], 3, first_base + 9);
  CHECK(later->status() == Status::ok);
  CHECK(later->missing() == 0);
  CHECK(bench.help(members[0], 64, first_base)->status() == Status::bad_value);
}

TEST_CASE("Helps of one member may be several, but not without end", "[control][help]") {
  Bench bench;
  auto members = bench.joined(2);
  bench.answering = false;
  const std::size_t before = bench.datapath.log.size();
  std::vector<wire::ControlHeader> asked;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const auto header = members[0].next_header(Action::help);
    const auto datagram =
        wire::write_slot_request(header, {i % 64, first_base}, members[0].as_client());
    bench.deliver(members[0], datagram);
    bench.deliver(members[0], datagram);  // a repetition is absorbed
    asked.push_back(header);
  }
  CHECK(bench.datapath.log.size() - before == 64);
  CHECK_FALSE(bench.help(members[1], 0, first_base));  // the other's are its own
  CHECK(bench.datapath.log.size() - before == 65);
  const std::size_t sent = bench.sent.size();
  bench.answer_all();
  CHECK(bench.sent.size() - sent == 65);
  for (std::size_t i = 0; i < asked.size(); ++i)
    CHECK(bench.reply_to(members[0], asked[i]).has_value() == (i < 64));
  bench.answering = true;
  CHECK(bench.help(members[0], 1, first_base)->status() == Status::ok);
}

// ---- Halt, Resume

TEST_CASE("Halt suspends and Resume ends it; nothing is cleared", "[control][halt]") {
  Bench bench({job_config(1, 2)}, 2);
  auto members = bench.joined(2);
  auto reply = bench.plain(members[0], Action::halt);
  CHECK(reply->status() == Status::ok);
  CHECK(reply->state() == JobState::halted);
  CHECK(bench.datapath.shard(0).halted);
  CHECK(bench.datapath.shard(1).halted);
  CHECK(bench.plain(members[1], Action::ping)->state() == JobState::halted);
  reply = bench.plain(members[1], Action::resume);
  CHECK(reply->state() == JobState::running);
  CHECK_FALSE(bench.datapath.shard(0).halted);
  CHECK(orders_of<datapath::Stop>(bench.datapath).empty());
  CHECK(bench.view().base_round == first_base);
}

TEST_CASE("a halted job stays halted over a Reset, whatever Start does", "[control][halt]") {
  const bool start_ends_halt = GENERATE(false, true);
  CAPTURE(start_ends_halt);
  Bench bench({job_config(1, 2)}, 2);
  bench.datapath.start_ends_halt = start_ends_halt;
  auto members = bench.joined(2);
  bench.plain(members[0], Action::halt);
  const auto reply = bench.reset(members[0]);
  CHECK(reply->state() == JobState::halted);
  CHECK(reply->base_round() == first_base + 2);
  CHECK(bench.datapath.shard(0).halted);
  CHECK(bench.datapath.shard(1).running);
  SECTION("and a Resume while resetting counts") {
    bench.answering = false;
    bench.reset(members[0]);
    bench.answer_one(0);
    bench.plain(members[1], Action::resume);
    bench.answer_all();
    CHECK(bench.view().state == JobState::running);
    CHECK_FALSE(bench.datapath.shard(0).halted);
    CHECK_FALSE(bench.datapath.shard(1).halted);
  }
  SECTION("and a Halt while starting counts") {
    bench.plain(members[1], Action::resume);
    bench.answering = false;
    bench.reset(members[0]);
    for (int i = 0; i < 3; ++i) bench.answer_one(static_cast<std::uint16_t>(i % 2));
    bench.plain(members[1], Action::halt);
    bench.answer_all();
    CHECK(bench.view().state == JobState::halted);
    CHECK(bench.datapath.shard(0).halted);
    CHECK(bench.datapath.shard(1).halted);
  }
}

TEST_CASE("a Halt of a forming job holds when it starts", "[control][halt]") {
  Bench bench({job_config(1, 2)});
  Client a = client(0);
  Client b = client(1);
  bench.join(a);
  CHECK(bench.plain(a, Action::halt)->state() == JobState::forming);
  const auto reply = bench.join(b);
  CHECK(reply->state() == JobState::halted);
  CHECK(bench.datapath.shard(0).halted);
}

TEST_CASE("Halt and Resume close together end as the last one says", "[control][halt]") {
  Bench bench({job_config(1, 2)}, 2);
  auto members = bench.joined(2);
  bench.answering = false;
  bench.plain(members[0], Action::halt);
  bench.plain(members[1], Action::resume);
  bench.answer_all();
  CHECK(bench.view().state == JobState::running);
  CHECK_FALSE(bench.datapath.shard(0).halted);
  // Halt, then a Reset before its answer, then Resume during the Reset.
  bench.plain(members[0], Action::halt);
  bench.reset(members[0]);
  bench.plain(members[1], Action::resume);
  bench.answer_all();
  CHECK(bench.view().state == JobState::running);
  CHECK_FALSE(bench.datapath.shard(0).halted);
  CHECK_FALSE(bench.datapath.shard(1).halted);
}
