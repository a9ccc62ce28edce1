// The parts without libtorch, against values computed another way.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tools/rl/algorithms/advantages.h"
#include "tools/rl/algorithms/learner.h"
#include "tools/rl/core/adam.h"
#include "tools/rl/core/digest.h"
#include "tools/rl/core/moments.h"
#include "tools/rl/core/parameters.h"
#include "tools/rl/core/random.h"
#include "tools/rl/core/state_codec.h"
#include "tools/rl/exchanges/local_exchange.h"

using namespace iswitch::rl;

namespace {

std::vector<float> random_floats(Random& random, std::size_t count, double scale) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(scale * random.normal());
  return values;
}

/// What a switch may do to a broadcast: others' zeros are added to it.
void pass_switch(std::vector<float>& values) {
  for (float& value : values) value = 0.0F + value + 0.0F;
}

}  // namespace

TEST_CASE("state survives a broadcast bit for bit") {
  const std::vector<double> doubles{0.0,      1.0, -1.0 / 3.0, 1e15 + 0.125, 4.0 * std::atan(1.0),
                                    1e-12 / 7};
  const std::vector<std::uint64_t> counts{0, 1, (1ULL << 24) + 1, 123'456'789'012'345ULL,
                                          std::numeric_limits<std::uint64_t>::max()};
  const std::vector<float> floats{-0.0F, 1e-42F, std::numeric_limits<float>::max(), -1.5F};
  StateWriter writer;
  for (const double value : doubles) writer.put(value);
  for (const std::uint64_t value : counts) writer.put(value);
  writer.put(floats);
  pass_switch(writer.values());

  StateReader reader(writer.values());
  for (const double value : doubles) CHECK(reader.get_double() == value);
  for (const std::uint64_t value : counts) CHECK(reader.get_count() == value);
  std::vector<float> back(floats.size());
  reader.get(back);
  CHECK(std::bit_cast<std::uint32_t>(back[0]) == 0);  // a negative zero is sent as zero
  CHECK(std::equal(back.begin() + 1, back.end(), floats.begin() + 1));
  CHECK(reader.left() == 0);
  CHECK_FALSE(reader.failed());
  reader.get_count();
  CHECK(reader.failed());
}

TEST_CASE("shared moments equal those of all values together") {
  const std::uint64_t seed = GENERATE(1, 2, 3);
  INFO("seed " << seed);
  Random random(seed, 0, 0);
  constexpr std::size_t dimensions = 3, workers = 4;
  std::vector<SharedMoments> shared(workers, SharedMoments(dimensions));
  std::vector<std::vector<double>> all(dimensions);
  for (int exchange = 0; exchange < 5; ++exchange) {
    std::vector<float> sums(shared[0].contribution_floats(), 0.0F);
    for (SharedMoments& own : shared) {
      const auto count = random.below(40);  // none at all is possible
      for (std::uint32_t i = 0; i < count; ++i) {
        std::vector<float> value = random_floats(random, dimensions, 2.0);
        value[1] = value[1] * 0.01F + 50.0F + static_cast<float>(exchange);
        own.observe(value);
        for (std::size_t k = 0; k < dimensions; ++k)
          all[k].push_back(static_cast<double>(value[k]));
      }
      std::vector<float> contribution(sums.size());
      own.contribution(contribution);
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += contribution[k];
    }
    for (SharedMoments& own : shared) own.merge(sums);
  }
  for (std::size_t k = 0; k < dimensions; ++k) {
    double mean = 0.0, squares = 0.0;
    for (const double value : all[k]) mean += value;
    mean /= static_cast<double>(all[k].size());
    for (const double value : all[k]) squares += (value - mean) * (value - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(all[k].size()));
    CHECK(shared[0].mean(k) == Approx(mean).margin(1e-5));
    CHECK(shared[0].deviation(k) == Approx(deviation).epsilon(1e-3));
    for (const SharedMoments& other : shared) {
      CHECK(other.mean(k) == shared[0].mean(k));
      CHECK(other.deviation(k) == shared[0].deviation(k));
    }
  }
  StateWriter writer;
  shared[0].save(writer);
  StateReader reader(writer.values());
  SharedMoments loaded(dimensions);
  loaded.load(reader);
  CHECK(loaded.mean(1) == shared[0].mean(1));
  CHECK(loaded.deviation(1) == shared[0].deviation(1));
}

TEST_CASE("Adam follows the published algorithm") {
  Random random(5, 0, 0);
  std::vector<float> weights = random_floats(random, 20, 1.0);
  std::vector<double> expected(weights.begin(), weights.end()), first(20), second(20);
  Adam adam(weights.size());
  for (int step = 1; step <= 50; ++step) {
    const std::vector<float> gradient = random_floats(random, 20, 3.0);
    adam.step(weights, gradient, 0.01);
    for (std::size_t i = 0; i < 20; ++i) {
      const double g = static_cast<double>(gradient[i]);
      first[i] = 0.9 * first[i] + 0.1 * g;
      second[i] = 0.999 * second[i] + 0.001 * g * g;
      expected[i] -= 0.01 * (first[i] / (1 - std::pow(0.9, step))) /
                     (std::sqrt(second[i] / (1 - std::pow(0.999, step))) + 1e-5);
    }
  }
  for (std::size_t i = 0; i < 20; ++i)
    CHECK(static_cast<double>(weights[i]) == Approx(expected[i]).margin(1e-4));
  CHECK(adam.steps() == 50);
}

TEST_CASE("a gradient is shortened as a whole, and one that is not finite is refused") {
  LocalExchange exchange;
  std::vector<float> weights(2, 0.0F), gradient{30.0F, 40.0F};
  Learner learner(weights, gradient);
  REQUIRE_FALSE(learner.step(exchange, 0.1, 5.0));
  CHECK(gradient[0] == Approx(3.0F));
  CHECK(gradient[1] == Approx(4.0F));
  CHECK(exchange.figures().calls == 1);
  CHECK(exchange.figures().bytes == 8);
  const std::vector<float> before = weights;
  gradient = {std::numeric_limits<float>::quiet_NaN(), 1.0F};
  CHECK(learner.step(exchange, 0.1, 5.0).kind == FailureKind::diverged);
  CHECK(weights == before);
}

TEST_CASE("advantages equal their definition as a sum over later surprises") {
  constexpr std::size_t steps = 12, environments = 3, total = steps * environments;
  constexpr float discount = 0.9F, lambda = 0.8F;
  Random random(9, 0, 0);
  const auto rewards = random_floats(random, total, 1.0),
             values = random_floats(random, total, 1.0), next = random_floats(random, total, 1.0);
  std::vector<unsigned char> terminated(total), ended(total);
  for (std::size_t i = 0; i < total; ++i) {
    terminated[i] = random.uniform() < 0.15;
    ended[i] = terminated[i] != 0 || random.uniform() < 0.15;
  }
  const auto got =
      advantages({environments, rewards, values, next, terminated, ended}, discount, lambda);
  for (std::size_t i = 0; i < total; ++i) {
    double expected = 0.0, weight = 1.0;
    for (std::size_t k = i; k < total; k += environments) {
      const double later = terminated[k] != 0 ? 0.0 : static_cast<double>(next[k]);
      expected +=
          weight * (static_cast<double>(rewards[k]) + 0.9 * later - static_cast<double>(values[k]));
      if (ended[k] != 0) break;
      weight *= 0.9 * 0.8;
    }
    CHECK(static_cast<double>(got[i]) == Approx(expected).margin(1e-5));
  }
}

TEST_CASE("the weights' digest is SHA-256 of their bytes") {
  CHECK(weights_digest({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::vector<float> zero{0.0F}, negative{-0.0F};
  CHECK(weights_digest(zero) == "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119");
  CHECK(weights_digest(zero) != weights_digest(negative));
}

TEST_CASE("parameters: what cannot be meant is refused with a line that says so") {
  Parameters parameters({{"steps", 64}, {"rate", 0.5}});
  const std::vector<std::string> good{"steps=32", "rate=1e-3"};
  REQUIRE_FALSE(parameters.set(good));
  CHECK(parameters.count("steps") == 32);
  CHECK(parameters.real("rate") == 1e-3);
  for (const char* bad :
       {"step=1", "steps", "steps=", "steps=many", "rate=nan", "rate=inf", "=1", ""}) {
    INFO(bad);
    const std::vector<std::string> assignment{bad};
    const Failure failure = parameters.set(assignment);
    CHECK(failure.kind == FailureKind::usage);
    CHECK(failure.text.find('\n') == std::string::npos);
  }
  CHECK(parameters.count("steps") == 32);
}

TEST_CASE("random numbers: streams are independent and have the right moments") {
  constexpr int count = 20'000;
  Random a(1, 1, 0), b(1, 1, 1), again(1, 1, 0);
  double sum = 0.0, squares = 0.0, product = 0.0;
  for (int i = 0; i < count; ++i) {
    const double x = a.normal(), y = b.normal();
    CHECK(x == again.normal());
    sum += x;
    squares += x * x;
    product += x * y;
  }
  CHECK(std::abs(sum / count) < 0.03);
  CHECK(squares / count == Approx(1.0).margin(0.05));
  CHECK(std::abs(product / count) < 0.03);
}
