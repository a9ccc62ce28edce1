#include "agent/engine/kept.h"

#include <cstring>
#include <new>

#include "wire/pages.h"
#include "wire/serial.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace iswitch::agent {
namespace {

/// What is kept is hardly ever read, so it goes past the caches, where the vectors stay: about half
/// of what a plain copy costs (bench/resume). Whole lines only, the last one filled up: a part of
/// one would have to be merged. A thread sees its own such stores; a lock, by which another may
/// come to drive the engine, is a full barrier on x86.
void copy_past_caches(std::uint8_t* to, Bytes from) {
#if defined(__SSE2__)
  const auto stream = [](std::uint8_t* line, const std::uint8_t* data) {
    for (std::size_t i = 0; i < KeptResults::line_bytes; i += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(line + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + i)));
  };
  for (; from.size() >= KeptResults::line_bytes; to += KeptResults::line_bytes) {
    stream(to, from.data());
    from = from.subspan(KeptResults::line_bytes);
  }
  if (from.empty()) return;
  std::uint8_t last[KeptResults::line_bytes] = {};
  std::memcpy(last, from.data(), from.size());
  stream(to, last);
#else
  std::memcpy(to, from.data(), from.size());
#endif
}

}  // namespace

bool KeptResults::begin(std::uint32_t slots, std::uint32_t depth, std::uint32_t segment_bytes) {
  depth_ = depth == 0 ? 1 : depth;
  segment_bytes_ = segment_bytes;
  const std::size_t count = std::size_t{slots} * depth_;
  lines_ = (segment_bytes + sizeof(Line) - 1) / sizeof(Line);
  if (memory_ == nullptr || count * lines_ != memory_lines_) {
    memory_.reset();
    memory_.reset(new (std::nothrow) Line[count * lines_]);
    memory_lines_ = count * lines_;
  }
  entries_.assign(memory_ == nullptr ? 0 : count, KeptResult{});
  return there();
}

void KeptResults::use_pages(std::size_t most) {
  const std::size_t bytes = memory_lines_ * sizeof(Line);
  if (there() && bytes <= most) use_each_page(memory_[0].bytes, bytes);
}

void KeptResults::keep(std::uint32_t slot, std::uint64_t number, const wire::Header& header,
                       Bytes payload) {
  const std::size_t index = index_of(slot, number);
  if (index >= entries_.size() || payload.size() > segment_bytes_) return;
  KeptResult& entry = entries_[index];
  entry.number = number;
  entry.set = header.set;
  entry.bytes = static_cast<std::uint32_t>(payload.size());
  entry.workers = header.member;
  entry.flags = header.flags;
  entry.present = true;
  if (!payload.empty()) copy_past_caches(memory_[index * lines_].bytes, payload);
}

const KeptResult* KeptResults::find(std::uint32_t slot, std::uint64_t number) const {
  const std::size_t index = index_of(slot, number);
  if (index >= entries_.size()) return nullptr;
  const KeptResult& entry = entries_[index];
  return entry.present && entry.number == number ? &entry : nullptr;
}

const KeptResult* KeptResults::newest(std::uint32_t slot) const {
  const KeptResult* newest = nullptr;
  for (std::size_t i = 0; i < depth_; ++i) {
    const std::size_t index = std::size_t{slot} * depth_ + i;
    if (index >= entries_.size() || !entries_[index].present) continue;
    const KeptResult& entry = entries_[index];
    if (newest == nullptr || wire::serial_newer(static_cast<std::uint32_t>(entry.number),
                                                static_cast<std::uint32_t>(newest->number)))
      newest = &entry;
  }
  return newest;
}

Bytes KeptResults::payload_of(const KeptResult& kept) const {
  const auto index = static_cast<std::size_t>(&kept - entries_.data());
  return {memory_[index * lines_].bytes, kept.bytes};
}

}  // namespace iswitch::agent
