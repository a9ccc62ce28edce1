// The stream of segments: cutting, slots and rounds, results, the kinds of operation.
#include <cmath>
#include <limits>

#include "tests/unit/engine/hand.h"

using namespace iswitch;
using namespace iswitch::agent;

TEST_CASE("a vector is cut into segments, the last one short", "[engine][stream]") {
  Hand hand;
  hand.job.shards = 3;
  hand.join();
  const std::vector<float> input = counted(20);
  std::vector<float> output(20);
  const OperationId id = hand.sum(input, output);
  const auto sent = hand.sent();
  REQUIRE(sent.size() == 3);
  const std::uint32_t tag = wire::operation_tag({.elements = 20});
  for (std::uint32_t i = 0; i < 3; ++i) {
    REQUIRE(sent[i].contribution());
    CHECK(sent[i].header.job == 7);
    CHECK(sent[i].header.member == 1);
    CHECK(sent[i].header.segment == i);
    CHECK(sent[i].header.round == 100);
    CHECK(sent[i].header.operation_tag() == tag);
    CHECK(sent[i].header.workers() == 1);
    CHECK(sent[i].header.flags == 0);
    CHECK(sent[i].shard == i);
    CHECK(sent[i].tos == 0xAC);
    CHECK(sent[i].floats.size() == (i < 2 ? 8 : 4));
    CHECK(sent[i].floats[0] == static_cast<float>(1 + 8 * i));
  }
  CHECK(hand.idle());
  for (const auto& datagram : {sent[1], sent[0], sent[2]}) hand.answer(datagram, 3);
  const Completion completion = hand.completion();
  CHECK(completion.id == id);
  CHECK_FALSE(completion.error);
  CHECK_FALSE(completion.partial);
  CHECK(completion.smallest_workers == 4);
  for (std::size_t i = 0; i < input.size(); ++i) CHECK(output[i] == input[i] * 3);
  CHECK(hand.engine.statistics().operations_done == 1);
}

TEST_CASE("positions go round the slots, over the wrap of the round", "[engine][stream]") {
  Hand hand;
  hand.job.slots = 3;
  hand.job.base_round = 0xFFFF'FFFE;
  hand.join();
  std::vector<float> vector = counted(8 * 20 + 1);
  const std::vector<float> original = vector;
  hand.sum(vector, vector);  // in place
  std::uint64_t position = 0;
  while (position < 21) {
    const auto sent = hand.sent();
    // One contribution a slot: three at a time, and no more until results come.
    REQUIRE(sent.size() == std::min<std::uint64_t>(3, 21 - position));
    CHECK(hand.sent().empty());
    for (const auto& datagram : sent) {
      CHECK(datagram.header.segment == position % 3);
      CHECK(datagram.header.round == static_cast<std::uint32_t>(0xFFFF'FFFE + position / 3));
      ++position;
    }
    for (const auto& datagram : sent) hand.answer(datagram, 2);
  }
  CHECK_FALSE(hand.completion().error);
  for (std::size_t i = 0; i < vector.size(); ++i) CHECK(vector[i] == 2 * original[i]);
}

TEST_CASE("small and empty operations", "[engine][stream]") {
  Hand hand;
  hand.join();
  std::vector<float> none;
  std::vector<float> one{5};
  const OperationId empty = hand.sum(none, none);
  CHECK(hand.completion().id == empty);
  CHECK(hand.sent().empty());
  hand.sum(one, one);
  hand.barrier();
  const auto sent = hand.sent();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].floats == std::vector<float>{5});
  CHECK(sent[1].floats.empty());
  CHECK(sent[1].header.segment == 1);
  CHECK(sent[1].header.operation_tag() ==
        wire::operation_tag({.kind = wire::OperationKind::barrier}));
  hand.answer(sent[1]);
  CHECK(hand.completion().id == 3);  // completes before the one in front of it
  hand.answer(sent[0]);
  CHECK(hand.completion().id == 2);
  CHECK(one[0] == 20);
}

TEST_CASE("several operations overlap and share the window", "[engine][stream]") {
  EngineOptions options = Hand::default_options();
  options.receive_datagrams = 4;
  Hand hand(options);
  hand.join();
  std::vector<std::vector<float>> vectors;
  for (std::size_t i = 0; i < 10; ++i)
    vectors.push_back(counted(3 + i * 5, static_cast<float>(i + 1)));
  const auto originals = vectors;
  for (auto& vector : vectors) hand.sum(vector, vector);
  std::size_t done = 0;
  while (done < vectors.size()) {
    const auto sent = hand.sent();
    REQUIRE(!sent.empty());
    REQUIRE(sent.size() <= 4);
    for (const auto& datagram : sent) hand.answer(datagram, 2);
    while (auto completion = hand.engine.take_completion()) {
      CHECK_FALSE(completion->error);
      ++done;
    }
  }
  for (std::size_t v = 0; v < vectors.size(); ++v)
    for (std::size_t i = 0; i < vectors[v].size(); ++i) CHECK(vectors[v][i] == 2 * originals[v][i]);
}

TEST_CASE("mean divides each segment by its own workers; partial and the fewest are told",
          "[engine][stream]") {
  Hand hand;
  hand.join();
  std::vector<float> vector = counted(16);
  Request request;
  request.reduction = Reduction::mean;
  request.input = vector;
  request.output = vector;
  request.deadline = second;
  hand.engine.submit(request, 0);
  REQUIRE(hand.sent().size() == 2);
  hand.result(0, 100, std::vector<float>(8, 10), 4);
  hand.result(1, 100, std::vector<float>(8, 10), 3, wire::flag::partial);
  const Completion completion = hand.completion();
  CHECK(completion.partial);
  CHECK(completion.smallest_workers == 3);
  CHECK(vector[0] == 2.5F);
  CHECK(vector[8] == 10.0F / 3.0F);
  CHECK(hand.engine.statistics().partial_results == 1);
}

TEST_CASE("zeros are left out of a sum, minus zero is not", "[engine][stream]") {
  Hand hand;
  hand.join();
  std::vector<float> vector(24, 0.0F);
  vector[8] = -0.0F;
  vector[23] = 1;
  hand.sum(vector, vector);
  const auto sent = hand.sent();
  REQUIRE(sent.size() == 3);
  CHECK(sent[0].floats.empty());
  REQUIRE(sent[1].floats.size() == 8);
  CHECK(std::signbit(sent[1].floats[0]));
  CHECK(sent[2].floats.size() == 8);
  vector[0] = 77;  // an empty result is zeros, whatever the vector holds
  hand.result(0, 100, {});
  hand.result(1, 100, std::vector<float>(8, 0));
  hand.result(2, 100, std::vector<float>(8, 3));
  CHECK_FALSE(hand.completion().error);
  CHECK(vector[0] == 0);
  CHECK(vector[23] == 3);
}

TEST_CASE("special values pass unchanged", "[engine][stream]") {
  Hand hand;
  hand.join();
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> vector{infinity, -infinity, std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::denorm_min(), -0.0F};
  std::vector<float> output(5);
  hand.sum(vector, output);
  const auto sent = hand.sent();
  REQUIRE(sent.size() == 1);
  CHECK(std::memcmp(sent[0].floats.data(), vector.data(), 20) == 0);
  std::vector<float> result{infinity, -infinity, -0.0F, std::numeric_limits<float>::denorm_min(),
                            0};
  const std::uint32_t canonical = 0x7FC0'0000;
  std::memcpy(&result[4], &canonical, 4);
  hand.result(0, 100, result);
  CHECK_FALSE(hand.completion().error);
  CHECK(std::memcmp(output.data(), result.data(), 20) == 0);
}

TEST_CASE("unaligned vectors", "[engine][stream]") {
  Hand hand;
  hand.join();
  std::vector<std::uint8_t> raw(4 * 20 + 1);
  const std::vector<float> values = counted(20);
  std::memcpy(raw.data() + 1, values.data(), 80);
  auto* odd = reinterpret_cast<float*>(raw.data() + 1);
  hand.sum({odd, 20}, {odd, 20});
  for (const auto& datagram : hand.sent()) hand.answer(datagram, 2);
  CHECK_FALSE(hand.completion().error);
  std::vector<float> got(20);
  std::memcpy(got.data(), raw.data() + 1, 80);
  for (std::size_t i = 0; i < 20; ++i) CHECK(got[i] == 2 * values[i]);
}

TEST_CASE("broadcast: only the root sends data, everybody takes the result", "[engine][stream]") {
  const bool root = GENERATE(true, false);
  Hand hand;
  hand.join();  // member 1
  std::vector<float> vector(10, root ? -0.0F : 9.0F);
  Request request;
  request.kind = wire::OperationKind::broadcast;
  request.root = root ? 1 : 2;
  request.output = vector;
  if (root) request.input = vector;
  request.deadline = second;
  hand.engine.submit(request, 0);
  const auto sent = hand.sent();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].header.operation_tag() ==
        wire::operation_tag(
            {.kind = wire::OperationKind::broadcast, .root = request.root, .elements = 10}));
  CHECK(sent[0].floats.size() == (root ? 8 : 0));
  CHECK(sent[1].floats.size() == (root ? 2 : 0));
  hand.result(0, 100, std::vector<float>(8, 0));
  hand.result(1, 100, std::vector<float>(2, 6));
  CHECK_FALSE(hand.completion().error);
  CHECK_FALSE(std::signbit(vector[0]));  // the root has the sum's bits, not its own
  CHECK(vector[9] == 6);
}

TEST_CASE("a forced broadcast without its root fails alone", "[engine][stream]") {
  Hand hand;
  hand.join();
  std::vector<float> vector(10, 1);
  Request request;
  request.kind = wire::OperationKind::broadcast;
  request.root = 3;
  request.output = vector;
  request.deadline = second;
  hand.engine.submit(request, 0);
  hand.barrier();
  REQUIRE(hand.sent().size() == 3);
  hand.result(0, 100, {}, 2, wire::flag::partial);
  CHECK(hand.idle());  // the other segment is still under way
  hand.result(1, 100, {5, 5});
  const Completion completion = hand.completion();
  CHECK(completion.error.code == ErrorCode::root_missing);
  CHECK(completion.error.text.find("rank 3") != std::string::npos);
  hand.result(2, 100, {});
  CHECK_FALSE(hand.completion().error);
}

TEST_CASE("copies, late results and results of others change nothing", "[engine][stream]") {
  Hand hand;
  hand.join();
  std::vector<float> first = counted(16);
  std::vector<float> second_vector = counted(16);
  hand.sum(first, first);
  REQUIRE(hand.sent().size() == 2);
  hand.result(0, 100, std::vector<float>(8, 4));
  hand.result(0, 100, std::vector<float>(8, 5));  // while the operation runs
  hand.result(1, 100, std::vector<float>(8, 4));
  CHECK_FALSE(hand.completion().error);
  hand.sum(second_vector, second_vector);
  hand.result(1, 100, std::vector<float>(8, 6));  // of the operation before
  REQUIRE(hand.sent().size() == 2);
  hand.result(1, 100, std::vector<float>(8, 6));
  CHECK(hand.engine.statistics().duplicate_results == 3);
  hand.result(2, 101, std::vector<float>(8, 7));     // another round
  hand.result(2, 99, std::vector<float>(8, 7));      // before the epoch
  hand.result(4, 100, std::vector<float>(8, 7));     // not contributed yet
  hand.result(5000, 100, std::vector<float>(8, 7));  // no such slot
  std::vector<std::uint8_t> other = hand.result_bytes(2, 100, std::vector<float>(8, 7));
  other[3] = 8;  // another job
  hand.receive(other);
  hand.result(2, 100, std::vector<float>(8, 7), 0);     // nobody in the sum
  hand.result(2, 100, std::vector<float>(8, 7), 4, 1);  // float16
  CHECK(hand.engine.statistics().ignored == 7);
  hand.receive(std::vector<std::uint8_t>(10, 0x10));
  CHECK(hand.engine.statistics().malformed == 1);
  CHECK(hand.idle());
  CHECK(first[0] == 4);
  CHECK(second_vector == counted(16));
  hand.result(2, 100, std::vector<float>(8, 1));
  hand.result(3, 100, std::vector<float>(8, 2));
  CHECK_FALSE(hand.completion().error);
  CHECK(second_vector[0] == 1);
  CHECK(second_vector[15] == 2);
}

TEST_CASE("a result of another length is a mismatch", "[engine][stream]") {
  Hand hand;
  hand.join();
  std::vector<float> vector = counted(12);
  hand.sum(vector, vector);
  hand.sent();
  hand.result(1, 100, std::vector<float>(8, 1));
  const Completion completion = hand.completion();
  CHECK(completion.error.code == ErrorCode::mismatch);
  CHECK(vector == counted(12));
}

TEST_CASE("requests that cannot be carried out", "[engine][stream]") {
  Hand hand;
  std::vector<float> vector = counted(12);
  hand.sum(vector, vector);
  CHECK(hand.completion().error.code == ErrorCode::not_joined);
  hand.join();
  const std::span<float> span(vector);
  hand.sum(span.first(5), span.first(6));
  CHECK(hand.completion().error.code == ErrorCode::bad_argument);
  hand.sum(span.first(8), span.subspan(4, 8));
  CHECK(hand.completion().error.code == ErrorCode::bad_argument);
  hand.sum(span.first(6), span.subspan(6));
  CHECK(hand.idle());
  CHECK(hand.sent().size() == 1);
}

TEST_CASE("congestion marks: echoed once, counted, and the window shrinks", "[engine][stream]") {
  EngineOptions options = Hand::default_options();
  options.ecn = true;
  Hand hand(options);
  hand.join();
  std::vector<float> vector = counted(8 * 200);
  hand.sum(vector, vector);
  auto sent = hand.sent();
  REQUIRE(sent.size() == 10);
  CHECK(sent[0].tos == 0xAE);
  const std::uint32_t before = hand.engine.statistics().window_bytes;
  hand.now += millisecond;
  hand.result(0, 100, std::vector<float>(8, 1), 4, 0, wire::Ecn::ce);
  hand.result(1, 100, std::vector<float>(8, 1), 4, wire::flag::ecn_echo);
  CHECK(hand.engine.statistics().ecn_marks == 2);
  CHECK(hand.engine.statistics().window_bytes == before / 2);  // once a window
  for (std::uint32_t i = 2; i < 10; ++i) hand.result(i, 100, std::vector<float>(8, 1));
  sent = hand.sent();
  REQUIRE(sent.size() >= 2);
  CHECK((sent[0].header.flags & wire::flag::ecn_echo) != 0);
  CHECK((sent[1].header.flags & wire::flag::ecn_echo) == 0);
}

TEST_CASE("the window never exceeds what the receive buffer holds", "[engine][stream]") {
  Hand hand;
  hand.join();
  hand.engine.limit_receive_datagrams(3);
  std::vector<float> vector = counted(80);
  hand.sum(vector, vector);
  std::size_t sent = 0;
  while (sent < 10) {
    const auto now = hand.sent();
    REQUIRE(!now.empty());
    REQUIRE(now.size() <= 3);
    sent += now.size();
    for (const auto& datagram : now) hand.answer(datagram);
  }
  CHECK_FALSE(hand.completion().error);
}
