// A contribution's checksum is verified late, when its payload is about to be used: nothing else
// may have happened because of a frame whose checksum is wrong, wherever it would have ended.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "tests/unit/pipeline/rig.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

constexpr std::size_t checksum_at = wire::ethernet_bytes + wire::ipv4_bytes + 6;

/// One bit of the message, or of the checksum, is another: that changes every checksum.
FrameBytes corrupted(FrameBytes frame, std::mt19937& random) {
  for (;;) {
    FrameBytes broken = frame;
    const std::size_t at = checksum_at + random() % (frame.size() - checksum_at);
    broken[at] ^= static_cast<std::uint8_t>(1u << random() % 8);
    // A checksum of zero would be none.
    if (broken[checksum_at] != 0 || broken[checksum_at + 1] != 0) return broken;
  }
}

std::vector<std::uint64_t> counts(Rig& rig) {
  std::vector<std::uint64_t> out;
  pipeline::for_each_counter(rig.pipeline().counters(),
                             [&](const char*, std::uint64_t value, bool) { out.push_back(value); });
  rig.pipeline().job_stats().for_each([&](JobId, const pipeline::JobStats& stats) {
    for (std::size_t c = 0; c < pipeline::job_counter_count; ++c)
      out.push_back(stats.get(static_cast<JobCounter>(c)));
    for (MemberId m = 0; m < wire::max_members; ++m)
      out.push_back(static_cast<std::uint64_t>(stats.last_heard(m)));
  });
  return out;
}

/// Everything that a rig's past has left, but for how many frames came with a wrong checksum.
std::vector<std::uint64_t> counts_without_broken(Rig& rig) {
  std::vector<std::uint64_t> out = counts(rig);
  const std::uint64_t broken = rig.count(Counter::parse_drop_udp_checksum);
  out[static_cast<std::size_t>(Counter::parse_received)] -= broken;
  out[static_cast<std::size_t>(Counter::parse_drop_udp_checksum)] = 0;
  return out;
}

std::string difference(Rig& with, Rig& without) {
  const auto a = with.take_results();
  const auto b = without.take_results();
  if (a.size() != b.size()) return "number of results";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (bits(a[i].floats) != bits(b[i].floats)) return "a sum";
    if (a[i].frames != b[i].frames || a[i].to != b[i].to) return "a result's frames";
  }
  const auto ups_a = with.take_ups();
  const auto ups_b = without.take_ups();
  if (ups_a.size() != ups_b.size()) return "number of sums for the parent";
  for (std::size_t i = 0; i < ups_a.size(); ++i) {
    if (ups_a[i].frame != ups_b[i].frame) return "a sum for the parent";
  }
  const auto told_a = with.take_notices();
  const auto told_b = without.take_notices();
  if (told_a.size() != told_b.size()) return "notices";
  for (std::size_t i = 0; i < told_a.size(); ++i) {
    if (told_a[i].kind != told_b[i].kind || told_a[i].member != told_b[i].member ||
        told_a[i].round != told_b[i].round || told_a[i].others != told_b[i].others)
      return "a notice";
  }
  if (counts_without_broken(with) != counts_without_broken(without)) return "counters";
  return {};
}

Part random_part(std::mt19937& random, std::uint32_t round) {
  Part part;
  part.member = static_cast<MemberId>(random() % 4);  // the last is nobody
  part.round = round + static_cast<std::uint32_t>(random() % 5) - 2;
  part.segment = static_cast<std::uint32_t>(random() % 5);  // the last is too high
  part.floats = random_floats(random);
  if (random() % 20 == 0) part.tag = 8;
  if (random() % 20 == 0) part.job = 77;
  if (random() % 20 == 0) part.workers = 2;
  if (random() % 20 == 0) part.flags = wire::flag::retransmit;
  if (random() % 20 == 0) part.flags = 1;  // a data type
  if (random() % 20 == 0) part.ingress = 9;
  if (random() % 20 == 0) part.ecn = wire::Ecn::ce;
  return part;
}

/// A stream into one rig, and with broken copies in between into another: both must be the same
/// afterwards. The first difference, or nothing.
std::string run_twins(unsigned seed, wire::Mode mode, bool child) {
  std::mt19937 random(seed);
  RigConfig config;
  config.buffers = random() % 3 == 0 ? 6 : 1000;
  Rig with(config);
  Rig without(config);
  for (Rig* rig : {&with, &without}) {
    datapath::JobSpec spec = small_job();
    spec.mode = mode;
    child ? rig->make_child(spec, 3) : rig->make_job(spec, 3);
  }
  std::uint64_t broken = 0;
  for (unsigned step = 0; step < 400; ++step) {
    std::vector<Rig::Sent> right;
    std::vector<Rig::Sent> mixed;
    for (unsigned n = random() % 6; n > 0; --n) {
      const Part part = random_part(random, step / 8);
      const Rig::Sent sent{make_frame(part), part.ingress.value_or(port_of(part.member))};
      for (; random() % 2 == 0 && mixed.size() < 20; ++broken)
        mixed.emplace_back(corrupted(sent.first, random), sent.second);
      if (random() % 4 == 0) {  // lost but for a broken copy
        mixed.emplace_back(corrupted(sent.first, random), sent.second);
        ++broken;
        continue;
      }
      right.push_back(sent);
      mixed.push_back(sent);
      for (; random() % 3 == 0 && mixed.size() < 20; ++broken)
        mixed.emplace_back(corrupted(sent.first, random), sent.second);
    }
    const bool halts = random() % 40 == 0;
    const bool resumes = random() % 10 == 0;
    for (Rig* rig : {&with, &without}) {
      rig->now += millisecond / 2;
      if (halts) rig->order(datapath::SetHalted{true});
      if (resumes) rig->order(datapath::SetHalted{false});
    }
    with.run(mixed);
    without.run(right);
    if (const std::string trouble = difference(with, without); !trouble.empty())
      return "step " + std::to_string(step) + ": " + trouble;
  }
  if (broken == 0 || with.count(Counter::parse_drop_udp_checksum) != broken)
    return std::to_string(broken) + " were broken";
  return {};
}

}  // namespace

TEST_CASE("frames with a wrong checksum leave no trace but their counter") {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    CHECK(run_twins(seed, wire::Mode::sync, false) == "");
    CHECK(run_twins(seed, wire::Mode::async, false) == "");
    CHECK(run_twins(seed, wire::Mode::sync, true) == "");
    CHECK(run_twins(seed, wire::Mode::async, true) == "");
  }
}

TEST_CASE("a corrupt payload does not get into a sum, first, middle or last") {
  std::mt19937 random(11);
  for (unsigned broken_member = 0; broken_member < 3; ++broken_member) {
    for (int i = 0; i < 50; ++i) {
      Rig rig;
      rig.make_job(small_job(), 3);
      for (unsigned m = 0; m < 3; ++m) {
        const Part part{.member = static_cast<MemberId>(m), .floats = std::vector<float>(16, 1.5f)};
        if (m == broken_member) {
          rig.run({{corrupted(make_frame(part), random), port_of(part.member)}});
          CHECK(rig.take_results().empty());
          // Nothing is open that no right contribution has opened.
          CHECK(rig.order(datapath::ListSlots{10}).open.size() == (m == 0 ? 0 : 1));
        }
        rig.send(part);
      }
      const auto results = rig.take_results();
      REQUIRE(results.size() == 1);
      CHECK(results[0].floats == std::vector<float>(16, 4.5f));
      CHECK(rig.count(Counter::parse_drop_udp_checksum) == 1);
      CHECK(rig.count(Counter::aggregate_added) == 3);
    }
  }
}

TEST_CASE("the sink is told which frames had a wrong checksum") {
  struct Listener : Recorder {
    using Recorder::Recorder;
    void refused(unsigned index, Counter reason) { told.emplace_back(index, reason); }
    std::vector<std::pair<unsigned, Counter>> told;
  };
  Rig rig;
  rig.make_job(small_job(), 2);
  Listener sink(rig.pool);
  std::mt19937 random(5);
  const FrameBytes right = make_frame(Part{.member = 0, .floats = {1, 2}});
  const FrameBytes broken = corrupted(right, random);
  const FrameBytes stranger = make_frame(Part{.member = 0, .job = 9});
  const FrameBytes broken_stranger = corrupted(stranger, random);
  std::vector<pipeline::Frame> burst;
  for (const FrameBytes* frame : {&broken, &right, &stranger, &broken_stranger})
    burst.push_back({frame->data(), static_cast<std::uint32_t>(frame->size()), 0, {}});
  rig.pipeline().run(burst, 0, sink);
  std::sort(sink.told.begin(), sink.told.end());
  CHECK(sink.told ==
        std::vector<std::pair<unsigned, Counter>>{{0, Counter::parse_drop_udp_checksum},
                                                  {2, Counter::classify_drop_unknown_job},
                                                  {3, Counter::parse_drop_udp_checksum}});
}
