// Pushes and updates by hand-made frames: every rule of protocol.md section 5 that a member keeps.
#include <algorithm>
#include <map>

#include "tests/unit/engine/hand.h"

using namespace iswitch;
using namespace iswitch::agent;

namespace {

constexpr std::uint64_t elements = 20;  // segments of 8, 8 and 4 floats
constexpr std::uint32_t segments = 3;
constexpr wire::MemberMask mine = 1U << 1;
constexpr wire::MemberMask others = 1U << 0;

class AsyncHand : public Hand {
 public:
  explicit AsyncHand(std::uint32_t base_round = 100, std::uint64_t floats = elements)
      : Hand(async(default_options(), floats), async(default_job(), 8)) {
    job.base_round = base_round;
  }

  /// Joins a job that runs; gives the Help that asks whether anything has happened.
  SentDatagram join_running() {
    join();
    const auto helps = requests(sent(), wire::Action::help);
    REQUIRE(helps.size() == 1);
    return helps[0];
  }

  std::size_t floats_of(std::uint32_t segment) const {
    return std::min<std::size_t>(options.elements - std::size_t{segment} * 8, 8);
  }
  void update(std::uint32_t segment, std::uint32_t number, float value,
              wire::MemberMask members = others, std::uint16_t workers = 1) {
    receive(result_bytes(segment, number, std::vector<float>(floats_of(segment), value), workers, 0,
                         members));
  }
  /// Everything that can be taken: segment, number, first value.
  struct Taken {
    std::uint32_t segment, number;
    float value;
    bool operator==(const Taken&) const = default;
  };
  std::vector<Taken> taken() {
    std::vector<Taken> all;
    while (auto update = engine.take_update()) {
      REQUIRE(update->values.size() == floats_of(update->segment));
      REQUIRE(update->first == update->segment * 8);
      all.push_back({update->segment, update->number, update->values[0]});
    }
    return all;
  }
  OperationId push(const std::vector<float>& gradient, Time timeout = 10 * second) {
    return engine.push(gradient, now + timeout, now);
  }
  SentDatagram only(const std::vector<SentDatagram>& all) {
    REQUIRE(all.size() == 1);
    return all[0];
  }
  SentDatagram help(Time within) { return only(requests(run_for(within), wire::Action::help)); }
  static wire::SlotBody asked(const SentDatagram& help) {
    return wire::read_slot(Bytes(help.body()).first(wire::SlotBody::bytes));
  }
  static std::uint32_t incarnation(const SentDatagram& join) {
    const auto body = wire::read_join(join.body());
    REQUIRE(body.has_value());
    return body->incarnation;
  }
  void reply_gone(const SentDatagram& help) {
    const wire::SlotBody slot = asked(help);
    wire::ReplyBody body = job;
    body.status = wire::Status::gone;
    body.missing = std::uint64_t{slot.segment} << 32 | slot.round;
    reply(help, body);
  }
};

std::vector<float> vector_of(float value) { return std::vector<float>(elements, value); }

using Taken = AsyncHand::Taken;

/// A push of `count` segments of 8 floats.
struct Wide : AsyncHand {
  Wide(std::uint32_t count, std::uint32_t receive_datagrams)
      : AsyncHand(100, std::uint64_t{count} * 8), gradient(options.elements, 1.0F) {
    join_forming();
    engine.limit_receive_datagrams(receive_datagrams);
  }
  std::vector<std::uint32_t> slots_sent() {
    std::vector<std::uint32_t> slots;
    for (const SentDatagram& push : contributions(sent()))
      if (!push.retransmitted()) slots.push_back(push.header.segment);
    return slots;
  }
  std::vector<float> gradient;
};

using Slots = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("a push is one contribution a slot, numbered from base_round + 1", "[engine][async]") {
  AsyncHand hand;
  const auto gradient = counted(elements);
  hand.join_forming();
  const OperationId id = hand.push(gradient);
  const auto sent = contributions(hand.sent());
  REQUIRE(sent.size() == segments);
  for (std::uint32_t slot = 0; slot < segments; ++slot) {
    CHECK(sent[slot].header.segment == slot);
    CHECK(sent[slot].header.round == 101);
    CHECK(sent[slot].header.set == wire::contribution_set(hand.options.incarnation, 1));
    CHECK(sent[slot].header.member == 1);
    CHECK(sent[slot].floats ==
          std::vector<float>(gradient.begin() + slot * 8,
                             gradient.begin() + std::min<std::uint32_t>(slot * 8 + 8, elements)));
  }
  SECTION("acknowledged by the first result with this member's bit") {
    hand.update(0, 101, 1, others);
    hand.update(0, 102, 2, others | mine, 2);
    hand.update(1, 101, 3, mine);
    CHECK(hand.idle());
    hand.update(2, 101, 4, mine, 3);
    const Completion completion = hand.completion();
    CHECK(completion.id == id);
    CHECK_FALSE(completion.error);
    CHECK(completion.smallest_workers == 1);
    CHECK(hand.taken() == std::vector<Taken>{{0, 101, 1}, {1, 101, 3}, {2, 101, 4}, {0, 102, 2}});
  }
  SECTION("one a slot: the next push follows slot by slot") {
    const auto second_gradient = counted(elements, 50);
    const OperationId later = hand.push(second_gradient);
    CHECK(contributions(hand.sent()).empty());
    hand.update(0, 101, 1, mine);
    auto next = contributions(hand.sent());
    REQUIRE(next.size() == 1);
    CHECK(next[0].header.segment == 0);
    CHECK(next[0].header.round == 102);
    CHECK(next[0].floats[0] == 50);
    hand.update(2, 101, 1, mine);
    next = contributions(hand.sent());
    REQUIRE(next.size() == 1);
    CHECK(next[0].header.segment == 2);  // whatever slot 1 waits for
    hand.update(1, 101, 1, mine);
    CHECK(hand.completion().id == id);
    CHECK(contributions(hand.sent()).size() == 1);
    for (std::uint32_t slot = 0; slot < segments; ++slot) hand.update(slot, 102, 1, mine);
    CHECK(hand.completion().id == later);
  }
  SECTION("sent again until acknowledged, unchanged but for RETRANSMIT") {
    const auto again = contributions(hand.run_for(300 * millisecond));
    REQUIRE_FALSE(again.empty());
    std::vector<bool> seen(segments, false);
    for (const SentDatagram& one : again) {
      CHECK(one.retransmitted());
      CHECK(one.header.round == 101);
      CHECK(one.floats == sent[one.header.segment].floats);
      seen[one.header.segment] = true;
    }
    CHECK(seen == std::vector<bool>(segments, true));  // each has its turn
    for (std::uint32_t slot = 0; slot < segments; ++slot) hand.update(slot, 101, 1, mine);
    CHECK_FALSE(hand.completion().error);
    CHECK(contributions(hand.run_for(5 * second)).empty());
  }
  SECTION("a copy of an older result acknowledges nothing") {
    for (std::uint32_t slot = 0; slot < segments; ++slot) hand.update(slot, 101, 1, mine);
    CHECK_FALSE(hand.completion().error);
    hand.push(gradient);
    CHECK(contributions(hand.sent()).size() == segments);
    for (std::uint32_t slot = 0; slot < segments; ++slot) hand.update(slot, 101, 1, mine);
    CHECK(hand.idle());
    CHECK(hand.engine.statistics().duplicate_results == segments);
  }
}

TEST_CASE("numbers and updates wrap", "[engine][async]") {
  AsyncHand hand(0xFFFF'FFFE);
  hand.join_forming();
  const auto gradient = counted(elements);
  for (std::uint32_t number : {0xFFFF'FFFFU, 0U, 1U, 2U}) {
    hand.push(gradient);
    const auto sent = contributions(hand.sent());
    REQUIRE(sent.size() == segments);
    CHECK(sent[0].header.round == number);
    for (std::uint32_t slot = 0; slot < segments; ++slot)
      hand.update(slot, number, static_cast<float>(number & 7), mine);
    CHECK_FALSE(hand.completion().error);
    const auto taken = hand.taken();
    REQUIRE(taken.size() == segments);
    CHECK(taken[2] == Taken{2, number, static_cast<float>(number & 7)});
  }
}

TEST_CASE("updates come once and in order of their slot; a hole is asked for", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  hand.update(0, 102, 2);
  CHECK(hand.taken().empty());
  hand.update(1, 101, 7);
  CHECK(hand.taken() == std::vector<Taken>{{1, 101, 7}});
  const SentDatagram help = hand.help(3 * millisecond);
  CHECK(hand.asked(help).segment == 0);
  CHECK(hand.asked(help).round == 101);
  SECTION("again with time-outs") {
    const auto more = requests(hand.run_for(3 * second), wire::Action::help);
    const auto for_hole = std::count_if(more.begin(), more.end(), [](const SentDatagram& one) {
      return AsyncHand::asked(one).segment == 0 && AsyncHand::asked(one).round == 101;
    });
    CHECK(for_hole >= 4);
    CHECK(for_hole <= 20);
  }
  SECTION("filled: both are delivered; copies and late copies are not") {
    hand.update(0, 102, 99);
    hand.update(0, 101, 1);
    CHECK(hand.taken() == std::vector<Taken>{{0, 101, 1}, {0, 102, 2}});
    hand.update(0, 101, 98);
    hand.update(0, 102, 97);
    hand.update(0, 100, 96);  // not of this job's numbers
    CHECK(hand.taken().empty());
    hand.update(0, 103, 3);
    CHECK(hand.taken() == std::vector<Taken>{{0, 103, 3}});
  }
}

TEST_CASE("an empty result is an update of zeros", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  hand.receive(hand.result_bytes(1, 101, {}, 2, wire::flag::partial));
  const auto update = hand.engine.take_update();
  REQUIRE(update.has_value());
  CHECK(std::vector<float>(update->values.begin(), update->values.end()) ==
        std::vector<float>(8, 0.0F));
  CHECK(update->workers == 2);
  CHECK(update->partial);
}

TEST_CASE("what is asked for at once leaves room for other data in the receive buffer",
          "[engine][async]") {
  constexpr std::uint32_t many = 32;
  const std::uint32_t datagrams = GENERATE(1, 8, 64);
  Wide hand(many, datagrams);
  for (std::uint32_t segment = 0; segment < many; ++segment) hand.update(segment, 102, 1);
  // A result and a reply each.
  const std::size_t most = std::clamp(datagrams / 4, 1U, 8U);
  std::vector<SentDatagram> burst;
  std::vector<bool> seen(many, false);
  for (const SentDatagram& help : requests(hand.run_for(100 * millisecond), wire::Action::help)) {
    if (!burst.empty() && help.at != burst.back().at) burst.clear();
    burst.push_back(help);
    CHECK(burst.size() <= most);
    seen[hand.asked(help).segment] = true;
  }
  CHECK(seen == std::vector<bool>(many, true));
}

TEST_CASE("a slot behind the others, or silent while something is outstanding, is asked about",
          "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  SECTION("behind") {
    hand.update(0, 101, 1);
    hand.update(1, 101, 1);
    const auto helps = requests(hand.run_for(45 * millisecond), wire::Action::help);
    REQUIRE_FALSE(helps.empty());
    CHECK(hand.asked(helps[0]).segment == 2);
    CHECK(hand.asked(helps[0]).round == 101);
  }
  SECTION("level, with a push outstanding: one slot after the other") {
    const auto gradient = counted(elements);
    hand.push(gradient);
    const auto helps = requests(hand.run_for(2 * second), wire::Action::help);
    REQUIRE(helps.size() >= 4);
    CHECK(helps.size() <= 60);
    std::vector<bool> seen(segments, false);
    for (const SentDatagram& help : helps) {
      CHECK(hand.asked(help).round == 101);
      seen[hand.asked(help).segment] = true;
    }
    CHECK(seen == std::vector<bool>(segments, true));
  }
  SECTION("level and nothing outstanding: slowly") {
    hand.update(0, 101, 1);
    hand.update(1, 101, 1);
    hand.update(2, 101, 1);
    const auto helps = requests(hand.run_for(10 * second), wire::Action::help);
    CHECK(helps.size() >= 5 * segments);
    CHECK(helps.size() <= 12 * segments);
    for (const SentDatagram& help : helps) CHECK(hand.asked(help).round == 102);
  }
}

TEST_CASE("a member of a job at work asks whether anything has happened", "[engine][async]") {
  AsyncHand hand;
  const auto gradient = vector_of(1);
  const SentDatagram help = hand.join_running();
  CHECK(hand.asked(help).segment == 0);
  CHECK(hand.asked(help).round == 101);
  hand.push(gradient);
  CHECK(contributions(hand.sent()).empty());  // not before it is known
  SECTION("nothing: its user may know that the weights are right") {
    hand.reply(help, wire::Status::ok);
    CHECK(hand.completion().error.code == ErrorCode::gone);
    const auto event = hand.engine.take_event();
    REQUIRE(event.has_value());
    CHECK(event->kind == EventKind::joined);
    CHECK(event->untouched);
    CHECK(hand.engine.numbers().last == std::vector<std::uint32_t>(segments, 100));
    CHECK_FALSE(hand.engine.resume(hand.engine.numbers(), hand.now));
    hand.push(gradient);
    CHECK(contributions(hand.sent()).size() == segments);
  }
  SECTION("the question is repeated") {
    CHECK(requests(hand.run_for(200 * millisecond), wire::Action::help).size() >= 2);
  }
  SECTION("something: it needs weights") {
    const bool by_result = GENERATE(true, false);
    if (by_result)
      hand.update(1, 130, 5);
    else
      hand.reply_gone(help);
    CHECK(hand.engine.needs_weights());
    CHECK(hand.completion().error.code == ErrorCode::gone);
    const auto event = hand.engine.take_event();
    REQUIRE(event.has_value());
    CHECK(event->kind == EventKind::joined);
    CHECK(event->base_round == 100);
    CHECK_FALSE(event->untouched);
    CHECK(event->text.find("resume") != std::string::npos);
    hand.update(0, 130, 4);
    hand.update(0, 131, 3);
    CHECK(hand.taken().empty());
    CHECK(hand.engine.state() == EngineState::running);  // its place is good
    REQUIRE_FALSE(hand.engine.resume({100, {130, 129, 129}}, hand.now));
    const auto taken = hand.taken();
    CHECK(taken == (by_result ? std::vector<Taken>{{0, 131, 3}, {1, 130, 5}}
                              : std::vector<Taken>{{0, 131, 3}}));
    hand.push(gradient);
    const auto sent = contributions(hand.sent());
    REQUIRE(sent.size() == segments);
    CHECK(sent[0].header.round == 101);
    CHECK(sent[0].header.operation_tag() == hand.options.incarnation);
  }
}

TEST_CASE("gone: a new incarnation, silence, and weights from a peer", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  const auto gradient = vector_of(1);
  hand.update(0, 101, 1);
  hand.update(1, 101, 1);
  hand.update(2, 101, 1);
  CHECK(hand.taken().size() == 3);
  hand.push(gradient);
  hand.push(gradient);
  CHECK(contributions(hand.sent()).size() == segments);
  hand.update(1, 120, 20);
  const SentDatagram help = hand.help(3 * millisecond);
  CHECK(hand.asked(help).round == 102);

  enum class Word { late, answer, unasked };
  const Word word = GENERATE(Word::late, Word::answer, Word::unasked);
  if (word == Word::late) {  // about updates that have come: it means nothing
    for (std::uint32_t number = 102; number < 106; ++number) hand.update(1, number, 1);
    hand.reply_gone(help);
    hand.unasked(wire::Status::gone, 1, 105);
    hand.unasked(wire::Status::gone, 0, 101);
    CHECK_FALSE(hand.engine.needs_weights());
    CHECK(hand.engine.state() == EngineState::running);
    return;
  }
  if (word == Word::answer)
    hand.reply_gone(help);
  else
    hand.unasked(wire::Status::gone, 1, 102);  // a child switch tells its members
  CHECK(hand.completion().error.code == ErrorCode::gone);
  CHECK(hand.completion().error.code == ErrorCode::gone);
  CHECK(hand.idle());
  const auto event = hand.engine.take_event();
  REQUIRE(event.has_value());
  CHECK(event->kind == EventKind::gone);
  CHECK_FALSE(hand.engine.take_event().has_value());
  CHECK(hand.engine.state() == EngineState::joining);

  const auto asked = hand.run_for(100 * millisecond);
  CHECK(contributions(asked).empty());
  CHECK(requests(asked, wire::Action::help).empty());
  const auto joins = requests(asked, wire::Action::join);
  REQUIRE_FALSE(joins.empty());
  const std::uint32_t incarnation = hand.incarnation(joins[0]);
  CHECK(incarnation != hand.options.incarnation);
  CHECK(wire::read_join(joins[0].body())->wanted_member == 1);
  CHECK(hand.incarnation(joins.back()) == incarnation);  // a repetition is the same
  hand.update(1, 121, 21);                               // meanwhile
  hand.reply(joins.back(), hand.job);
  CHECK(hand.engine.state() == EngineState::running);
  CHECK(hand.engine.needs_weights());
  hand.update(1, 122, 22);
  hand.update(0, 119, 0);
  CHECK(hand.taken().empty());
  hand.push(gradient);
  CHECK(hand.completion().error.code == ErrorCode::gone);
  CHECK(contributions(hand.run_for(second)).empty());

  // Weights that lack it too would only be gone again.
  const Error lacking = hand.engine.resume({100, {119, 101, 119}}, hand.now);
  CHECK(lacking.code == ErrorCode::gone);
  CHECK(lacking.text.find("update 102 of segment 1") != std::string::npos);
  CHECK(hand.engine.needs_weights());
  if (GENERATE(true, false)) {
    REQUIRE_FALSE(hand.engine.resume({100, {119, 102, 119}}, hand.now));
    CHECK_FALSE(hand.engine.needs_weights());
    return;
  }
  REQUIRE_FALSE(hand.engine.resume({100, {119, 120, 119}}, hand.now));
  CHECK_FALSE(hand.engine.needs_weights());
  CHECK(hand.taken() == std::vector<Taken>{{1, 121, 21}, {1, 122, 22}});
  CHECK(hand.engine.numbers().last == std::vector<std::uint32_t>{119, 122, 119});
  hand.push(gradient);
  const auto sent = contributions(hand.sent());
  REQUIRE(sent.size() == segments);
  CHECK(sent[0].header.round == 101);
  CHECK(sent[0].header.operation_tag() == incarnation);
}

TEST_CASE("a Reset: all take one peer's weights", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  const auto gradient = vector_of(1);
  hand.update(0, 101, 1);
  hand.push(gradient);
  CHECK(contributions(hand.sent()).size() == segments);
  hand.request_reset(500);
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  const auto event = hand.engine.take_event();
  REQUIRE(event.has_value());
  CHECK(event->kind == EventKind::reset);
  CHECK(event->base_round == 500);
  CHECK(hand.taken().empty());  // of the time before
  hand.job.base_round = 500;

  SECTION("numbers of the time before are refused") {
    const Error error = hand.engine.resume({100, {101, 101, 101}}, hand.now);
    CHECK(error.code == ErrorCode::job_reset);
    CHECK(hand.engine.needs_weights());
  }
  SECTION("numbers of another vector, or from before the beginning, are refused") {
    CHECK(hand.engine.resume({500, {500, 500}}, hand.now).code == ErrorCode::bad_argument);
    CHECK(hand.engine.resume({500, {500, 500, 499}}, hand.now).code == ErrorCode::bad_argument);
    CHECK(hand.engine.needs_weights());
  }
  SECTION("another Reset before that") {
    hand.request_reset(600);
    CHECK(hand.engine.take_event()->base_round == 600);
    CHECK(hand.engine.resume({500, {500, 500, 500}}, hand.now).code == ErrorCode::job_reset);
    CHECK_FALSE(hand.engine.resume(hand.engine.numbers(), hand.now));
  }
  SECTION("its own weights are the ones") {
    hand.update(2, 501, 9);
    CHECK(hand.taken().empty());
    REQUIRE_FALSE(hand.engine.resume(hand.engine.numbers(), hand.now));
    CHECK(hand.taken() == std::vector<Taken>{{2, 501, 9}});
    hand.update(2, 102, 8);  // a late copy from before the Reset
    CHECK(hand.taken().empty());
    hand.push(gradient);
    const auto sent = contributions(hand.sent());
    REQUIRE(sent.size() == segments);
    CHECK(sent[0].header.round == 501);
  }
}

TEST_CASE("newer weights may be taken at any time, older ones not", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  for (std::uint32_t number = 101; number < 104; ++number) hand.update(0, number, 1);
  CHECK(hand.engine.take_update()->number == 101);
  CHECK(hand.engine.resume({100, {100, 100, 100}}, hand.now).code == ErrorCode::bad_argument);
  REQUIRE_FALSE(hand.engine.resume({100, {101, 100, 100}}, hand.now));
  CHECK(hand.engine.take_update()->number == 102);
  REQUIRE_FALSE(hand.engine.resume({100, {110, 105, 100}}, hand.now));
  CHECK(hand.taken().empty());
  hand.update(0, 111, 1);
  hand.update(1, 106, 1);
  hand.update(2, 101, 1);
  CHECK(hand.taken() == std::vector<Taken>{{0, 111, 1}, {1, 106, 1}, {2, 101, 1}});
}

TEST_CASE("a lost place: pushes fail, updates go on", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  const auto gradient = vector_of(1);
  hand.update(0, 101, 1);
  CHECK(hand.taken().size() == 1);
  hand.push(gradient);
  CHECK(contributions(hand.sent()).size() == segments);
  wire::ReplyBody nobody;
  nobody.status = wire::Status::not_a_member;
  hand.unasked(nobody);
  const auto pings = requests(hand.sent(), wire::Action::ping);
  REQUIRE(pings.size() == 1);
  hand.reply(pings[0], nobody);
  CHECK(hand.completion().error.code == ErrorCode::job_reset);
  const auto joins = requests(hand.sent(), wire::Action::join);
  REQUIRE(joins.size() == 1);
  const std::uint32_t incarnation = hand.incarnation(joins[0]);
  CHECK(incarnation != hand.options.incarnation);  // late copies of what it sent mean nothing
  SECTION("the same job") {
    hand.reply(joins[0], hand.job);
    CHECK_FALSE(hand.engine.needs_weights());
    CHECK_FALSE(hand.engine.take_event().has_value());
    hand.update(0, 102, 2);
    CHECK(hand.taken() == std::vector<Taken>{{0, 102, 2}});
    hand.push(gradient);
    const auto sent = contributions(hand.sent());
    REQUIRE(sent.size() == segments);
    CHECK(sent[0].header.round == 101);
    CHECK(sent[0].header.operation_tag() == incarnation);
  }
  SECTION("another life of it") {
    hand.job.base_round = GENERATE(90U, 5000U);
    hand.reply(joins[0], hand.job);
    CHECK(hand.engine.needs_weights());
    CHECK(hand.engine.take_event()->kind == EventKind::reset);
    CHECK_FALSE(hand.engine.resume(hand.engine.numbers(), hand.now));
  }
}

TEST_CASE("a push that fails fails alone", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  const auto gradient = vector_of(1);
  const OperationId first = hand.push(gradient, 50 * millisecond);
  const auto patient = vector_of(2);
  const OperationId later = hand.push(patient);
  const OperationId third = hand.push(gradient, 40 * millisecond);
  CHECK(contributions(hand.sent()).size() == segments);
  hand.update(1, 101, 1, mine);
  const auto all = hand.run_for(60 * millisecond);
  const auto failed_third = hand.completion();
  CHECK(failed_third.id == third);
  CHECK(failed_third.error.code == ErrorCode::timed_out);
  const auto failed_first = hand.completion();
  CHECK(failed_first.id == first);
  CHECK(failed_first.error.code == ErrorCode::timed_out);
  CHECK(hand.idle());
  // The second has gone where the first was acknowledged. Elsewhere the first may have been summed,
  // so it goes on until that is known.
  for (const SentDatagram& one : contributions(all)) {
    if (one.header.segment != 1) continue;
    CHECK(one.header.round == 102);
    CHECK(one.floats[0] == 2);
  }
  const auto rest = contributions(hand.run_for(300 * millisecond));
  std::vector<bool> goes_on(segments, false);
  for (const SentDatagram& one : rest) {
    if (one.header.segment == 1) continue;
    CHECK(one.header.round == 101);
    CHECK(one.floats[0] == 1);
    CHECK(one.retransmitted());
    goes_on[one.header.segment] = true;
  }
  CHECK(goes_on == std::vector<bool>{true, false, true});
  hand.update(0, 101, 1, mine);
  hand.update(2, 101, 1, mine);
  CHECK(hand.idle());
  const auto sent = contributions(hand.sent());
  REQUIRE(sent.size() == 2);
  for (const SentDatagram& one : sent) {
    CHECK(one.header.round == 102);
    CHECK(one.floats[0] == 2);
  }
  for (std::uint32_t slot = 0; slot < segments; ++slot) hand.update(slot, 102, 1, mine);
  CHECK(hand.completion().id == later);
  hand.push(gradient);
  const auto last = contributions(hand.sent());
  REQUIRE(last.size() == segments);
  CHECK(last[0].header.round == 104);  // 103 was the third's
}

TEST_CASE("pushes that are given up end at once, and numbers go on", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  const auto gradient = vector_of(1);
  const OperationId first = hand.push(gradient);
  const OperationId later = hand.push(gradient);
  CHECK(contributions(hand.sent()).size() == segments);
  hand.engine.give_up_pushes(hand.now);
  CHECK(hand.completion().id == first);
  CHECK(hand.completion().id == later);
  CHECK(contributions(hand.run_for(iswitch::second)).empty());
  hand.update(0, 101, 1, mine);  // a part of it had been summed
  CHECK(hand.taken().size() == 1);
  hand.push(gradient);
  const auto sent = contributions(hand.sent());
  REQUIRE(sent.size() == segments);
  CHECK(sent[0].header.round == 103);
}

TEST_CASE("why a push did not end", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  const auto gradient = vector_of(1);
  hand.push(gradient, 300 * millisecond);
  const auto answered = [&](wire::Status status, wire::JobState state) {
    hand.job.state = state;
    for (int i = 0; i < 40; ++i) {
      for (const SentDatagram& one : hand.run_for(10 * millisecond))
        if (one.header.type == wire::Type::request) hand.reply(one, wire::Status::ok);
      if (status != wire::Status::ok) {
        wire::ReplyBody body = hand.job;
        body.status = status;
        hand.unasked(body);
      }
    }
    return hand.completion().error;
  };
  SECTION("too few push") {
    const Error error = answered(wire::Status::ok, wire::JobState::running);
    CHECK(error.code == ErrorCode::timed_out);
    CHECK(error.text.find("3 of its 3 segments") != std::string::npos);
  }
  SECTION("the job is halted") {
    const Error error = answered(wire::Status::halted, wire::JobState::halted);
    CHECK(error.code == ErrorCode::halted);
  }
  SECTION("the parent is not ready") {
    const Error error = answered(wire::Status::parent_not_ready, wire::JobState::halted);
    CHECK(error.code == ErrorCode::halted);
    hand.push(gradient, 300 * millisecond);
    hand.job.state = wire::JobState::forming;
    wire::ReplyBody body = hand.job;
    body.status = wire::Status::parent_not_ready;
    for (int i = 0; i < 40; ++i) {
      for (const SentDatagram& one : hand.run_for(10 * millisecond))
        if (one.header.type == wire::Type::request) hand.reply(one, body);
    }
    const Error again = hand.completion().error;
    CHECK(again.status == wire::Status::parent_not_ready);
    CHECK(again.text.find("parent") != std::string::npos);
  }
}

TEST_CASE("halted: pushes wait, nothing is lost", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  const auto gradient = vector_of(1);
  hand.request(wire::Action::halt);
  hand.push(gradient);
  CHECK(contributions(hand.run_for(2 * second)).empty());
  hand.update(0, 101, 1);
  CHECK(hand.taken().size() == 1);
  hand.request(wire::Action::resume);
  CHECK(contributions(hand.sent()).size() == segments);
}

TEST_CASE("what the user does not take is kept within bounds, then asked for again",
          "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  for (std::uint32_t number = 101; number < 141; ++number) hand.update(0, number, 1);
  CHECK(hand.engine.statistics().updates_refused == 24);  // 16 kept: twice the switch's history
  const auto quiet = requests(hand.run_for(5 * millisecond), wire::Action::help);
  for (const SentDatagram& help : quiet) CHECK(hand.asked(help).segment != 0);
  CHECK(hand.taken().size() == 16);
  const auto helps = requests(hand.run_for(100 * millisecond), wire::Action::help);
  const auto again = std::find_if(helps.begin(), helps.end(), [](const SentDatagram& help) {
    return AsyncHand::asked(help).segment == 0;
  });
  REQUIRE(again != helps.end());
  CHECK(hand.asked(*again).round == 117);
}

TEST_CASE("members that disagree on the vector are told", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  const auto gradient = vector_of(1);
  hand.push(gradient);
  CHECK(contributions(hand.sent()).size() == segments);
  SECTION("by the switch") {
    hand.unasked(wire::Status::mismatch, 2, 99);  // not outstanding
    CHECK(hand.idle());
    hand.unasked(wire::Status::mismatch, 2, 101);
    CHECK(hand.completion().error.code == ErrorCode::mismatch);
    for (const SentDatagram& one : contributions(hand.run_for(second)))
      CHECK(one.header.round == 101);
    for (std::uint32_t slot = 0; slot < segments; ++slot) hand.update(slot, 101, 1, mine);
    CHECK(hand.idle());
  }
  SECTION("by another's update") {
    hand.receive(hand.result_bytes(2, 101, std::vector<float>(8, 1.0F), 1, 0, others));
    CHECK(hand.completion().error.code == ErrorCode::mismatch);
    CHECK(contributions(hand.run_for(second)).empty());
  }
  hand.push(gradient);
  const auto sent = contributions(hand.sent());
  REQUIRE(sent.size() == segments);
  CHECK(sent[0].header.round == 102);
}

TEST_CASE("what a job or a call does not fit is refused", "[engine][async]") {
  SECTION("a synchronous job") {
    AsyncHand hand;
    hand.job.mode = wire::Mode::sync;
    hand.engine.join(hand.now, hand.now + second);
    hand.reply(hand.sent().at(0), hand.job);
    CHECK(hand.engine.state() == EngineState::failed);
    CHECK(hand.engine.join_error().text.find("synchronous") != std::string::npos);
  }
  SECTION("an asynchronous job for a synchronous agent") {
    Hand hand;
    hand.job.mode = wire::Mode::async;
    hand.engine.join(hand.now, hand.now + second);
    const auto joins = hand.sent();
    CHECK(wire::read_join(joins.at(0).body())->mode == wire::Mode::sync);
    hand.reply(joins[0], hand.job);
    CHECK(hand.engine.state() == EngineState::failed);
  }
  SECTION("a vector larger than the job's slots") {
    AsyncHand hand;
    hand.job.slots = 2;
    hand.engine.join(hand.now, hand.now + second);
    const auto joins = hand.sent();
    CHECK(wire::read_join(joins.at(0).body())->mode == wire::Mode::async);
    hand.reply(joins[0], hand.job);
    CHECK(hand.engine.state() == EngineState::failed);
    CHECK(hand.engine.join_error().text.find("20") != std::string::npos);
  }
  SECTION("calls of the other mode, another length, out of time") {
    AsyncHand hand;
    const auto gradient = vector_of(1);
    hand.push(gradient);
    CHECK(hand.completion().error.code == ErrorCode::not_joined);
    hand.join_forming();
    hand.barrier();
    CHECK(hand.completion().error.code == ErrorCode::bad_argument);
    hand.engine.push(std::span(gradient).first(19), never, hand.now);
    CHECK(hand.completion().error.code == ErrorCode::bad_argument);
    Hand sync;
    sync.join();
    sync.engine.push(gradient, never, sync.now);
    CHECK(sync.completion().error.code == ErrorCode::bad_argument);
    CHECK(sync.engine.resume({}, sync.now).code == ErrorCode::bad_argument);
    CHECK_FALSE(sync.engine.take_update().has_value());
    hand.engine.leave(hand.now, hand.now + second);
    hand.push(gradient);
    CHECK(hand.completion().error.code == ErrorCode::closed);
  }
}

TEST_CASE("pushes submitted before the job runs go when it does", "[engine][async]") {
  AsyncHand hand;
  const auto gradient = vector_of(1);
  hand.engine.join(hand.now, hand.now + 10 * second);
  const OperationId id = hand.push(gradient);
  wire::ReplyBody forming = hand.job;
  forming.state = wire::JobState::forming;
  hand.reply(hand.sent().at(0), forming);
  const auto polls = requests(hand.run_for(second), wire::Action::join);
  hand.reply(polls.back(), hand.job);
  CHECK(contributions(hand.sent()).size() == segments);
  for (std::uint32_t slot = 0; slot < segments; ++slot) hand.update(slot, 101, 1, mine);
  CHECK(hand.completion().id == id);
}

TEST_CASE("pushes go by the update that they are meant for, then by slot", "[engine][async]") {
  Wide hand(6, 2);
  const std::map<std::uint32_t, std::uint32_t> updates{{0, 103}, {1, 101}, {3, 101}, {5, 102}};
  for (const auto& [slot, newest] : updates)
    for (std::uint32_t number = 101; number <= newest; ++number) hand.update(slot, number, 1);
  hand.push(hand.gradient);
  CHECK(hand.slots_sent() == Slots{2, 4});
  hand.update(2, 101, 1, mine);
  CHECK(hand.slots_sent() == Slots{1});
  // Of what waits, slot 3 is meant for a later one by now.
  for (std::uint32_t number = 102; number <= 105; ++number) hand.update(3, number, 1);
  hand.update(4, 101, 1, mine);
  CHECK(hand.slots_sent() == Slots{5});
  hand.update(1, 102, 1, mine);
  CHECK(hand.slots_sent() == Slots{0});
  hand.update(5, 103, 1, mine);
  CHECK(hand.slots_sent() == Slots{3});
}

TEST_CASE("the first push in order goes although the window is full of later ones",
          "[engine][async]") {
  constexpr std::uint32_t many = 40;
  enum class Full { buffer, window, losses };
  const Full why = GENERATE(Full::buffer, Full::window, Full::losses);
  CAPTURE(static_cast<int>(why));
  Wide hand(many, why == Full::buffer ? 4 : 1000);
  hand.push(hand.gradient);
  const Slots first = hand.slots_sent();
  REQUIRE(!first.empty());
  REQUIRE(first.size() < many / 2);
  if (why == Full::losses) {
    const auto again = contributions(hand.run_for(3 * second));
    REQUIRE(!again.empty());
    for (const SentDatagram& push : again) REQUIRE(push.retransmitted());
  }
  CHECK(hand.slots_sent().empty());
  // An update that this member is not in makes its push one for the next.
  std::uint32_t next = static_cast<std::uint32_t>(first.size());
  for (std::uint32_t slot = 1; slot < next; ++slot) hand.update(slot, 101, 1);
  CHECK(hand.slots_sent().empty());  // slot 0 is still the first
  hand.update(0, 101, 1);
  CHECK(hand.slots_sent() == Slots{next});
  hand.update(next, 101, 1);
  CHECK(hand.slots_sent() == Slots{next + 1});
  CHECK(hand.slots_sent().empty());
}

TEST_CASE("the switch's Help has an outstanding push sent again", "[engine][async]") {
  AsyncHand hand;
  hand.join_forming();
  const auto gradient = vector_of(1);
  hand.push(gradient);
  CHECK(contributions(hand.sent()).size() == segments);
  hand.request_help(1, 101);
  const auto again = contributions(hand.sent());
  REQUIRE(again.size() == 1);
  CHECK(again[0].header.segment == 1);
}

TEST_CASE("a broadcast's root is a rank of the whole job", "[engine][stream]") {
  const bool root = GENERATE(true, false);
  EngineOptions options = Hand::default_options();
  options.rank = 1000;  // member 1 of this switch
  Hand hand(options);
  hand.join();
  std::vector<float> data(8, 3.0F);
  Request request;
  request.kind = wire::OperationKind::broadcast;
  request.root = root ? 1000 : 1;
  request.input = data;
  request.output = data;
  request.deadline = hand.now + second;
  hand.engine.submit(request, hand.now);
  const auto sent = contributions(hand.sent());
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].floats.size() == (root ? 8 : 0));
  CHECK(sent[0].header.operation_tag() ==
        wire::operation_tag(
            {wire::OperationKind::broadcast, wire::DataType::float32, request.root, 8, 0}));
}
