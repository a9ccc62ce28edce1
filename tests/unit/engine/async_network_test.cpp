// Asynchronous jobs in virtual time over good and bad links: whatever happens, members that are
// quiet hold the same bits, and nobody's push is counted twice.
//
// The vector counts: in every segment, element m of member m's gradients is 1 and all else 0. So
// the weights of a segment say how many pushes of each member were summed there, and the values of
// an update add up to its workers.
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <numeric>

#include "tests/unit/engine/network.h"

using namespace iswitch;
using namespace iswitch::agent;

namespace {

constexpr std::size_t floats = 8;  // a segment

class Replicas {
 public:
  Replicas(Network& network, const model::Switch::Config& config)
      : network_(network), config_(config), members_(config.members) {
    segments_ = (config.elements + floats - 1) / floats;
    for (Member& member : members_) member.weights.assign(config.elements, 0.0F);
  }

  /// A new life: the weights of the old one are gone.
  void restart(std::size_t m) {
    Member& member = members_[m];
    member.uncertain += member.pending.size();
    member.pending.clear();
    member.weights.assign(config_.elements, 0.0F);
    member.known.clear();
    member.needs = false;
    ++member.events;
    network_.restart(m);
  }

  /// Everything that a member's program does now.
  void act(std::size_t m) {
    Member& member = members_[m];
    Engine& engine = *network_.agents[m];
    while (auto completion = engine.take_completion()) {
      REQUIRE(member.pending.erase(completion->id) == 1);
      if (completion->error) {
        INFO(completion->error.text);
        REQUIRE((completion->error.code == ErrorCode::timed_out ||
                 completion->error.code == ErrorCode::gone ||
                 completion->error.code == ErrorCode::job_reset ||
                 completion->error.code == ErrorCode::halted ||
                 completion->error.code == ErrorCode::switch_gone));
        ++member.uncertain;
      } else {
        ++member.done;
      }
    }
    if (auto event = engine.take_event()) {
      member.needs = true;
      ++member.events;
      resets_ += event->kind == EventKind::reset ? 1 : 0;
    }
    if (member.needs) catch_up(m);
    while (auto update = engine.take_update()) apply(member, *update);
    while (engine.state() == EngineState::running && !engine.needs_weights() &&
           member.pending.size() < 3 && member.pushed < pushes_each && network_.pick(0, 2) != 0) {
      auto gradient = std::make_unique<std::vector<float>>(config_.elements, 0.0F);
      for (std::size_t i = m; i < gradient->size(); i += floats) (*gradient)[i] = 1.0F;
      const OperationId id = engine.push(*gradient, network_.now + 2 * second, network_.now);
      member.pending.emplace(id, std::move(gradient));
      ++member.pushed;
    }
    network_.drive(m);
  }

  bool all_pushed() const {
    return std::all_of(members_.begin(), members_.end(), [&](const Member& member) {
      return member.pushed == pushes_each && member.pending.empty() && !member.needs;
    });
  }

  void check_equal() const {
    for (std::size_t m = 1; m < members_.size(); ++m) {
      INFO("member " << m);
      REQUIRE(members_[m].weights == members_[0].weights);
    }
  }
  /// Each push at most once; each that was reported done exactly once, where the member's weights
  /// were never replaced.
  void check_counts() const {
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const Member& member = members_[m];
      REQUIRE(member.done + member.uncertain == pushes_each);
      for (std::size_t s = 0; s < segments_; ++s) {
        INFO("segment " << s << " of member " << m);
        const auto counted = static_cast<std::size_t>(members_[0].weights[s * floats + m]);
        REQUIRE(counted <= pushes_each);
        if (member.events == 0 && resets_ == 0) REQUIRE(counted >= member.done);
      }
    }
  }
  std::size_t events() const {
    return std::accumulate(
        members_.begin(), members_.end(), std::size_t{0},
        [](std::size_t sum, const Member& member) { return sum + member.events; });
  }
  std::size_t done() const {
    return std::accumulate(members_.begin(), members_.end(), std::size_t{0},
                           [](std::size_t sum, const Member& member) { return sum + member.done; });
  }

  std::size_t pushes_each = 60;

 private:
  struct Member {
    std::vector<float> weights;
    std::vector<std::uint32_t> known;  // last number by segment; empty: not known
    std::map<OperationId, std::unique_ptr<std::vector<float>>> pending;
    std::size_t pushed = 0, done = 0, uncertain = 0, events = 0;
    bool needs = false;
    Time reset_at = 0;  // when to ask for a Reset, if nobody has had what is gone
  };

  void apply(Member& member, const Update& update) {
    if (!member.known.empty()) REQUIRE(update.number == member.known[update.segment] + 1);
    if (member.known.empty()) member.known.assign(segments_, update.number - 1);
    member.known[update.segment] = update.number;
    float sum = 0;
    for (std::size_t i = 0; i < update.values.size(); ++i) {
      member.weights[update.first + i] += update.values[i];
      sum += update.values[i];
    }
    REQUIRE(sum == static_cast<float>(update.workers));
  }

  void catch_up(std::size_t m) {
    Member& member = members_[m];
    Engine& engine = *network_.agents[m];
    if (engine.state() != EngineState::running) return;
    const std::uint32_t base = engine.job().base_round;
    bool lost = false;
    for (std::size_t peer = 0; peer < members_.size(); ++peer) {
      Engine& other = *network_.agents[peer];
      const UpdateNumbers numbers = other.numbers();
      if (peer == m || other.needs_weights() || members_[peer].needs ||
          numbers.base_round != base || numbers.last.size() != segments_)
        continue;
      if (const Error error = engine.resume(numbers, network_.now)) {
        if (error.code != ErrorCode::gone) return;
        lost = true;  // that one lacks the update too
        continue;
      }
      member.weights = members_[peer].weights;
      member.known = numbers.last;
      member.needs = false;
      return;
    }
    if (lost) return ask_for_reset(member, engine);
    // After a Reset somebody has to be the one: the first.
    const bool all_need = std::all_of(members_.begin(), members_.end(),
                                      [](const Member& other) { return other.needs; });
    if (!all_need || m != 0) return;
    const UpdateNumbers own = engine.numbers();
    if (const Error error = engine.resume(own, network_.now)) {
      if (error.code == ErrorCode::gone) ask_for_reset(member, engine);
      return;
    }
    member.known = own.last;
    member.needs = false;
  }

  // Nobody has the update: perhaps one that has just gone on gets it yet.
  void ask_for_reset(Member& member, Engine& engine) {
    if (network_.now < member.reset_at) return;
    if (member.reset_at != 0) engine.request_reset(network_.now);
    member.reset_at = network_.now + second / 2;
  }

  Network& network_;
  model::Switch::Config config_;
  std::size_t segments_ = 0;
  std::size_t resets_ = 0;
  std::vector<Member> members_;
};

model::Switch::Config shape_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::uint64_t least, std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(least, most)(random);
  };
  model::Switch::Config config;
  config.mode = wire::Mode::async;
  config.members = static_cast<std::uint16_t>(pick(2, 5));
  config.segment_bytes = floats * sizeof(float);
  const std::uint64_t segments = pick(1, 12);
  config.elements = (segments - 1) * floats + pick(config.members, floats);
  config.slots = static_cast<std::uint32_t>(segments + pick(0, 3));
  config.base_round = pick(0, 1) == 0 ? 0xFFFF'FFF0U : static_cast<std::uint32_t>(random());
  config.shards = static_cast<std::uint16_t>(pick(1, 3));
  config.threshold = static_cast<std::uint16_t>(pick(0, config.members));
  config.history = 8;
  return config;
}

Faults bad_links(std::uint64_t seed) {
  Faults faults;
  if (seed % 4 == 0) return faults;
  faults.loss = seed % 2 == 0 ? 0.01 : 0.05;
  faults.copy = 0.1;
  faults.jitter = 200 * microsecond;
  faults.congestion = 0.02;
  return faults;
}

/// Runs `disturb` along with the members until all have pushed, then until all is quiet; what is
/// open at the end is forced.
void run(Network& network, Replicas& replicas, std::size_t members,
         const std::function<void()>& disturb) {
  Time next_force = 0;
  const auto act = [&] {
    disturb();
    for (std::size_t m = 0; m < members; ++m) replicas.act(m);
    if (network.now >= next_force) {
      // Members that are ahead of the others would wait for them with their last pushes.
      next_force = network.now + 500 * millisecond;
      std::vector<model::Datagram> out;
      network.the_switch().force_everything(out);
      network.deliver(out);
    }
    return replicas.all_pushed();
  };
  REQUIRE(network.run(act, 300 * second));
  const Time quiet_at = network.now + 10 * second;
  network.faults.loss = 0;
  network.cut.assign(members, false);
  network.run(
      [&] {
        for (std::size_t m = 0; m < members; ++m) replicas.act(m);
        return network.now >= quiet_at;
      },
      20 * second);
}

}  // namespace

TEST_CASE("replicas are equal over good and bad links", "[engine][async][network]") {
  const auto seed = GENERATE(from_range(seeds(1, 24)));
  INFO("seed " << seed);
  const model::Switch::Config config = shape_of(seed);
  Network network(seed, config, bad_links(seed), 8);
  network.join();
  Replicas replicas(network, config);
  run(network, replicas, config.members, [] {});
  replicas.check_equal();
  replicas.check_counts();
  CHECK(network.the_switch().wrong_shard == 0);
  CHECK(network.the_switch().mismatches == 0);
  if (seed % 4 == 0) CHECK(network.the_switch().duplicates == 0);
}

TEST_CASE("members that are cut off for a while catch up from a peer", "[engine][async][network]") {
  std::size_t events = 0;
  for (const auto seed : seeds(100, 16)) {
    INFO("seed " << seed);
    model::Switch::Config config = shape_of(seed);
    config.threshold = 1;  // the others go on without it
    Network network(seed, config, bad_links(seed), 8);
    network.join();
    Replicas replicas(network, config);
    replicas.pushes_each = 300;
    Time next = 2 * millisecond;
    std::size_t victim = 0;
    run(network, replicas, config.members, [&] {
      if (network.now < next) return;
      next = network.now + static_cast<Time>(network.pick(1, 10)) * millisecond;
      network.cut[victim] = false;
      victim = network.pick(0, config.members - 1);
      network.cut[victim] = network.pick(0, 1) == 0 && network.now < 5 * second;
    });
    replicas.check_equal();
    replicas.check_counts();
    events += replicas.events();
  }
  CHECK(events > 16);  // besides those of members that joined last
}

TEST_CASE("restarted and evicted members, Resets and Halts", "[engine][async][network]") {
  const auto seed = GENERATE(from_range(seeds(200, 24)));
  INFO("seed " << seed);
  const model::Switch::Config config = shape_of(seed);
  Network network(seed, config, bad_links(seed), 8);
  network.join();
  Replicas replicas(network, config);
  Time next = 3 * millisecond;
  int left = 12;
  bool halted = false;
  run(network, replicas, config.members, [&] {
    if (network.now < next) return;
    next = network.now + static_cast<Time>(network.pick(3, 60)) * millisecond;
    if (left == 0 && !halted) return;
    left -= left > 0 ? 1 : 0;
    std::vector<model::Datagram> out;
    const auto member = network.pick(0, config.members - 1);
    switch (halted ? 0 : network.pick(0, 3)) {
      case 0:
        halted = !halted;
        network.the_switch().halt(halted, out);
        break;
      case 1:
        network.the_switch().reset(out);
        break;
      case 2:
        network.the_switch().evict(static_cast<std::uint16_t>(member));
        break;
      default:
        if (!replicas.all_pushed()) replicas.restart(member);
    }
    network.deliver(out);
  });
  replicas.check_equal();
  CHECK(replicas.done() > 0);
}

TEST_CASE("without loss a push is one datagram a slot and each update comes once",
          "[engine][async][network]") {
  model::Switch::Config config = shape_of(1);
  config.members = 4;
  config.elements = 10 * floats;
  config.slots = 10;
  config.threshold = 0;
  Network network(7, config, {});
  network.join();
  Replicas replicas(network, config);
  REQUIRE(network.run([&] {
    for (std::size_t m = 0; m < 4; ++m) replicas.act(m);
    return replicas.all_pushed();
  }));
  for (std::size_t m = 0; m < 4; ++m) {
    const Statistics statistics = network.agents[m]->statistics();
    CHECK(statistics.contributions_sent == 10 * replicas.pushes_each);
    CHECK(statistics.retransmissions == 0);
    CHECK(statistics.duplicate_results == 0);
    CHECK(statistics.helps <= 2);
  }
  replicas.check_counts();
}
