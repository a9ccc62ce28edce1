// The results that this member has had, as they came: for members that lack them when the switch
// has restarted (protocol.md section 9). Memory is taken once when a job runs; nothing is allocated
// for a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "wire/header.h"

namespace iswitch::agent {

struct KeptResult {
  std::uint64_t number = 0;  ///< synchronous: position; asynchronous: update number
  std::uint64_t set = 0;
  std::uint32_t bytes = 0;
  std::uint16_t workers = 0;
  std::uint8_t flags = 0;
  bool present = false;
};

class KeptResults {
 public:
  /// Each result begins at a multiple of this, and takes one.
  static constexpr std::size_t line_bytes = 64;
  /// The newest `depth` of each slot will be kept; what was is forgotten. False, and nothing is
  /// kept, where there is no memory for so many.
  bool begin(std::uint32_t slots, std::uint32_t depth, std::uint32_t segment_bytes);
  /// Uses the memory's pages, where there are not too many (`most` bytes): the first results do not
  /// wait for them then.
  void use_pages(std::size_t most);
  /// begin() gave memory.
  bool there() const { return memory_ != nullptr; }

  void keep(std::uint32_t slot, std::uint64_t number, const wire::Header& header, Bytes payload);
  /// Null when it is not kept.
  const KeptResult* find(std::uint32_t slot, std::uint64_t number) const;
  /// The newest by serial-number arithmetic; null when the slot has none.
  const KeptResult* newest(std::uint32_t slot) const;
  /// Valid until another result takes its place.
  Bytes payload_of(const KeptResult& kept) const;

 private:
  struct alignas(line_bytes) Line {
    std::uint8_t bytes[line_bytes];
  };
  std::size_t index_of(std::uint32_t slot, std::uint64_t number) const {
    return std::size_t{slot} * depth_ + (depth_ == 1 ? 0 : number % depth_);
  }

  std::uint32_t depth_ = 1;
  std::uint32_t segment_bytes_ = 0;
  std::vector<KeptResult> entries_;
  std::size_t lines_ = 0;  ///< of a result
  std::size_t memory_lines_ = 0;
  std::unique_ptr<Line[]> memory_;  // not cleared
};

}  // namespace iswitch::agent
