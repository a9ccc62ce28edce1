// Vectors whose sums tell who is in them. Worker of rank k contributes c * 4^(k mod 8), where c is
// a whole number that depends on job, operation and element; so the sum over c, in base 4, has
// digit k = how often rank k was added, exact in binary32 in any order. Jobs use disjoint ranges of
// c. With more than 8 ranks, element i carries those with rank / 8 = i mod groups; the rest add
// zero.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/engine/engine.h"
#include "wire/control.h"

namespace iswitch::sim {

/// One collective operation of a job's programme, the same for all its workers.
struct Operation {
  std::uint16_t job = 0;
  unsigned job_number = 0;  ///< 0..3, for the range of c
  std::uint32_t base_round = 0;
  std::uint32_t index = 0;  ///< since the stream began at base_round
  wire::OperationKind kind = wire::OperationKind::sum;
  agent::Reduction reduction = agent::Reduction::sum;
  std::uint32_t elements = 0;
  unsigned root = 0;  ///< rank
  std::uint32_t user_tag = 0;
  bool zeros = false;  ///< some workers' segments are all zero
  std::uint32_t segment_elements = 360;
  unsigned ranks = 0;  ///< workers of the job
  std::uint64_t seed = 0;
  /// c of every element, if somebody has worked them out (coefficients()); shared, since all
  /// workers of the job need the same ones.
  std::shared_ptr<const std::vector<float>> known;
};

inline constexpr unsigned ranks_per_element = 8;

unsigned groups(const Operation& operation);
/// c of all elements, for Operation::known.
std::vector<float> coefficients(const Operation& operation);
/// c of an element, 1..255.
std::uint32_t coefficient(const Operation& operation, std::uint32_t element);
/// Whether a rank's part of a segment of this operation is all zero.
bool is_zero(const Operation& operation, unsigned rank, std::uint32_t segment);
void fill(const Operation& operation, unsigned rank, std::span<float> out);
/// Whether `values` is what fill() would write.
bool is_filled(const Operation& operation, unsigned rank, std::span<const float> values);

/// The ranks in a sum's element, as bits within its group; nothing when the value is not a sum in
/// which every rank was added at most once.
std::optional<std::uint32_t> ranks_in(const Operation& operation, std::uint32_t element,
                                      double sum);
/// The elements [first, first + sums.size()) whose values are not the sum of exactly these ranks
/// (bits within their group), as the index of the first one; sums.size() if there is none. For
/// operations of one group.
std::uint32_t first_other_sum(const Operation& operation, std::uint32_t first,
                              std::span<const float> sums, std::uint32_t ranks);
/// The sum's element when exactly these ranks (bits within its group) are in it; the inverse.
float sum_of(const Operation& operation, std::uint32_t element, std::uint32_t ranks);
/// The ranks whose non-zero parts a full sum's element has, as bits within its group.
std::uint32_t full_ranks(const Operation& operation, std::uint32_t element);

/// One line about a wrong element: which sum it is instead, as far as can be told.
std::string explain(const Operation& operation, std::uint32_t element, float value);

/// A hash of the bits.
std::uint64_t hash_of(std::span<const float> values);

}  // namespace iswitch::sim
