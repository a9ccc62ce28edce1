// Whole trees of pipelines: a root, child switches and their workers, over a network that loses,
// repeats and reorders. Sums of whole numbers are exact, so that every part can be accounted for.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <set>

#include "tests/unit/pipeline/rig.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

constexpr unsigned children = 3;
constexpr unsigned workers = 3;  // of each child
constexpr std::uint32_t slots = 4;
constexpr std::uint32_t base = 0xFFFF'FFFB;

struct Shape {
  wire::Mode mode = wire::Mode::sync;
  std::uint16_t history = 1;
  std::uint16_t child_threshold = 0;
  std::uint16_t root_threshold = 0;
  std::size_t child_buffers = 1000;
};

/// A root and its children. What travels between them is lost, repeated and overtaken.
struct Tree {
  Tree(const Shape& shape, unsigned seed) : random(seed) {
    datapath::JobSpec spec = small_job();
    spec.slots = slots;
    spec.mode = shape.mode;
    spec.history = shape.history;
    REQUIRE(root.order(datapath::Install{spec}).ok);
    for (MemberId c = 0; c < children; ++c) {
      root.put(c, 1, wire::MemberKind::child_switch, 3, 100u + c);
      child.push_back(std::make_unique<Rig>(RigConfig{.buffers = shape.child_buffers}));
      datapath::ParentSpec place = parent_spec();
      place.member = c;
      place.incarnation = 100u + c;
      child[c]->make_child(spec, workers, base, place);
      child[c]->order(datapath::SetThreshold{shape.child_threshold});
    }
    REQUIRE(root.order(datapath::Start{base}).ok);
    root.order(datapath::SetThreshold{shape.root_threshold});
  }

  bool lost() { return random() % 6 == 0; }
  bool repeated() { return random() % 6 == 0; }

  /// One of the travelling frames arrives, or nothing.
  void deliver_one() {
    const std::size_t total = up.size() + down.size();
    if (total == 0) return;
    std::size_t i = random() % total;
    if (i < up.size()) {
      const Part part = up[i];
      up.erase(up.begin() + static_cast<std::ptrdiff_t>(i));
      root.send(part);
      collect_root();
      return;
    }
    i -= up.size();
    const auto [c, frame] = down[i];
    down.erase(down.begin() + static_cast<std::ptrdiff_t>(i));
    child[c]->send(frame);
    collect_child(c);
  }

  void collect_root() {
    root.take_notices();
    for (const Result& result : root.take_results()) {
      if (!result.floats.empty())
        results[{result.fields.segment, result.fields.round}] = result.floats;
      for (unsigned c = 0; c < children; ++c) {
        if ((result.to >> c & 1) == 0 || lost()) continue;
        Down frame;
        frame.round = result.fields.round;
        frame.segment = result.fields.segment;
        frame.floats = result.floats;
        frame.members = result.fields.members;
        frame.workers = result.fields.workers;
        frame.flags = result.fields.flags;
        down.emplace_back(c, frame);
        if (repeated()) down.emplace_back(c, frame);
      }
    }
  }

  /// Sums on their way up; and, as control does, Help for what is gone here.
  void collect_child(unsigned c) {
    for (const Up& sum : child[c]->take_ups()) {
      CHECK(sum.header.member == c);
      if (lost()) continue;
      Part part;
      part.member = static_cast<MemberId>(c);
      part.round = sum.header.round;
      part.segment = sum.header.segment;
      part.tag = sum.header.operation_tag();
      part.workers = sum.header.workers();
      part.flags = sum.header.flags;
      part.floats = sum.floats;
      up.push_back(part);
      if (repeated()) up.push_back(part);
    }
    for (const Notice& notice : child[c]->take_notices()) {
      CHECK(notice.kind == Notice::Kind::gone);
      help_at_root(c, notice.segment, notice.round);
    }
  }

  void help_at_root(unsigned c, std::uint32_t segment, std::uint32_t round) {
    root.order(datapath::Replay{segment, round, static_cast<MemberId>(c)});
    collect_root();
  }

  std::mt19937 random;
  Rig root;
  std::vector<std::unique_ptr<Rig>> child;
  std::vector<Part> up;
  std::vector<std::pair<unsigned, Down>> down;
  /// What the root has sent, by segment and round.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<float>> results;
};

// ---- synchronous

float value_of(unsigned c, unsigned w, std::uint32_t segment, std::uint32_t round) {
  return static_cast<float>((1u << (2 * (c * workers + w))) * (1 + (segment + round) % 3));
}

/// What the workers of one child contribute together.
float sum_of(unsigned c, std::uint32_t segment, std::uint32_t round) {
  float sum = 0;
  for (unsigned w = 0; w < workers; ++w) sum += value_of(c, w, segment, round);
  return sum;
}

void run_sync(const Shape& shape, unsigned seed) {
  constexpr std::uint32_t rounds = 8;
  Tree tree(shape, seed);
  std::array<std::array<std::array<std::uint32_t, slots>, workers>, children> at{};
  std::array<std::array<std::array<bool, slots>, workers>, children> sent{};
  for (unsigned step = 0;; ++step) {
    REQUIRE(step < 200'000);
    bool busy = false;
    for (const auto& of_child : at)
      for (const auto& of_worker : of_child)
        for (const std::uint32_t round : of_worker) busy = busy || round < rounds;
    if (!busy) break;
    const unsigned c = tree.random() % children;
    const unsigned w = tree.random() % workers;
    const std::uint32_t s = static_cast<std::uint32_t>(tree.random()) % slots;
    Rig& child = *tree.child[c];
    child.now += millisecond;
    if (tree.random() % 3 == 0 && at[c][w][s] < rounds) {
      Part part{.member = static_cast<MemberId>(w),
                .round = base + at[c][w][s],
                .segment = s,
                .floats = {value_of(c, w, s, at[c][w][s])}};
      if (sent[c][w][s]) part.flags = wire::flag::retransmit;
      sent[c][w][s] = true;
      if (!tree.lost()) child.send(part);
      tree.collect_child(c);
    }
    for (int i = 0; i < 2; ++i) tree.deliver_one();
    for (unsigned k = 0; k < children; ++k) {
      for (const Result& result : tree.child[k]->take_results()) {
        const std::uint32_t segment = result.fields.segment;
        const std::uint32_t round = result.fields.round - base;
        // The very bits of the root's, and the sum of whole children, each once.
        CHECK(bits(result.floats) == bits(tree.results.at({segment, result.fields.round})));
        float left = result.floats.at(0);
        unsigned inside = 0;
        for (unsigned i = children; i-- > 0;) {
          if (left < sum_of(i, segment, round)) continue;
          left -= sum_of(i, segment, round);
          ++inside;
        }
        CHECK(left == 0);
        CHECK(inside >= (shape.root_threshold == 0 ? children : shape.root_threshold));
        for (unsigned i = 0; i < workers; ++i) {
          if ((result.to >> i & 1) == 0 || tree.lost()) continue;
          // As the agent: taken when it has been contributed to.
          if (at[k][i][segment] != round || !sent[k][i][segment]) continue;
          ++at[k][i][segment];
          sent[k][i][segment] = false;
        }
      }
    }
  }
  CHECK(tree.root.job_count(JobCounter::results) == slots * rounds);
}

// ---- asynchronous

struct AsyncWorker {
  std::array<std::uint32_t, slots> push{};    // number of the outstanding one, from base
  std::array<std::uint32_t, slots> update{};  // last one applied
  std::array<std::uint32_t, slots> acknowledged{};
  std::array<float, slots> weights{};
};

struct AsyncRun {
  static constexpr std::uint32_t pushes = 12;

  AsyncRun(const Shape& shape, unsigned seed) : tree(shape, seed) {}

  static float value(unsigned c, unsigned w, std::uint32_t number) {
    return static_cast<float>(1 + (c * workers + w) * 7 + number % 5);
  }

  void send(unsigned c, unsigned w, std::uint32_t s) {
    AsyncWorker& worker = at[c][w];
    if (worker.acknowledged[s] == pushes) return;
    const bool again = worker.push[s] > worker.acknowledged[s];
    if (!again) ++worker.push[s];
    if (tree.lost()) return;
    Part part{.member = static_cast<MemberId>(w),
              .round = base + worker.push[s],
              .segment = s,
              .floats = {value(c, w, worker.push[s])}};
    if (again) part.flags = wire::flag::retransmit;
    tree.child[c]->send(part);
    tree.collect_child(c);
  }

  void receive(unsigned c, unsigned w, const Result& result) {
    AsyncWorker& worker = at[c][w];
    const std::uint32_t s = result.fields.segment;
    const std::uint32_t update = result.fields.round - base;
    if (update <= worker.update[s]) return;
    if (update > worker.update[s] + 1) return help(c, w, s);
    CHECK(bits(result.floats) == bits(tree.results.at({s, result.fields.round})));
    worker.update[s] = update;
    worker.weights[s] += result.floats.at(0);
    if ((result.fields.members >> w & 1) == 0) return;
    CHECK(worker.push[s] == worker.acknowledged[s] + 1);
    ++worker.acknowledged[s];
  }

  /// For the next update: as a member that has missed one or heard nothing, and as its child's
  /// control, which passes on what the child has not.
  void help(unsigned c, unsigned w, std::uint32_t s) {
    const std::uint32_t next = base + at[c][w].update[s] + 1;
    const auto answer = tree.child[c]->order(datapath::Replay{s, next, static_cast<MemberId>(w)});
    if (answer.slot != SlotState::kept) tree.help_at_root(c, s, next);
  }

  void take_results() {
    for (unsigned c = 0; c < children; ++c) {
      for (const Result& result : tree.child[c]->take_results()) {
        for (unsigned w = 0; w < workers; ++w)
          if ((result.to >> w & 1) != 0 && !tree.lost()) receive(c, w, result);
      }
    }
  }

  bool done() const {
    std::array<std::uint32_t, slots> last{};
    for (const auto& [place, floats] : tree.results)
      last[place.first] = std::max(last[place.first], place.second - base);
    for (const auto& of_child : at)
      for (const AsyncWorker& worker : of_child)
        for (std::uint32_t s = 0; s < slots; ++s)
          if (worker.acknowledged[s] < pushes || worker.update[s] < last[s]) return false;
    return true;
  }

  Tree tree;
  std::array<std::array<AsyncWorker, workers>, children> at{};
};

void run_async(const Shape& shape, unsigned seed) {
  AsyncRun run(shape, seed);
  Tree& tree = run.tree;
  for (unsigned step = 0; step % 50 != 0 || !run.done(); ++step) {
    REQUIRE(step < 200'000);
    const unsigned c = tree.random() % children;
    const unsigned w = tree.random() % workers;
    const std::uint32_t s = static_cast<std::uint32_t>(tree.random()) % slots;
    tree.child[c]->now += millisecond;
    const unsigned kind = tree.random() % 40;
    if (kind < 10) run.send(c, w, s);
    if (kind == 10) run.help(c, w, s);
    // Who has pushed all leaves others waiting: somebody loses patience.
    if (kind == 11) {
      tree.child[c]->order(datapath::Force{s, 0});
      tree.collect_child(c);
    }
    if (kind == 12) {
      tree.root.order(datapath::Force{s, 0});
      tree.collect_root();
    }
    for (int i = 0; i < 2; ++i) tree.deliver_one();
    run.take_results();
  }
  float each = 0;
  for (unsigned c = 0; c < children; ++c)
    for (unsigned w = 0; w < workers; ++w)
      for (std::uint32_t n = 1; n <= AsyncRun::pushes; ++n) each += AsyncRun::value(c, w, n);
  for (const auto& of_child : run.at)
    for (const AsyncWorker& worker : of_child)
      for (std::uint32_t s = 0; s < slots; ++s) CHECK(worker.weights[s] == each);
}

}  // namespace

TEST_CASE("tree: every worker of every child is in every sum once, whatever is lost") {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    run_sync({}, seed);
    run_sync({.history = 4}, seed);
    run_sync({.child_buffers = slots + 6}, seed);
  }
}

TEST_CASE("tree: backup children: whole children's sums, all workers the same") {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    run_sync({.history = 64, .root_threshold = 2}, seed);
  }
}

TEST_CASE("tree: asynchronous: each push in one update once, all weights equal") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    INFO("seed " << seed);
    run_async({.mode = wire::Mode::async, .history = 64}, seed);
    run_async({.mode = wire::Mode::async,
               .history = 64,
               .child_threshold = 2,
               .root_threshold = 1,
               .child_buffers = 600},
              seed);
  }
}
