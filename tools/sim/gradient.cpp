#include "tools/sim/gradient.h"

#include <algorithm>
#include <cmath>

#include "tools/sim/hash.h"
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

std::vector<float> coefficients(const Operation& operation) {
  std::vector<float> all(operation.elements);
  for (std::uint32_t i = 0; i < operation.elements; ++i)
    all[i] = static_cast<float>(coefficient_of(operation.seed, operation.job_number, i));
  return all;
}

std::uint32_t coefficient(const Operation& operation, std::uint32_t element) {
  if (operation.known) return static_cast<std::uint32_t>((*operation.known)[element]);
  return coefficient_of(operation.seed, operation.job_number, element);
}

bool is_zero(const Operation& operation, unsigned rank, std::uint32_t segment) {
  return operation.zeros && mix(operation.seed ^ (std::uint64_t{rank} << 40 | segment)) % 4 == 0;
}

namespace {

float weight_of(unsigned rank) {
  return static_cast<float>(1U << (2 * (rank % ranks_per_element)));
}

// Calls act(first, end, zero) for each segment of a vector.
template <class Act>
void each_segment(const Operation& operation, unsigned rank, std::size_t elements, Act&& act) {
  for (std::size_t first = 0; first < elements; first += operation.segment_elements) {
    const std::size_t end = std::min(first + operation.segment_elements, elements);
    act(first, end,
        is_zero(operation, rank, static_cast<std::uint32_t>(first / operation.segment_elements)));
  }
}

}  // namespace

void fill(const Operation& operation, unsigned rank, std::span<float> out) {
  const unsigned group = rank / ranks_per_element;
  const unsigned group_count = groups(operation);
  const float weight = weight_of(rank);
  each_segment(operation, rank, out.size(), [&](std::size_t first, std::size_t end, bool zero) {
    if (zero || group_count > 1) std::fill(out.begin() + first, out.begin() + end, 0.0F);
    if (zero) return;
    if (group_count == 1 && operation.known) {
      const float* c = operation.known->data();
      for (std::size_t i = first; i < end; ++i) out[i] = weight * c[i];
      return;
    }
    const std::size_t begin = first + (group + group_count - first % group_count) % group_count;
    for (std::size_t i = begin; i < end; i += group_count) {
      out[i] = weight * static_cast<float>(coefficient(operation, static_cast<std::uint32_t>(i)));
    }
  });
}

bool is_filled(const Operation& operation, unsigned rank, std::span<const float> values) {
  const unsigned group = rank / ranks_per_element;
  const unsigned group_count = groups(operation);
  const float weight = weight_of(rank);
  bool right = true;
  each_segment(operation, rank, values.size(), [&](std::size_t first, std::size_t end, bool zero) {
    if (!zero && group_count == 1 && operation.known) {
      const float* c = operation.known->data();
      unsigned wrong = 0;
      for (std::size_t i = first; i < end; ++i) wrong += values[i] != weight * c[i] ? 1 : 0;
      right = right && wrong == 0;
      return;
    }
    for (std::size_t i = first; i < end; ++i) {
      const float expected =
          zero || i % group_count != group
              ? 0.0F
              : weight * static_cast<float>(coefficient(operation, static_cast<std::uint32_t>(i)));
      right = right && values[i] == expected;
    }
  });
  return right;
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

std::uint32_t first_other_sum(const Operation& operation, std::uint32_t first,
                              std::span<const float> sums, std::uint32_t ranks) {
  const auto size = static_cast<std::uint32_t>(sums.size());
  const auto digits = static_cast<float>(bits_to_digits(ranks));
  if (operation.known) {  // at one go, which compilers turn into vector instructions
    const float* c = operation.known->data() + first;
    unsigned others = 0;
    for (std::uint32_t i = 0; i < size; ++i) others += sums[i] != c[i] * digits ? 1 : 0;
    if (others == 0) return size;
  }
  for (std::uint32_t i = 0; i < size; ++i) {
    if (sums[i] != sum_of(operation, first + i, ranks)) return i;
  }
  return size;
}

std::uint64_t hash_of(std::span<const float> values) {
  return hash_bytes({reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()});
}

}  // namespace iswitch::sim
