// Losses, timeouts, stragglers, and the window.
#include "agent/congestion/reno.h"
#include "agent/engine/rtt.h"
#include "tests/unit/engine/hand.h"

using namespace iswitch;
using namespace iswitch::agent;

namespace {
/// Ten segments at a time through the engine, each answered after `delay`.
void exchange(Hand& hand, Time delay, int times) {
  for (int i = 0; i < times; ++i) {
    std::vector<float> vector = counted(80);
    hand.sum(vector, vector, 100 * second);
    auto sent = contributions(hand.sent());
    REQUIRE(!sent.empty());
    int answered = 0;
    while (answered < 10) {
      hand.now += delay;
      for (const auto& datagram : sent) {
        hand.answer(datagram);
        ++answered;
      }
      sent = contributions(hand.sent());
    }
    CHECK_FALSE(hand.completion().error);
  }
}
}  // namespace

TEST_CASE("the timeout follows the round trip up and comes down again", "[engine][recovery]") {
  Hand hand;
  hand.join();
  exchange(hand, 200 * microsecond, 5);
  CHECK(hand.engine.statistics().retransmit_timeout == hand.options.min_retransmit);
  exchange(hand, 100 * millisecond, 5);
  CHECK(hand.engine.statistics().retransmit_timeout > 80 * millisecond);
  exchange(hand, 200 * microsecond, 10);
  CHECK(hand.engine.statistics().retransmit_timeout == hand.options.min_retransmit);
  CHECK(hand.engine.statistics().smoothed_rtt < millisecond);
}

TEST_CASE("a path that became longer is learned although contributions time out",
          "[engine][recovery]") {
  Hand hand;
  hand.join();
  exchange(hand, 200 * microsecond, 5);
  std::uint64_t before = 0;
  for (int i = 0; i < 60; ++i) {
    before = hand.engine.statistics().retransmissions;
    hand.barrier(100 * second);
    const auto sent = contributions(hand.sent());
    REQUIRE(sent.size() == 1);
    hand.run_for(50 * millisecond);
    hand.answer(sent[0]);
    CHECK_FALSE(hand.completion().error);
    // Single barriers retransmitted before their answer give no sample; two in flight do.
    std::vector<float> vector = counted(32);
    hand.sum(vector, vector, 100 * second);
    const auto more = contributions(hand.sent());
    hand.run_for(50 * millisecond);
    for (const auto& datagram : more) hand.answer(datagram);
    CHECK_FALSE(hand.completion().error);
  }
  CHECK(hand.engine.statistics().retransmissions == before);
  CHECK(hand.engine.statistics().retransmit_timeout > 50 * millisecond);
}

TEST_CASE("a segment overtaken by later ones is sent again at once", "[engine][recovery]") {
  Hand hand;
  hand.join();
  exchange(hand, 200 * microsecond, 5);
  std::vector<float> vector = counted(80);
  hand.sum(vector, vector);
  auto sent = contributions(hand.sent());
  REQUIRE(sent.size() == 10);
  const auto window = hand.engine.statistics().window_bytes;
  hand.now += 200 * microsecond;
  for (std::size_t i = 0; i < 10; ++i)
    if (i != 3) hand.answer(sent[i]);
  CHECK(contributions(hand.sent()).empty());  // reordering is given a moment
  const auto again = contributions(hand.run_for(100 * microsecond));
  REQUIRE(again.size() == 1);
  CHECK(again[0].header.segment == sent[3].header.segment);
  CHECK(again[0].floats == sent[3].floats);
  CHECK(again[0].retransmitted());
  CHECK(hand.engine.statistics().timeouts == 0);
  CHECK(hand.engine.statistics().window_bytes < window);
  hand.answer(again[0]);
  CHECK_FALSE(hand.completion().error);
}

TEST_CASE("in place: what is sent again is the input, not a result", "[engine][recovery]") {
  Hand hand;
  hand.join();
  std::vector<float> vector = counted(16);
  hand.sum(vector, vector);
  const auto sent = hand.sent();
  hand.answer(sent[1], 100);
  const auto again = contributions(hand.run_for(100 * millisecond));
  REQUIRE(!again.empty());
  for (const auto& datagram : again) CHECK(datagram.floats == sent[0].floats);
  hand.answer(sent[0], 100);
  CHECK_FALSE(hand.completion().error);
}

TEST_CASE("while one member computes for ten seconds the others do not flood",
          "[engine][recovery]") {
  Hand hand;
  hand.join();
  exchange(hand, 200 * microsecond, 20);
  std::vector<float> vector = counted(8 * 60);
  hand.sum(vector, vector, 100 * second);
  const auto sent = contributions(hand.sent());
  REQUIRE(sent.size() > 10);
  std::vector<SentDatagram> meanwhile;
  const Time end = hand.now + 10 * second;
  while (hand.now < end) {
    // The switch answers its requests: member 3 has not contributed.
    for (auto& datagram : hand.run_for(10 * millisecond)) {
      if (datagram.is(wire::Action::help)) {
        wire::ReplyBody body = hand.job;
        body.missing = 8;
        hand.reply(datagram, body);
      }
      meanwhile.push_back(std::move(datagram));
    }
  }
  CHECK(contributions(meanwhile).size() <= 40);
  CHECK(contributions(meanwhile).size() >= 10);
  CHECK(requests(meanwhile, wire::Action::help).size() <= 30);
  const auto window = hand.engine.statistics().window_bytes;

  // It comes back, one result is lost: no storm, and the loss is repaired within milliseconds.
  const Time resumed = hand.now;
  const std::size_t lost = 5;
  std::size_t answered = 0;
  std::vector<SentDatagram> queue(sent.begin(), sent.end());
  std::vector<SentDatagram> again;
  bool dropped = false;
  while (!queue.empty()) {
    std::vector<SentDatagram> next;
    for (const auto& datagram : queue) {
      if (!dropped && answered == lost) {
        dropped = true;
        ++answered;
        continue;
      }
      hand.answer(datagram);
      ++answered;
    }
    for (auto& datagram : contributions(hand.run_for(200 * microsecond))) {
      if (datagram.retransmitted()) again.push_back(datagram);
      next.push_back(std::move(datagram));
    }
    queue = std::move(next);
    if (queue.empty()) queue = contributions(hand.run_for(3 * millisecond));
    REQUIRE(hand.now < resumed + 100 * millisecond);
  }
  CHECK_FALSE(hand.completion().error);
  CHECK(again.size() <= 5);
  CHECK(hand.now - resumed < 30 * millisecond);
  CHECK(hand.engine.statistics().window_bytes >= window / 2);
  CHECK(hand.engine.statistics().retransmit_timeout < 50 * millisecond);
}

TEST_CASE("a whole window lost is recovered in a few round trips", "[engine][recovery]") {
  Hand hand;
  hand.join();
  exchange(hand, 200 * microsecond, 20);
  std::vector<float> vector = counted(std::size_t{8} * 20);
  hand.sum(vector, vector);
  const Time start = hand.now;
  REQUIRE(contributions(hand.sent()).size() == 20);  // all lost
  while (hand.engine.statistics().operations_done == 20) {
    const Time next = hand.engine.next_deadline();
    hand.now = std::max(hand.now, next);
    const auto sent = contributions(hand.sent());
    hand.now += 200 * microsecond;
    for (const auto& datagram : sent) hand.answer(datagram);
    REQUIRE(hand.now - start < second);
  }
  CHECK(hand.now - start < 8 * millisecond);
}

TEST_CASE("probes back off up to the maximum and reset on progress", "[engine][recovery]") {
  Hand hand;
  hand.join();
  exchange(hand, 200 * microsecond, 5);
  std::vector<float> vector = counted(16);
  hand.sum(vector, vector, 100 * second);
  hand.sent();
  const Time start = hand.now;
  auto probes = contributions(hand.run_for(5 * second));
  REQUIRE(probes.size() >= 10);
  CHECK(probes[0].at - start <= 3 * millisecond);
  for (std::size_t i = 2; i < probes.size(); ++i) {
    const Time gap = probes[i].at - probes[i - 1].at;
    CHECK(gap >= probes[i - 1].at - probes[i - 2].at);
    CHECK(gap <= hand.options.max_retransmit);
    CHECK(probes[i].header.segment == probes[0].header.segment);  // the oldest
  }
  hand.answer(probes.back());
  probes = contributions(hand.run_for(5 * millisecond));
  CHECK(!probes.empty());  // the second segment is probed soon, not half a second later
}

TEST_CASE("a duplicate storm changes nothing", "[engine][recovery]") {
  Hand hand;
  hand.join();
  exchange(hand, 200 * microsecond, 3);
  std::vector<float> vector = counted(80);
  hand.sum(vector, vector);
  const auto sent = contributions(hand.sent());
  hand.now += 200 * microsecond;
  for (int i = 0; i < 500; ++i) hand.answer(sent[static_cast<std::size_t>(i) % 5], 3);
  CHECK(hand.engine.statistics().duplicate_results == 495);
  for (std::size_t i = 5; i < 10; ++i) hand.answer(sent[i], 3);
  CHECK_FALSE(hand.completion().error);
  CHECK(vector[0] == 3);
}

TEST_CASE("Reno: slow start, halving once a window, fractions, floor and ceiling", "[congestion]") {
  const std::uint32_t segment = 1440;
  Reno reno({.segment_bytes = segment, .max_window_bytes = std::uint64_t{100} * segment});
  Time now = 0;
  const auto round_trip = [&](bool marked = false) {
    const std::uint64_t window = reno.window_bytes();
    const Time sent_at = now;
    now += millisecond;
    for (std::uint64_t i = 0; i < window / segment; ++i) {
      Acknowledgement acknowledgement;
      acknowledgement.now = now;
      acknowledgement.sent_at = sent_at;
      acknowledgement.bytes = segment;
      acknowledgement.in_flight_before = window;
      acknowledgement.marked = marked;
      reno.on_acknowledgement(acknowledgement);
    }
  };
  CHECK(reno.window_bytes() == 10 * segment);
  round_trip();
  CHECK(reno.window_bytes() == 20 * segment);
  for (int i = 0; i < 5; ++i) round_trip();
  CHECK(reno.window_bytes() == 100 * segment);
  round_trip(true);  // every result of the window is marked: halved once
  CHECK(reno.window_bytes() == 50 * segment);
  round_trip();
  CHECK(reno.window_bytes() == Approx(51 * segment).epsilon(0.01));
  now += millisecond;
  reno.on_loss(now, now - 10);
  reno.on_loss(now, now - 20);
  CHECK(reno.window_bytes() == Approx(25.5 * segment).epsilon(0.01));
  for (int i = 0; i < 10; ++i) {
    now += millisecond;
    reno.on_loss(now, now);
  }
  CHECK(reno.window_bytes() == 2 * segment);
  for (int i = 0; i < 20; ++i) round_trip();
  CHECK(reno.window_bytes() > 12 * segment);
  CHECK(reno.window_bytes() < 25 * segment);
  // An unused window does not grow.
  const std::uint64_t before = reno.window_bytes();
  Acknowledgement alone;
  alone.now = now;
  alone.sent_at = now - millisecond;
  alone.bytes = alone.in_flight_before = segment;
  for (int i = 0; i < 100; ++i) reno.on_acknowledgement(alone);
  CHECK(reno.window_bytes() == before);
}

TEST_CASE("round-trip estimation", "[engine][recovery]") {
  RoundTrip estimate(2 * millisecond, 500 * millisecond);
  CHECK(estimate.timeout() == 20 * millisecond);
  Time now = 0;
  for (int i = 0; i < 100; ++i) estimate.sample(10 * millisecond, now += millisecond);
  CHECK(estimate.smoothed() == 10 * millisecond);
  CHECK(estimate.timeout() == Approx(10 * millisecond).epsilon(0.02));
  estimate.sample(100 * second, now += millisecond);
  CHECK(estimate.timeout() == 500 * millisecond);
  for (int i = 0; i < 200; ++i) estimate.sample(100 * microsecond, now += millisecond);
  CHECK(estimate.timeout() == 2 * millisecond);
  CHECK(estimate.least() == 100 * microsecond);
  for (int i = 0; i < 30; ++i) estimate.sample(300 * microsecond, now += second);
  CHECK(estimate.least() == 300 * microsecond);  // the old minimum has aged
}
