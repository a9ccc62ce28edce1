// Synchronous jobs over good and bad links.
#include "tests/unit/engine/network.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <iostream>
#include <map>

using namespace iswitch;
using namespace iswitch::agent;

namespace {

/// One collective operation on all members, and what must come out.
struct Collective {
  wire::OperationKind kind = wire::OperationKind::sum;
  Reduction reduction = Reduction::sum;
  wire::MemberId root = 0;
  bool in_place = false;
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> outputs;
  std::vector<float> expected;
};

Collective make_collective(Network& network, std::size_t members, std::size_t most) {
  Collective collective;
  const auto kind = network.pick(0, 9);
  if (kind == 8) collective.kind = wire::OperationKind::broadcast;
  if (kind == 9) collective.kind = wire::OperationKind::barrier;
  collective.reduction = kind < 3 ? Reduction::mean : Reduction::sum;
  collective.root = static_cast<wire::MemberId>(network.pick(0, members - 1));
  collective.in_place = network.pick(0, 1) == 1;
  const std::size_t size = kind == 9                 ? 0
                           : network.pick(0, 3) == 0 ? network.pick(0, 9)
                                                     : network.pick(0, most);
  std::vector<double> sums(size, 0.0);
  for (std::size_t m = 0; m < members; ++m) {
    std::vector<float> input(size);
    for (std::size_t i = 0; i < size; ++i) {
      // Integers, so that the sum is exact in any order; stretches of zeros too.
      const auto value = i / 64 % 5 == 3 ? 0.0 : static_cast<double>(network.pick(0, 4000)) - 2000;
      input[i] = static_cast<float>(value);
      if (collective.kind != wire::OperationKind::broadcast || m == collective.root)
        sums[i] += value;
    }
    collective.inputs.push_back(std::move(input));
    collective.outputs.emplace_back(size, -1.0F);
  }
  for (const double sum : sums) {
    const auto value = static_cast<float>(sum);
    const bool mean =
        collective.kind == wire::OperationKind::sum && collective.reduction == Reduction::mean;
    collective.expected.push_back(mean ? value / static_cast<float>(members) : value);
  }
  return collective;
}

Request request_of(Collective& collective, std::size_t member, Time deadline) {
  Request request;
  request.kind = collective.kind;
  request.reduction = collective.reduction;
  request.root = collective.root;
  request.deadline = deadline;
  if (collective.kind == wire::OperationKind::barrier) return request;
  request.output = collective.in_place ? collective.inputs[member] : collective.outputs[member];
  request.input = collective.inputs[member];
  return request;
}

/// `count` random operations, some in flight at once; every result is compared.
void run_operations(Network& network, std::size_t members, std::size_t count,
                    std::size_t most_elements) {
  std::vector<Collective> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back(make_collective(network, members, most_elements));
  std::vector<std::size_t> submitted(members, 0);
  std::vector<std::size_t> completed(members, 0);
  std::vector<std::map<OperationId, std::size_t>> ids(members);
  const auto step = [&] {
    bool finished = true;
    for (std::size_t m = 0; m < members; ++m) {
      while (auto completion = network.agents[m]->take_completion()) {
        INFO("member " << m << ": " << completion->error.text);
        REQUIRE_FALSE(completion->error);
        const auto found = ids[m].find(completion->id);
        REQUIRE(found != ids[m].end());
        Collective& collective = all[found->second];
        const auto& got = collective.in_place ? collective.inputs[m] : collective.outputs[m];
        INFO("operation " << found->second);
        if (collective.kind != wire::OperationKind::barrier) REQUIRE(got == collective.expected);
        if (!collective.expected.empty()) REQUIRE(completion->smallest_workers == members);
        REQUIRE_FALSE(completion->partial);
        // Its memory is gone from now on.
        collective.inputs[m] = {};
        collective.outputs[m] = {};
        ids[m].erase(found);
        ++completed[m];
      }
      while (submitted[m] < count && submitted[m] - completed[m] < 4) {
        if (network.pick(0, 3) == 0) break;  // members differ in how far ahead they are
        const OperationId id = network.agents[m]->submit(
            request_of(all[submitted[m]], m, network.now + 100 * second), network.now);
        REQUIRE(ids[m].emplace(id, submitted[m]).second);
        ++submitted[m];
        network.drive(m);
      }
      finished = finished && completed[m] == count;
    }
    return finished;
  };
  REQUIRE(network.run(step, 400 * second));
}

}  // namespace

TEST_CASE("random operations over good and bad links are exact", "[engine][network]") {
  const auto seed = GENERATE(from_range(seeds(1, 12)));
  INFO("seed " << seed);
  model::Switch::Config config;
  std::mt19937_64 shape(seed);
  const auto pick = [&](std::uint64_t least, std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(least, most)(shape);
  };
  config.members = static_cast<std::uint16_t>(pick(1, 5));
  config.slots = static_cast<std::uint32_t>(pick(1, 40));
  config.segment_bytes = static_cast<std::uint32_t>(32 * pick(1, 8));
  config.base_round =
      pick(0, 1) == 0 ? 0xFFFF'FFF0U : static_cast<std::uint32_t>(pick(0, UINT32_MAX));
  config.shards = static_cast<std::uint16_t>(pick(1, 3));
  Faults faults;
  if (seed % 3 != 0) {
    faults.loss = seed % 3 == 1 ? 0.01 : 0.08;
    faults.copy = 0.1;
    faults.jitter = 100 * microsecond;
    faults.congestion = 0.02;
  }
  Network network(seed, config, faults, static_cast<std::uint32_t>(pick(1, 40)));
  network.join();
  run_operations(network, config.members, 30, 2000);
  CHECK(network.the_switch().ahead == 0);
  CHECK(network.the_switch().wrong_shard == 0);
  CHECK(network.the_switch().mismatches == 0);
}

TEST_CASE("without loss nothing is retransmitted or sent twice", "[engine][network]") {
  model::Switch::Config config;
  config.members = 4;
  config.slots = 64;
  config.segment_bytes = 256;
  Network network(5, config, {});
  network.join();
  run_operations(network, 4, 30, 4000);
  std::uint64_t sent = 0;
  for (const auto& agent : network.agents) {
    CHECK(agent->statistics().retransmissions == 0);
    CHECK(agent->statistics().duplicate_results == 0);
    sent += agent->statistics().contributions_sent;
  }
  CHECK(network.the_switch().contributions == sent);
  CHECK(network.the_switch().accepted == sent);
}

TEST_CASE("one per cent of loss costs few retransmissions", "[engine][network]") {
  model::Switch::Config config;
  config.members = 4;
  config.slots = 256;
  config.segment_bytes = 256;
  Faults faults;
  faults.loss = 0.01;
  Network network(17, config, faults, 64);
  network.join();
  run_operations(network, 4, 20, 60'000);
  for (const auto& agent : network.agents) {
    const Statistics statistics = agent->statistics();
    // Losses of own contributions and results, and the sums that wait for another member's.
    CHECK(statistics.retransmissions < statistics.contributions_sent / 12);
    CHECK(statistics.retransmit_timeout <= 20 * millisecond);
  }
}

TEST_CASE("Resets, Halts and evictions at random: sums that complete are exact",
          "[engine][network]") {
  const auto seed = GENERATE(from_range(seeds(100, 10)));
  INFO("seed " << seed);
  model::Switch::Config config;
  config.members = 3;
  config.slots = 16;
  config.segment_bytes = 64;
  config.base_round = 0xFFFF'FF00;
  Faults faults;
  faults.loss = 0.02;
  faults.copy = 0.05;
  faults.jitter = 100 * microsecond;
  Network network(seed, config, faults, 16);
  network.join();

  // Each member repeats its work from where all agreed to be: after a failure the members first sum
  // their positions (one of them knows the least completed) and go on from the least.
  struct Worker {
    std::size_t completed = 0;  // iterations done
    enum class Step { idle, work, agree } step = Step::idle;
    bool failed = false;
    std::vector<float> vector;
    std::vector<float> places;
    OperationId id = 0;
    std::size_t failures = 0;
  };
  constexpr std::size_t iterations = 120;
  std::vector<Worker> workers(3);
  const auto input = [](std::size_t member, std::size_t iteration, std::size_t i) {
    return static_cast<float>((member + 1) * 1000 + iteration % 97 + i % 13);
  };
  std::size_t exact = 0;
  Time next_disturbance = 0;  // the first one is a Reset, while all are at work
  std::size_t disturbances = 0;
  bool halted = false;
  const auto step = [&] {
    if (network.now >= next_disturbance) {
      next_disturbance = network.now + static_cast<Time>(network.pick(3, 60)) * millisecond;
      std::vector<model::Datagram> out;
      const auto what = disturbances++ == 0 ? 1 : network.pick(0, 3);
      if (halted || what == 0) {
        halted = !halted;
        network.the_switch().halt(halted, out);
      } else if (what == 1) {
        network.the_switch().reset(out);
      } else if (what == 2) {
        network.the_switch().evict(static_cast<std::uint16_t>(network.pick(0, 2)));
      }
      network.deliver(out);
    }
    bool finished = true;
    for (std::size_t m = 0; m < 3; ++m) {
      Worker& worker = workers[m];
      Engine& agent = *network.agents[m];
      while (auto completion = agent.take_completion()) {
        REQUIRE(completion->id == worker.id);
        if (completion->error) {
          INFO(completion->error.text);
          REQUIRE((completion->error.code == ErrorCode::job_reset ||
                   completion->error.code == ErrorCode::timed_out ||
                   completion->error.code == ErrorCode::halted ||
                   completion->error.code == ErrorCode::mismatch));
          worker.failed = true;
          ++worker.failures;
        } else if (worker.step == Worker::Step::work) {
          for (std::size_t i = 0; i < worker.vector.size(); ++i) {
            // Without an evicted member the sum is of those that remain, and the count says so.
            bool right = false;
            for (unsigned subset = 1; subset < 8; ++subset) {
              float sum = 0;
              std::uint32_t size = 0;
              for (unsigned other = 0; other < 3; ++other)
                if ((subset >> other & 1) != 0) {
                  sum += input(other, worker.completed, i);
                  ++size;
                }
              right = right || (size >= completion->smallest_workers && sum == worker.vector[i]);
            }
            REQUIRE(right);
          }
          ++exact;
          ++worker.completed;
        } else {
          // Slot m holds member m's count; all resume from the least.
          worker.completed = static_cast<std::size_t>(
              *std::min_element(worker.places.begin(), worker.places.end()));
          worker.failed = false;
        }
        worker.step = Worker::Step::idle;
      }
      if (worker.step == Worker::Step::idle && (worker.failed || worker.completed < iterations)) {
        Request request;
        request.deadline = network.now + 3 * second;
        if (worker.failed) {
          worker.places.assign(3, 0.0F);
          worker.places[m] = static_cast<float>(worker.completed);
          request.input = request.output = worker.places;
          request.user_tag = 0xA9;
          worker.step = Worker::Step::agree;
        } else {
          worker.vector.resize(100 + worker.completed % 7);
          for (std::size_t i = 0; i < worker.vector.size(); ++i)
            worker.vector[i] = input(m, worker.completed, i);
          request.input = request.output = worker.vector;
          worker.step = Worker::Step::work;
        }
        worker.id = agent.submit(request, network.now);
        network.drive(m);
      }
      finished = finished && worker.completed >= iterations && worker.step == Worker::Step::idle;
    }
    return finished;
  };
  // A member that is done stops taking part, so a late failure of another may not end; what counts
  // is that all that completed was right and that work got done.
  network.run(step, 60 * second);
  CHECK(exact >= iterations);
  CHECK(network.the_switch().ahead == 0);
  std::size_t failures = 0;
  for (const Worker& worker : workers) failures += worker.failures;
  CHECK(failures > 0);
}

TEST_CASE("backup workers: late contributions meet finished results", "[engine][network]") {
  model::Switch::Config config;
  config.members = 4;
  config.slots = 16;
  config.segment_bytes = 64;
  config.threshold = 3;
  config.history = 8;
  Faults faults;
  faults.jitter = 200 * microsecond;
  Network network(3, config, faults, 16);
  network.join();
  std::vector<std::vector<float>> vectors(4, std::vector<float>(200, 1.0F));
  for (std::size_t m = 0; m < 4; ++m) {
    Request request;
    request.input = request.output = vectors[m];
    request.deadline = network.now + 10 * second;
    if (m == 3) network.run([] { return false; }, 100 * millisecond);  // the straggler
    network.agents[m]->submit(request, network.now);
  }
  std::size_t done = 0;
  REQUIRE(network.run([&] {
    for (auto& agent : network.agents)
      while (auto completion = agent->take_completion()) {
        REQUIRE_FALSE(completion->error);
        CHECK(completion->smallest_workers == 3);
        CHECK_FALSE(completion->partial);
        ++done;
      }
    return done == 4;
  }));
  for (const auto& vector : vectors)
    for (const float value : vector) REQUIRE(value == 3);
}

TEST_CASE("ranks that disagree are told, and work together again afterwards", "[engine][network]") {
  model::Switch::Config config;
  config.members = 2;
  config.slots = 16;
  config.segment_bytes = 64;
  Network network(9, config, {});
  network.join();
  std::vector<std::vector<float>> vectors{std::vector<float>(100, 1.0F),
                                          std::vector<float>(120, 1.0F)};
  std::size_t mismatches = 0;
  std::size_t good = 0;
  for (std::size_t m = 0; m < 2; ++m) {
    Request request;
    request.input = request.output = vectors[m];
    request.deadline = network.now + 5 * second;
    network.agents[m]->submit(request, network.now);
  }
  REQUIRE(network.run([&] {
    for (std::size_t m = 0; m < 2; ++m)
      while (auto completion = network.agents[m]->take_completion()) {
        if (completion->error.code == ErrorCode::mismatch) {
          ++mismatches;
          Request request;
          request.kind = wire::OperationKind::barrier;
          request.deadline = network.now + 5 * second;
          network.agents[m]->submit(request, network.now);
        } else {
          INFO(completion->error.text);
          REQUIRE_FALSE(completion->error);
          ++good;
        }
      }
    return good == 2;
  }));
  CHECK(mismatches == 2);
}

TEST_CASE("a hundred thousand small operations", "[engine][network]") {
  model::Switch::Config config;
  config.members = 2;
  config.slots = 64;
  config.segment_bytes = 64;
  Network network(21, config, {});
  network.join();
  std::vector<std::vector<float>> vectors(2, std::vector<float>(1));
  std::vector<std::size_t> done(2, 0);
  for (std::size_t m = 0; m < 2; ++m) {
    vectors[m][0] = 1;
    Request request;
    request.input = request.output = vectors[m];
    request.deadline = network.now + 5 * second;
    network.agents[m]->submit(request, network.now);
  }
  REQUIRE(network.run(
      [&] {
        for (std::size_t m = 0; m < 2; ++m)
          while (auto completion = network.agents[m]->take_completion()) {
            if (completion->error || vectors[m][0] != 2) return true;
            if (++done[m] == 50'000) continue;
            vectors[m][0] = 1;
            Request request;
            request.input = request.output = vectors[m];
            request.deadline = network.now + 5 * second;
            network.agents[m]->submit(request, network.now);
            network.drive(m);
          }
        return done[0] == 50'000 && done[1] == 50'000;
      },
      1000 * second));
  CHECK(done[0] == 50'000);
  CHECK(network.agents[0]->statistics().retransmissions == 0);
}
