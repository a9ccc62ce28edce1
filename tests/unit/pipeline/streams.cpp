// Random streams of contributions to several jobs, with duplicates, reordering, stale and ahead
// rounds, mismatches, forced sums, halts and losses of memory, against a plain model.
#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "tests/unit/pipeline/model.h"
#include "tests/unit/pipeline/rig.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

struct StreamJob {
  JobId id;
  unsigned members;
  std::uint32_t base;
  datapath::JobSpec spec;
  Model model;
};

/// What the model expects against what came out; empty when they agree.
std::string compare(const StreamJob& job, const std::vector<Model::Expected>& expected,
                    const std::vector<Result>& results) {
  if (expected.size() != results.size())
    return std::to_string(results.size()) + " results, expected " + std::to_string(expected.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Model::Expected& e = expected[i];
    const Result& r = results[i];
    const std::uint8_t flags = e.sum.partial ? wire::flag::partial : 0;
    if (r.fields.job != job.id || r.fields.segment != e.segment) return "another sum";
    if (r.fields.round != job.base + static_cast<std::uint32_t>(e.position)) return "round";
    if (r.to != e.to) return "recipients";
    if (r.fields.members != e.sum.members || r.fields.workers != e.sum.workers) return "members";
    if (r.fields.flags != flags) return "flags";
    if (bits(r.floats) != bits(e.sum.floats)) return "sum";
    wire::Packet packet;
    for (const auto& [member, frame] : r.frames) {
      const wire::Endpoint to = endpoint_of(member);
      const auto parsed =
          wire::parse_frame({.ip = to.ip, .udp_port = to.udp_port}, frame, {}, packet);
      if (parsed.origin != wire::Origin::ours || parsed.fault != wire::Fault::none)
        return std::string("frame: ") + wire::fault_name(parsed.fault);
    }
  }
  return {};
}

/// Runs a stream; the first disagreement, or nothing. `spoil` may change results to see it caught.
std::string run_stream(unsigned seed, unsigned steps,
                       const std::function<void(std::vector<Result>&)>& spoil = {}) {
  std::mt19937 random(seed);
  Rig rig;
  rig.sink.queueing = true;
  std::vector<StreamJob> jobs;
  const unsigned count = 1 + random() % 3;
  for (unsigned n = 0; n < count; ++n) {
    datapath::JobSpec spec = small_job();
    spec.id = static_cast<JobId>(1 + n * 20000);
    spec.slots = 1 + random() % 5;
    spec.history = static_cast<std::uint16_t>(1 + random() % 4);
    spec.udp_checksum = random() % 4 != 0;
    const unsigned members = 1 + random() % 6;
    const unsigned threshold = random() % 3 == 0 ? 1 + random() % members : 0;
    const auto base = static_cast<std::uint32_t>(0u - random() % 20);
    rig.make_job(spec, members, base);
    if (threshold != 0)
      rig.order(datapath::SetThreshold{static_cast<std::uint16_t>(threshold)}, spec.id);
    jobs.push_back({spec.id, members, base, spec, Model(members, spec.history, threshold)});
  }
  std::map<std::pair<JobId, std::uint32_t>, std::int64_t> progress;

  for (unsigned step = 0; step < steps; ++step) {
    StreamJob& job = jobs[random() % jobs.size()];
    const std::uint32_t segment = static_cast<std::uint32_t>(random()) % job.spec.slots;
    std::int64_t& position = progress[{job.id, segment}];
    const std::int64_t wanted =
        random() % 5 != 0 ? position : position + static_cast<std::int64_t>(random() % 7) - 5;
    std::vector<Model::Expected> expected;
    rig.now += static_cast<Time>(random() % (2 * millisecond));
    if (random() % 50 == 0) {
      expected = job.model.force(segment, wanted);
      rig.order(datapath::Force{segment, job.base + static_cast<std::uint32_t>(wanted)}, job.id);
    } else {
      Part part;
      part.job = job.id;
      part.member = static_cast<MemberId>(random() % job.members);
      part.segment = segment;
      part.round = job.base + static_cast<std::uint32_t>(wanted);
      part.tag = random() % 20 == 0 ? 8 : 7;
      part.floats = random_floats(random);
      const unsigned copies = random() % 8 == 0 ? 3 : 1;
      std::vector<Part> burst;
      for (unsigned i = 0; i < copies; ++i) {
        burst.push_back(part);
        const auto more = job.model.contribute(segment, wanted, part.member, part.tag, part.floats);
        expected.insert(expected.end(), more.begin(), more.end());
      }
      rig.send(burst);
    }
    for (const Model::Expected& e : expected)
      position = std::max(position, static_cast<std::int64_t>(e.position) + 1);
    auto results = rig.take_results();
    if (spoil) spoil(results);
    std::string trouble = compare(job, expected, results);
    if (!trouble.empty()) return "step " + std::to_string(step) + ": " + trouble;
    if (random() % 10 == 0) rig.sink.drain();
  }
  return {};
}

}  // namespace

TEST_CASE("random streams agree with the model") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    CHECK(run_stream(seed, 600).empty());
  }
}

TEST_CASE("the comparison with the model bites") {
  const auto caught = [](const std::function<void(Result&)>& spoil) {
    return !run_stream(7, 600, [&](std::vector<Result>& results) {
              if (!results.empty() && !results[0].floats.empty()) spoil(results[0]);
            }).empty();
  };
  CHECK(run_stream(7, 600).empty());
  CHECK(caught([](Result& r) {
    r.floats[0] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(r.floats[0]) ^ 1);
  }));
  CHECK(caught([](Result& r) { ++r.fields.round; }));
  CHECK(caught([](Result& r) { r.to |= MemberMask{1} << 40; }));
  CHECK(caught([](Result& r) { ++r.fields.workers; }));
  CHECK(caught([](Result& r) { r.frames.begin()->second[33] ^= 1; }));
  CHECK_FALSE(run_stream(7, 600, [](std::vector<Result>& results) {
                if (!results.empty()) results.pop_back();
              }).empty());
}

TEST_CASE("losses of memory and of frames are recovered by retransmission: whole-number sums") {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    constexpr unsigned members = 4;
    constexpr std::uint32_t slots = 6;
    constexpr std::uint32_t rounds = 8;
    constexpr std::uint32_t base = 0xFFFF'FFFC;
    Rig rig({.buffers = slots + 3});
    datapath::JobSpec spec = small_job();
    spec.slots = slots;
    rig.make_job(spec, members, base);
    const auto value = [](unsigned m, std::uint32_t s, std::uint32_t r) {
      return static_cast<float>((m + 1) * (100 * s + r + 1));
    };
    // What each member still waits for, a slot.
    std::vector<std::vector<std::uint32_t>> at(members, std::vector<std::uint32_t>(slots, 0));
    unsigned steps = 0;
    for (bool busy = true; busy; ++steps) {
      REQUIRE(steps < 100'000);
      std::vector<Part> burst;
      busy = false;
      for (unsigned m = 0; m < members; ++m) {
        for (std::uint32_t s = 0; s < slots; ++s) {
          if (at[m][s] == rounds) continue;
          busy = true;
          if (random() % 3 != 0 || burst.size() == pipeline::max_burst) continue;
          burst.push_back({.member = static_cast<MemberId>(m),
                           .round = base + at[m][s],
                           .segment = s,
                           .floats = {value(m, s, at[m][s])}});
        }
      }
      std::shuffle(burst.begin(), burst.end(), random);
      rig.send(burst);
      for (const Result& result : rig.take_results()) {
        const std::uint32_t round = result.fields.round - base;
        float expected = 0;
        for (unsigned m = 0; m < members; ++m) expected += value(m, result.fields.segment, round);
        CHECK(result.floats == std::vector<float>{expected});
        for (unsigned m = 0; m < members; ++m) {
          if ((result.to >> m & 1) == 0 || random() % 5 == 0) continue;  // not for it, or lost
          if (at[m][result.fields.segment] == round) ++at[m][result.fields.segment];
        }
      }
    }
    CHECK(rig.count(Counter::aggregate_drop_no_buffer) > 0);
    CHECK(rig.job_count(JobCounter::results) == slots * rounds);
  }
}

TEST_CASE("random bytes and mutated frames end in one counter each and change no sum") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    Rig rig;
    rig.make_job(small_job(), 3);
    rig.send(Part{.member = 0, .floats = {1, 2}});
    rig.send(Part{.member = 1, .floats = {1, 2}});
    for (unsigned i = 0; i < 200; ++i) {
      std::vector<Rig::Sent> burst;
      for (unsigned n = 0; n < 1 + random() % 8; ++n) {
        // A contribution that would be added, broken: flipped bits are caught by a checksum, cuts
        // by a length.
        FrameBytes frame = make_frame(Part{.member = 2, .floats = {5, 5}});
        if (random() % 2 == 0) {
          frame.resize(random() % frame.size());
        } else {
          frame[14 + random() % (frame.size() - 14)] ^=
              static_cast<std::uint8_t>(1u << random() % 8);
        }
        if (random() % 8 == 0) {
          for (std::uint8_t& byte : frame) byte = static_cast<std::uint8_t>(random());
        }
        burst.emplace_back(std::move(frame), static_cast<PortId>(2));
      }
      rig.run(burst);
    }
    CHECK(rig.take_results().empty());
    rig.send(Part{.member = 2, .floats = {1, 2}});
    const auto results = rig.take_results();
    REQUIRE(results.size() == 1);
    CHECK(results[0].floats == std::vector<float>{3, 6});
  }
}
