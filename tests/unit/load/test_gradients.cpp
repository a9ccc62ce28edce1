// What iswitch-load takes for right, and what it must find wrong.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tools/load/gradients.h"

using iswitch::load::Gradients;

namespace {

constexpr std::size_t elements = 1'000;

/// Adds up what the workers give, by this test.
std::vector<float> add_up(const Gradients& gradients, const std::vector<std::uint16_t>& workers,
                          std::uint64_t operation) {
  std::vector<float> sum(elements);
  for (const std::uint16_t worker : workers) {
    const auto input = gradients.of(worker, operation);
    for (std::size_t i = 0; i < elements; ++i) sum[i] += input[i];
  }
  return sum;
}

std::vector<std::uint16_t> everybody(std::uint16_t workers) {
  std::vector<std::uint16_t> all;
  for (std::uint16_t worker = 0; worker < workers; ++worker) all.push_back(worker);
  return all;
}

}  // namespace

TEST_CASE("the sum of all workers is right, in any order") {
  for (const std::uint16_t workers : {2, 3, 64}) {
    const Gradients gradients(workers, elements);
    std::vector<std::uint16_t> backwards = everybody(workers);
    std::reverse(backwards.begin(), backwards.end());
    for (const std::uint64_t operation : {0u, 1u, 2u, 7u}) {
      CHECK(gradients.check(add_up(gradients, everybody(workers), operation), operation).wrong ==
            0);
      CHECK(gradients.check(add_up(gradients, backwards, operation), operation).wrong == 0);
    }
  }
}

TEST_CASE("a missing worker, one that is added twice, and one for another are wrong everywhere") {
  const std::uint16_t workers = 8;
  const Gradients gradients(workers, elements);
  for (std::uint16_t one = 0; one < workers; ++one) {
    std::vector<std::uint16_t> missing, twice = everybody(workers), other;
    twice.push_back(one);
    for (std::uint16_t worker = 0; worker < workers; ++worker) {
      if (worker != one) missing.push_back(worker);
      other.push_back(worker == one ? static_cast<std::uint16_t>((one + 1) % workers) : worker);
    }
    for (const auto& group : {missing, twice, other}) {
      CHECK(gradients.check(add_up(gradients, group, 4), 4).wrong == elements);
    }
  }
}

TEST_CASE("the sum of the operation before is wrong everywhere") {
  const Gradients gradients(4, elements);
  for (const std::uint64_t operation : {1u, 2u, 3u}) {
    const auto before = gradients.sum(operation - 1);
    CHECK(gradients.check(before, operation).wrong == elements);
  }
}

TEST_CASE("one wrong element is found and told") {
  const Gradients gradients(4, elements);
  std::vector<float> result(gradients.sum(0).begin(), gradients.sum(0).end());
  result[617] += 1;
  const auto verdict = gradients.check(result, 0);
  CHECK(verdict.wrong == 1);
  CHECK(verdict.first == 617);
  CHECK(verdict.found == verdict.expected + 1);
  CHECK(verdict.expected == gradients.sum(0)[617]);
}
