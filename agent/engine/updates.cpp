#include "agent/engine/updates.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "wire/serial.h"

namespace iswitch::agent {
namespace {

constexpr std::uint32_t least_window = 16;
constexpr std::uint32_t most_window = 1024;

}  // namespace

void Updates::begin(const wire::ReplyBody& job, std::uint64_t elements) {
  elements_ = elements;
  segment_elements_ = job.segment_bytes / sizeof(float);
  const std::uint64_t segments = (elements + segment_elements_ - 1) / segment_elements_;
  window_ = std::bit_ceil(std::clamp<std::uint32_t>(2U * job.history, least_window, most_window));
  waiting_ = true;
  taken_.assign(segments, job.base_round);
  slots_.assign(segments, {job.base_round, job.base_round, false});
  ring_.clear();
  ring_.resize(segments * window_);
  ready_.clear();
  spare_.clear();
}

std::uint32_t Updates::bytes_of(std::uint32_t segment) const {
  const std::uint64_t first = std::uint64_t{segment} * segment_elements_;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(elements_ - first, segment_elements_) *
                                    sizeof(float));
}

std::vector<std::uint32_t> Updates::complete() const {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(slots_.size());
  for (const Slot& slot : slots_) numbers.push_back(slot.complete);
  return numbers;
}

void Updates::keep(Kept& entry, const Arrival& arrival) {
  if (entry.values.capacity() == 0 && !spare_.empty()) {
    entry.values = std::move(spare_.back());
    spare_.pop_back();
  }
  entry.present = true;
  entry.partial = arrival.partial;
  entry.workers = arrival.workers;
  entry.number = arrival.number;
  entry.values.assign(bytes_of(arrival.segment) / sizeof(float), 0.0F);
  if (!arrival.payload.empty())
    std::memcpy(entry.values.data(), arrival.payload.data(), arrival.payload.size());
}

void Updates::drop(Kept& entry) {
  entry.present = false;
  if (entry.values.capacity() != 0) spare_.push_back(std::exchange(entry.values, {}));
}

Updates::Stored Updates::store(const Arrival& arrival) {
  Slot& slot = slots_[arrival.segment];
  Kept& entry = kept(arrival.segment, arrival.number);
  if (holds(arrival.segment, arrival.number)) return Stored::copy;
  if (waiting_) {
    // Which ones will be wanted is not known yet: the newest.
    if (entry.present && wire::serial_newer(entry.number, arrival.number)) return Stored::refused;
    keep(entry, arrival);
    slot.newest = wire::serial_latest(slot.newest, arrival.number);
    return Stored::fresh;
  }
  const std::int32_t ahead = wire::serial_distance(arrival.number, taken_[arrival.segment]);
  if (ahead <= 0) return Stored::copy;
  slot.newest = wire::serial_latest(slot.newest, arrival.number);
  if (static_cast<std::uint32_t>(ahead) > window_) return Stored::refused;
  keep(entry, arrival);
  advance(arrival.segment);
  return Stored::fresh;
}

void Updates::advance(std::uint32_t segment) {
  Slot& slot = slots_[segment];
  while (holds(segment, slot.complete + 1)) ++slot.complete;
  if (slot.queued || slot.complete == taken_[segment]) return;
  slot.queued = true;
  ready_.push_back(segment);
}

std::optional<Update> Updates::take() {
  if (waiting_ || ready_.empty()) return std::nullopt;
  const std::uint32_t segment = ready_.front();
  ready_.pop_front();
  Slot& slot = slots_[segment];
  Kept& entry = kept(segment, ++taken_[segment]);
  if (current_.capacity() != 0) spare_.push_back(std::move(current_));
  current_ = std::exchange(entry.values, {});
  entry.present = false;
  slot.queued = slot.complete != taken_[segment];
  if (slot.queued) ready_.push_back(segment);
  Update update;
  update.segment = segment;
  update.first = std::uint64_t{segment} * segment_elements_;
  update.number = entry.number;
  update.workers = entry.workers;
  update.partial = entry.partial;
  update.values = current_;
  return update;
}

void Updates::resume(const std::vector<std::uint32_t>& numbers) {
  waiting_ = false;
  taken_ = numbers;
  ready_.clear();
  for (std::uint32_t segment = 0; segment < slots_.size(); ++segment) {
    Slot& slot = slots_[segment];
    slot.complete = taken_[segment];
    slot.newest = wire::serial_latest(slot.newest, slot.complete);
    slot.queued = false;
    for (std::uint32_t i = 0; i < window_; ++i) {
      Kept& entry = ring_[std::size_t{segment} * window_ + i];
      const std::int32_t ahead = wire::serial_distance(entry.number, slot.complete);
      if (entry.present && (ahead <= 0 || static_cast<std::uint32_t>(ahead) > window_)) drop(entry);
    }
    advance(segment);
  }
}

}  // namespace iswitch::agent
