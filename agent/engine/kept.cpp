#include "agent/engine/kept.h"

#include <cstring>
#include <new>

#include "wire/pages.h"
#include "wire/serial.h"

namespace iswitch::agent {

bool KeptResults::begin(std::uint32_t slots, std::uint32_t depth, std::uint32_t segment_bytes) {
  depth_ = depth == 0 ? 1 : depth;
  segment_bytes_ = segment_bytes;
  const std::size_t count = std::size_t{slots} * depth_;
  const std::size_t bytes = count * segment_bytes;
  if (memory_ == nullptr || bytes != memory_bytes_) {
    memory_.reset();
    memory_.reset(new (std::nothrow) std::uint8_t[bytes]);
    memory_bytes_ = bytes;
  }
  entries_.assign(memory_ == nullptr ? 0 : count, KeptResult{});
  return there();
}

void KeptResults::use_pages(std::size_t most) {
  if (there() && memory_bytes_ <= most) use_each_page(memory_.get(), memory_bytes_);
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
  if (!payload.empty())
    std::memcpy(memory_.get() + index * segment_bytes_, payload.data(), payload.size());
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
  return {memory_.get() + index * segment_bytes_, kept.bytes};
}

}  // namespace iswitch::agent
