#include "tools/sim/gradient.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tools/sim/random.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

namespace {

constexpr std::uint32_t digit_mask = 0x5555;

std::uint32_t coefficient_of(std::uint64_t seed, unsigned job_number, std::uint32_t element) {
  std::uint64_t x = (seed + element) * 0xBF58'476D'1CE4'E5B9;
  x ^= x >> 32;
  return job_number % 4 * 64 + 1 + static_cast<std::uint32_t>(x % 63);
}

// Bit k for digit k of a number whose base-4 digits are 0 or 1.
std::uint32_t digits_to_bits(std::uint32_t digits) {
  std::uint32_t bits = 0;
  for (unsigned k = 0; k < ranks_per_element; ++k) bits |= (digits >> (2 * k) & 1U) << k;
  return bits;
}

std::uint32_t bits_to_digits(std::uint32_t bits) {
  std::uint32_t digits = 0;
  for (unsigned k = 0; k < ranks_per_element; ++k) digits |= (bits >> k & 1U) << (2 * k);
  return digits;
}

}  // namespace

unsigned groups(const Operation& operation) {
  return (operation.ranks + ranks_per_element - 1) / ranks_per_element;
}

std::uint32_t coefficient(const Operation& operation, std::uint32_t element) {
  return coefficient_of(operation.seed, operation.job_number, element);
}

bool is_zero(const Operation& operation, unsigned rank, std::uint32_t segment) {
  return operation.zeros && mix(operation.seed ^ (std::uint64_t{rank} << 40 | segment)) % 4 == 0;
}

void fill(const Operation& operation, unsigned rank, std::span<float> out) {
  const unsigned group = rank / ranks_per_element;
  const unsigned group_count = groups(operation);
  const auto weight = static_cast<float>(1U << (2 * (rank % ranks_per_element)));
  for (std::uint32_t first = 0; first < out.size(); first += operation.segment_elements) {
    const auto end = std::min<std::uint32_t>(first + operation.segment_elements,
                                             static_cast<std::uint32_t>(out.size()));
    const bool zero = is_zero(operation, rank, first / operation.segment_elements);
    for (std::uint32_t i = first; i < end; ++i) {
      out[i] = zero || i % group_count != group
                   ? 0.0F
                   : weight * static_cast<float>(coefficient(operation, i));
    }
  }
}

std::optional<std::uint32_t> ranks_in(const Operation& operation, std::uint32_t element,
                                      double sum) {
  const double c = coefficient(operation, element);
  const double quotient = sum / c;
  if (!(quotient >= 0) || quotient > digit_mask) return std::nullopt;
  const auto digits = static_cast<std::uint32_t>(quotient);
  if (static_cast<double>(digits) * c != sum || (digits & ~digit_mask) != 0) return std::nullopt;
  return digits_to_bits(digits);
}

float sum_of(const Operation& operation, std::uint32_t element, std::uint32_t ranks) {
  return static_cast<float>(coefficient(operation, element) * bits_to_digits(ranks));
}

std::uint32_t full_ranks(const Operation& operation, std::uint32_t element) {
  const unsigned first = element % groups(operation) * ranks_per_element;
  const std::uint32_t segment = element / operation.segment_elements;
  std::uint32_t bits = 0;
  for (unsigned k = 0; k < ranks_per_element && first + k < operation.ranks; ++k) {
    if (!is_zero(operation, first + k, segment)) bits |= 1U << k;
  }
  return bits;
}

std::string explain(const Operation& operation, std::uint32_t element, float value) {
  const std::string where =
      format("job %u operation %u of base round %u element %u is %.9g", operation.job,
             operation.index, operation.base_round, element, static_cast<double>(value));
  const double c = coefficient(operation, element);
  const double quotient = value / c;
  if (quotient >= 0 && quotient < 65536 && std::floor(quotient) == quotient) {
    auto digits = static_cast<std::uint32_t>(quotient);
    std::string counts;
    for (unsigned k = 0; k < ranks_per_element; ++k, digits /= 4) {
      counts += format("%s%u", k == 0 ? "" : " ", digits % 4);
    }
    return where + ": ranks were added " + counts + " times";
  }
  for (unsigned job = 0; job < 4; ++job) {
    const auto whole = static_cast<std::uint32_t>(value > 0 && value < 1e9F ? value : 0);
    const std::uint32_t low = whole & 0xFFU;
    if (job != operation.job_number % 4 && low > job * 64 && low < (job + 1) * 64 &&
        static_cast<float>(whole) == value) {
      return where + format(": looks like data of job number %u", job);
    }
  }
  return where + ": no sum of this operation";
}

std::uint64_t hash_of(std::span<const float> values) {
  std::uint64_t h = values.size();
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    h = (h ^ bits) * 0x9E37'79B9'7F4A'7C15;
    h ^= h >> 32;
  }
  return h;
}

}  // namespace iswitch::sim
