// Random events at a child of a synchronous job, and at root and child of an asynchronous one,
// against plain models: duplicates, reordering, late and early results of the parent, mismatches,
// forced sums, members that come and go.
#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "tests/unit/pipeline/child_model.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

/// Spoils what came out, to see it caught.
using Spoil = std::function<void(std::vector<Result>&, std::vector<Up>&)>;

struct Outcome {
  std::vector<Result> results;
  std::vector<Up> ups;
};

std::string compare_frames(const Result& r) {
  wire::Packet packet;
  for (const auto& [member, frame] : r.frames) {
    const wire::Endpoint to = endpoint_of(member);
    const auto parsed =
        wire::parse_frame({.ip = to.ip, .udp_port = to.udp_port}, frame, {}, packet);
    if (parsed.origin != wire::Origin::ours || parsed.fault != wire::Fault::none)
      return std::string("frame: ") + wire::fault_name(parsed.fault);
  }
  return {};
}

std::string compare(std::uint32_t base, const Expected& expected, const Outcome& got) {
  if (expected.down.size() != got.results.size())
    return std::to_string(got.results.size()) + " results, expected " +
           std::to_string(expected.down.size());
  if (expected.up.size() != got.ups.size())
    return std::to_string(got.ups.size()) + " sums up, expected " +
           std::to_string(expected.up.size());
  for (std::size_t i = 0; i < got.results.size(); ++i) {
    const auto& e = expected.down[i];
    const Result& r = got.results[i];
    if (r.fields.segment != e.segment) return "segment";
    if (r.fields.round != base + static_cast<std::uint32_t>(e.position)) return "round";
    if (r.to != e.to) return "recipients";
    if (r.fields.members != e.what.members) return "bitmap";
    if (r.fields.workers != e.what.workers) return "workers";
    if (r.fields.flags != e.what.flags) return "flags";
    if (bits(r.floats) != bits(e.what.floats)) return "payload";
    if (std::string trouble = compare_frames(r); !trouble.empty()) return trouble;
  }
  const wire::Endpoint parent = parent_endpoint();
  for (std::size_t i = 0; i < got.ups.size(); ++i) {
    const auto& e = expected.up[i];
    const Up& up = got.ups[i];
    const wire::Header right{.type = wire::Type::contribution,
                             .flags = e.what.flags,
                             .job = 1,
                             .member = id_at_parent,
                             .round = base + static_cast<std::uint32_t>(e.position),
                             .segment = e.segment,
                             .set = wire::contribution_set(e.what.tag, e.what.workers)};
    if (!(up.header == right)) return "header of a sum up";
    if (bits(up.floats) != bits(e.what.floats)) return "payload of a sum up";
    wire::Packet packet;
    const auto parsed = wire::parse_frame(
        {.ip = parent.ip, .udp_port = parent.udp_port, .ports = 3}, up.frame, {}, packet);
    if (parsed.origin != wire::Origin::ours || parsed.fault != wire::Fault::none ||
        packet.destination_port != parent.udp_port + e.segment % 3)
      return "frame of a sum up";
  }
  return {};
}

Figures random_result(std::mt19937& random) {
  Figures result;
  result.floats = random_floats(random);
  result.workers = 1 + static_cast<std::uint32_t>(random()) % 500;
  result.members = random() % 2 == 0 ? bit_at_parent | random() % 16 : random() % 16;
  if (random() % 8 == 0) result.flags |= wire::flag::partial;
  if (random() % 8 == 0) result.flags |= wire::flag::ecn_echo;
  return result;
}

std::uint8_t random_flags(std::mt19937& random) {
  std::uint8_t flags = 0;
  if (random() % 3 == 0) flags |= wire::flag::retransmit;
  if (random() % 10 == 0) flags |= wire::flag::ecn_echo;
  if (random() % 10 == 0) flags |= wire::flag::partial;  // a worker's counts for nothing
  return flags;
}

/// A random number near `near`, seldom far.
std::int64_t around(std::mt19937& random, std::int64_t near) {
  if (random() % 3 != 0) return near;
  return near + static_cast<std::int64_t>(random() % 9) - 6;
}

/// How often frames of all runs ended where.
std::map<Counter, std::uint64_t> seen;  // NOLINT: a test's tally

/// One run's rig, and the way of an event into both sides.
struct Run {
  Run(std::mt19937& random_, std::uint32_t base_, const Spoil& spoil_)
      : random(random_), base(base_), spoil(spoil_) {
    rig.sink.queueing = true;
  }
  ~Run() {
    for (unsigned i = 0; i < pipeline::counter_count; ++i)
      seen[static_cast<Counter>(i)] += rig.count(static_cast<Counter>(i));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Part part_of(const Offer& offer) const {
    Part part;
    part.member = offer.member;
    part.segment = offer.segment;
    part.round = base + static_cast<std::uint32_t>(offer.position);
    part.tag = offer.tag;
    part.flags = offer.flags;
    part.floats = offer.floats;
    if (offer.marked) part.ecn = wire::Ecn::ce;
    return part;
  }
  Down down_of(std::uint32_t segment, std::int64_t position, const Figures& result,
               bool marked) const {
    Down down;
    down.segment = segment;
    down.round = base + static_cast<std::uint32_t>(position);
    down.floats = result.floats;
    down.members = result.members;
    down.workers = static_cast<std::uint16_t>(result.workers);
    down.flags = result.flags;
    if (marked) down.ecn = wire::Ecn::ce;
    return down;
  }
  Offer random_offer(std::int64_t position, MemberId member) const {
    Offer offer;
    offer.position = position;
    offer.member = member;
    offer.flags = random_flags(random);
    offer.marked = random() % 10 == 0;
    offer.floats = random_floats(random);
    return offer;
  }
  std::string check(const Expected& expected) {
    Outcome got{rig.take_results(), rig.take_ups()};
    if (spoil) spoil(got.results, got.ups);
    rig.take_notices();
    if (random() % 10 == 0) rig.sink.drain();
    return compare(base, expected, got);
  }

  std::mt19937& random;
  std::uint32_t base;
  const Spoil& spoil;
  Rig rig;
};

std::string run_sync_child(unsigned seed, unsigned steps, const Spoil& spoil = {}) {
  std::mt19937 random(seed);
  Run run(random, 0u - static_cast<std::uint32_t>(random() % 20), spoil);
  Rig& rig = run.rig;
  datapath::JobSpec spec = small_job();
  spec.slots = 1 + random() % 4;
  spec.history = static_cast<std::uint16_t>(1 + random() % 6);
  spec.udp_checksum = random() % 4 != 0;
  const unsigned members = 1 + random() % 5;
  rig.make_child(spec, members, run.base);
  SyncChildModel model;
  model.members = (MemberMask{1} << members) - 1;
  model.history = spec.history;
  if (random() % 2 == 0) {
    model.threshold = 1 + static_cast<unsigned>(random()) % members;
    rig.order(datapath::SetThreshold{static_cast<std::uint16_t>(model.threshold)});
  }
  std::map<std::uint32_t, std::int64_t> next;  // about where each segment is
  for (unsigned step = 0; step < steps; ++step) {
    const std::uint32_t segment = static_cast<std::uint32_t>(random()) % spec.slots;
    const std::int64_t position = around(random, next[segment]);
    Expected expected;
    rig.now += static_cast<Time>(random() % (2 * millisecond));
    const unsigned kind = random() % 20;
    if (kind == 0) {
      expected = model.force(segment, position);
      rig.order(datapath::Force{segment, run.base + static_cast<std::uint32_t>(position)});
    } else if (kind <= 4 || (kind <= 9 && model.waits(segment, next[segment]))) {
      const Figures result = random_result(random);
      const bool marked = random() % 10 == 0;
      expected = model.take(segment, position, result, marked);
      next[segment] = std::max(next[segment], position + 1);
      rig.send(run.down_of(segment, position, result, marked));
    } else {
      Offer offer = run.random_offer(position, static_cast<MemberId>(random() % members));
      offer.segment = segment;
      offer.tag = random() % 20 == 0 ? 8 : 7;
      std::vector<Part> burst;
      for (unsigned copies = random() % 8 == 0 ? 3 : 1; copies > 0; --copies) {
        const Expected more = model.contribute(offer);
        expected.down.insert(expected.down.end(), more.down.begin(), more.down.end());
        expected.up.insert(expected.up.end(), more.up.begin(), more.up.end());
        burst.push_back(run.part_of(offer));
      }
      rig.send(burst);
    }
    if (std::string trouble = run.check(expected); !trouble.empty())
      return "step " + std::to_string(step) + ": " + trouble;
  }
  return {};
}

/// A member comes, goes, or starts again.
Expected change_members(std::mt19937& random, Rig& rig, AsyncModel& model, std::uint32_t slots) {
  const auto member = static_cast<MemberId>(random() % 5);
  const bool present = (model.members >> member & 1) != 0;
  if (present && random() % 2 == 0 && model.count() > 1) {
    rig.order(datapath::DropMember{member});
    return model.drop(member, slots);
  }
  const auto incarnation = present && random() % 3 == 0 ? model.incarnations[member]
                                                        : static_cast<std::uint32_t>(random());
  rig.put(member, 1, wire::MemberKind::worker, 1, incarnation);
  if (!present || incarnation != model.incarnations[member]) model.refill(member, incarnation);
  return {};
}

std::string run_async(unsigned seed, unsigned steps, bool child, const Spoil& spoil = {}) {
  std::mt19937 random(seed);
  Run run(random, 0u - static_cast<std::uint32_t>(random() % 20), spoil);
  Rig& rig = run.rig;
  datapath::JobSpec spec = small_job();
  spec.mode = wire::Mode::async;
  spec.slots = 1 + random() % 4;
  spec.history = static_cast<std::uint16_t>(1 + random() % 6);
  const unsigned members = 1 + random() % 5;
  if (child) {
    rig.make_child(spec, members, run.base);
  } else {
    rig.make_job(spec, members, run.base);
  }
  AsyncModel model;
  model.child = child;
  model.history = spec.history;
  model.members = (MemberMask{1} << members) - 1;
  for (MemberId m = 0; m < members; ++m) model.incarnations[m] = 7;
  for (unsigned step = 0; step < steps; ++step) {
    const std::uint32_t segment = static_cast<std::uint32_t>(random()) % spec.slots;
    Expected expected;
    rig.now += static_cast<Time>(random() % (2 * millisecond));
    const unsigned kind = random() % 100;
    if (kind < 2) {
      model.threshold = static_cast<unsigned>(random()) % 4;
      rig.order(datapath::SetThreshold{static_cast<std::uint16_t>(model.threshold)});
    } else if (kind < 5) {
      expected = model.force(segment);
      rig.order(datapath::Force{segment, static_cast<std::uint32_t>(random())});
    } else if (kind < 8) {
      expected = change_members(random, rig, model, spec.slots);
    } else if (kind < 10) {
      const std::int64_t push = around(random, model.pushes(segment));
      expected = model.give_up(segment, push);
      rig.order(datapath::GiveUp{segment, run.base + static_cast<std::uint32_t>(push)});
    } else if (kind < 15) {
      const std::int64_t update = around(random, model.last(segment));
      const auto member = static_cast<MemberId>(random() % 5);
      if (const auto kept = model.kept(segment, update);
          kept.has_value() && (model.members >> member & 1) != 0)
        expected.down.push_back({segment, update, MemberMask{1} << member, *kept});
      const auto answer = rig.order(
          datapath::Replay{segment, run.base + static_cast<std::uint32_t>(update), member});
      const SlotState right = model.kept(segment, update).has_value() ? SlotState::kept
                              : update > model.last(segment)          ? SlotState::none
                                                                      : SlotState::gone;
      if (answer.slot != right) return "step " + std::to_string(step) + ": state";
    } else if (child && kind < 40) {
      const std::int64_t update = around(random, model.last(segment) + 1);
      const Figures result = random_result(random);
      const bool marked = random() % 10 == 0;
      expected = model.take(segment, update, result, marked);
      rig.send(run.down_of(segment, update, result, marked));
    } else {
      const auto member = static_cast<MemberId>(random() % 5);
      if ((model.members >> member & 1) == 0) continue;
      const std::int64_t accepted = model.accepted(segment, member);
      Offer offer =
          run.random_offer(random() % 5 == 0 ? accepted : around(random, accepted + 1), member);
      offer.segment = segment;
      offer.tag = random() % 20 == 0 ? 8 : model.incarnations[member];
      std::vector<Part> burst;
      for (unsigned copies = random() % 8 == 0 ? 3 : 1; copies > 0; --copies) {
        const Expected more = model.contribute(offer);
        expected.down.insert(expected.down.end(), more.down.begin(), more.down.end());
        expected.up.insert(expected.up.end(), more.up.begin(), more.up.end());
        burst.push_back(run.part_of(offer));
      }
      rig.send(burst);
    }
    if (std::string trouble = run.check(expected); !trouble.empty())
      return "step " + std::to_string(step) + ": " + trouble;
  }
  return {};
}

/// A run that never gets somewhere proves nothing about it.
void check_seen(std::initializer_list<Counter> counters) {
  for (const Counter counter : counters) {
    INFO(pipeline::counter_name(counter));
    CHECK(seen[counter] >= 50);
  }
  seen.clear();
}

}  // namespace

TEST_CASE("random events at a child agree with the model") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    CHECK(run_sync_child(seed, 600) == "");
  }
  check_seen({Counter::aggregate_added, Counter::aggregate_replayed, Counter::aggregate_passed_up,
              Counter::aggregate_drop_duplicate, Counter::aggregate_drop_late,
              Counter::aggregate_drop_mismatch, Counter::aggregate_drop_ahead,
              Counter::aggregate_drop_stale, Counter::aggregate_forced, Counter::parent_taken,
              Counter::parent_answered, Counter::parent_drop_again, Counter::parent_drop_old,
              Counter::deliver_up, Counter::deliver_up_again});
}

TEST_CASE("random events at the root of an asynchronous job agree with the model") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    CHECK(run_async(seed, 600, false) == "");
  }
  check_seen({Counter::aggregate_added, Counter::aggregate_replayed,
              Counter::aggregate_drop_duplicate, Counter::aggregate_drop_incarnation,
              Counter::aggregate_drop_mismatch, Counter::aggregate_drop_stale,
              Counter::aggregate_completed, Counter::aggregate_forced});
}

TEST_CASE("random events at a child of an asynchronous job agree with the model") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    CHECK(run_async(seed, 600, true) == "");
  }
  check_seen({Counter::aggregate_added, Counter::aggregate_replayed,
              Counter::aggregate_drop_duplicate, Counter::aggregate_drop_incarnation,
              Counter::aggregate_drop_mismatch, Counter::aggregate_drop_stale,
              Counter::aggregate_forced, Counter::parent_taken, Counter::parent_drop_again,
              Counter::parent_drop_old, Counter::deliver_up, Counter::deliver_up_again});
}

TEST_CASE("the comparison of a child with its model bites") {
  const auto caught = [](const std::function<void(Result&)>& result,
                         const std::function<void(Up&)>& up) {
    const Spoil spoil = [&](std::vector<Result>& results, std::vector<Up>& ups) {
      if (result && !results.empty() && !results[0].floats.empty()) result(results[0]);
      if (up && !ups.empty() && !ups[0].floats.empty()) up(ups[0]);
    };
    return !run_sync_child(7, 600, spoil).empty() && !run_async(7, 600, true, spoil).empty();
  };
  CHECK(caught([](Result& r) { ++r.fields.round; }, {}));
  CHECK(caught([](Result& r) { r.fields.members ^= 1; }, {}));
  CHECK(caught([](Result& r) { r.to ^= 1; }, {}));
  CHECK(caught([](Result& r) { r.fields.flags ^= wire::flag::ecn_echo; }, {}));
  CHECK(caught({}, [](Up& up) { ++up.header.round; }));
  CHECK(caught({}, [](Up& up) { up.header.flags ^= wire::flag::retransmit; }));
  CHECK(caught({}, [](Up& up) { ++up.floats[0]; }));
  CHECK(caught({}, [](Up& up) { up.frame[wire::payload_offset] ^= 1; }));
  CHECK_FALSE(run_async(7, 600, true, [](std::vector<Result>&, std::vector<Up>& ups) {
                if (!ups.empty()) ups.pop_back();
              }).empty());
}
