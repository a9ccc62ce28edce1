#include "agent/engine/pushes.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "agent/engine/payload.h"

namespace iswitch::agent {
namespace {

/// More than this would be no window any more.
constexpr std::uint32_t most_outstanding = 1U << 16;

}  // namespace

Pushes::Pushes(const EngineOptions& options, Operations& operations, Statistics& statistics,
               const Updates& updates)
    : options_(options),
      operations_(operations),
      updates_(updates),
      in_flight_(options, statistics) {}

void Pushes::Queue::reset(std::size_t most) {
  heap_.clear();
  heap_.reserve(most);
}

void Pushes::Queue::put(const Turn& turn) {
  heap_.push_back(turn);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

const Pushes::Turn* Pushes::Queue::first(const Pushes& pushes,
                                         bool (Pushes::*holds)(std::uint32_t) const) {
  while (!heap_.empty()) {
    const Turn front = heap_.front();
    const bool there = (pushes.*holds)(front.slot);
    const Turn now = there ? pushes.turn_of(front.slot) : front;
    if (there && !(now > front)) return &heap_.front();
    take_first();
    if (there) put(now);
  }
  return nullptr;
}

void Pushes::Queue::take_first() {
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  heap_.pop_back();
}

void Pushes::Queue::tidy(const Pushes& pushes, bool (Pushes::*holds)(std::uint32_t) const) {
  std::erase_if(heap_, [&](const Turn& turn) { return !(pushes.*holds)(turn.slot); });
  for (Turn& turn : heap_) turn = pushes.turn_of(turn.slot);
  std::sort(heap_.begin(), heap_.end(),
            [](const Turn& a, const Turn& b) { return a.slot < b.slot; });
  const auto same = [](const Turn& a, const Turn& b) { return a.slot == b.slot; };
  heap_.erase(std::unique(heap_.begin(), heap_.end(), same), heap_.end());
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void Pushes::begin(const wire::ReplyBody& job, wire::MemberId member, Time now) {
  member_ = member;
  base_round_ = job.base_round;
  segment_bytes_ = job.segment_bytes;
  shards_ = job.shards;
  slots_ = static_cast<std::uint32_t>((options_.elements * sizeof(float) + segment_bytes_ - 1) /
                                      segment_bytes_);
  in_flight_.flight().reset_table(slots_);
  forget_orphans();
  active_ = true;
  fit_window(now);
  // What was submitted while nobody knew how large a segment is.
  for (std::uint64_t index = operations_.begin(); index != operations_.end(); ++index)
    operations_.at(index).segments = slots_;
  first_operation_ = operations_.begin();
  next_.assign(slots_, first_operation_);
  to_send_.reset(slots_);
  under_way_.reset(most_under_way() + 1);
  if (!operations_.empty()) more(now);
}

void Pushes::go_on(const wire::ReplyBody& job, wire::MemberId member, Time now) {
  if (!active_) return;
  member_ = member;
  base_round_ = job.base_round;
  shards_ = job.shards;
  in_flight_.again(now);
  in_flight_.pause();
}

std::uint32_t Pushes::newest_number() const {
  if (next_.empty()) return base_round_;
  const std::uint64_t next = *std::max_element(next_.begin(), next_.end());
  return next <= first_operation_ ? base_round_ : number_of(next - 1);
}

void Pushes::abandon(std::uint32_t slot, const Error& error, Time now) {
  const Flight& flight = in_flight_.flight();
  if (!active_ || !flight.is_outstanding(slot)) return;
  const std::uint64_t operation = flight.at(slot).operation;
  if (orphan_of(operation) == nullptr) operations_.at(operation).error = error;
  acknowledge(slot, 1, false, false, now);
}

void Pushes::fit_window(Time now) {
  if (!active_ || outstanding() != 0) return;
  const bool paused = in_flight_.paused();
  in_flight_.begin(segment_bytes_,
                   std::clamp<std::uint32_t>(options_.receive_datagrams, 1, most_outstanding), now);
  if (paused) in_flight_.pause();
}

void Pushes::stop() {
  active_ = false;
  in_flight_.stop();
}

void Pushes::more(Time now) {
  if (!active_) return;
  if (outstanding() == 0) in_flight_.iteration(options_.elements * sizeof(float), now);
  find_sendable();
}

std::uint64_t Pushes::upcoming(std::uint32_t slot) {
  std::uint64_t& next = next_[slot];
  const auto passed = [&] {
    return next < operations_.begin() ||
           (next < operations_.end() && operations_.at(next).finished);
  };
  while (passed() && orphan_of(next) == nullptr) ++next;
  return next;
}

Pushes::Orphan* Pushes::orphan_of(std::uint64_t operation) {
  const auto found = std::find_if(orphans_.begin(), orphans_.end(), [&](const Orphan& orphan) {
    return orphan.operation == operation;
  });
  return found == orphans_.end() ? nullptr : &*found;
}

void Pushes::take_out_of_window(std::uint32_t slot) {
  Flight& flight = in_flight_.flight();
  is_out_of_window_[slot] = true;
  ++out_of_window_;
  flight.take_out_of_window(flight.at(slot));
}

void Pushes::forget_orphans() {
  orphans_.clear();
  is_out_of_window_.assign(slots_, false);
  out_of_window_ = 0;
}

void Pushes::find_sendable() {
  to_send_.reset(slots_);
  for (std::uint32_t slot = 0; slot < slots_; ++slot)
    if (is_sendable(slot)) to_send_.put(turn_of(slot));
}

std::uint32_t Pushes::bytes_of(std::uint32_t slot) const {
  const std::uint64_t offset = std::uint64_t{slot} * segment_bytes_;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(options_.elements * sizeof(float) - offset, segment_bytes_));
}

void Pushes::acknowledge(std::uint32_t slot, std::uint32_t workers, bool partial, bool marked,
                         Time now) {
  const Flight& flight = in_flight_.flight();
  if (!active_ || !flight.is_outstanding(slot)) return;
  const std::uint64_t operation = flight.at(slot).operation;
  in_flight_.acknowledge(slot, marked, now);
  if (is_out_of_window_[slot]) --out_of_window_;
  is_out_of_window_[slot] = false;
  if (Orphan* orphan = orphan_of(operation); orphan == nullptr) {
    operations_.segment_done(operations_.at(operation), workers, partial);
  } else if (--orphan->left == 0) {
    orphans_.erase(orphans_.begin() + (orphan - orphans_.data()));
  }
  if (is_sendable(slot)) to_send_.put(turn_of(slot));
}

std::optional<std::uint64_t> Pushes::find(std::uint32_t slot, std::uint32_t number) {
  const Flight& flight = in_flight_.flight();
  if (!active_ || slot >= slots_ || !flight.is_outstanding(slot)) return std::nullopt;
  const std::uint64_t operation = flight.at(slot).operation;
  if (orphan_of(operation) != nullptr) return std::nullopt;
  return number_of(operation) == number ? std::optional(operation) : std::nullopt;
}

void Pushes::resend(std::uint32_t slot) {
  Flight& flight = in_flight_.flight();
  if (active_ && slot < slots_ && flight.is_outstanding(slot)) flight.mark_urgent(flight.at(slot));
}

void Pushes::give_up(std::uint64_t operation) {
  if (!active_) return;
  Flight& flight = in_flight_.flight();
  const auto reached = [&](std::uint64_t next) { return next > operation; };
  const bool sent = std::any_of(next_.begin(), next_.end(), reached);
  Orphan orphan;
  orphan.operation = operation;
  for (std::uint32_t slot = 0; slot < slots_; ++slot) {
    if (next_[slot] <= operation) {
      ++orphan.left;
      continue;
    }
    if (!flight.is_outstanding(slot) || flight.at(slot).operation != operation) continue;
    ++orphan.left;
    take_out_of_window(slot);
  }
  if (!sent) {
    for (std::uint64_t& next : next_) next = next == operation ? next + 1 : next;
  } else if (orphan.left != 0) {
    const std::span<const float> vector = operations_.at(operation).request.input;
    orphan.gradient.resize(vector.size());
    // Bytes, since the user's vector may be aligned in any way.
    std::memcpy(orphan.gradient.data(), static_cast<const void*>(vector.data()),
                vector.size_bytes());
    orphans_.push_back(std::move(orphan));
  }
  find_sendable();
}

void Pushes::give_up_all() {
  if (!active_) return;
  in_flight_.stop();
  forget_orphans();
  next_.assign(slots_, operations_.end());
  to_send_.reset(slots_);
  under_way_.reset(most_under_way() + 1);
}

const Pushes::Turn* Pushes::fresh() const {
  const Turn* const next = to_send_.first(*this, &Pushes::waits_to_go);
  if (next == nullptr ||
      (!in_flight_.full(out_of_window_) && in_flight_.flight().first_lost() == nullptr &&
       in_flight_.fits_window(segment_bytes_)))
    return next;
  const Turn* const oldest = under_way_.first(*this, &Pushes::is_under_way);
  return oldest == nullptr || *oldest > *next ? next : nullptr;
}

bool Pushes::ready() const {
  return active_ && !paused() && (in_flight_.due() != nullptr || fresh() != nullptr);
}

bool Pushes::transmit(Outgoing& out, Time now) {
  if (!active_ || paused()) return false;
  Flight& flight = in_flight_.flight();
  if (Segment* segment = in_flight_.due(); segment != nullptr) {
    flight.send_again(*segment, now);
    write(*segment, out);
    return true;
  }
  const Turn* const next = fresh();
  if (next == nullptr) return false;
  const std::uint32_t slot = next->slot;
  const Segment& segment = flight.send_slot(slot, next_[slot]++, bytes_of(slot), now);
  // Nobody gives it up again, so it must not hold up what comes after it.
  if (orphan_of(segment.operation) != nullptr) take_out_of_window(slot);
  to_send_.take_first();
  under_way_.put(turn_of(slot));
  if (under_way_.size() > most_under_way()) under_way_.tidy(*this, &Pushes::is_under_way);
  in_flight_.sent(now);
  write(segment, out);
  return true;
}

void Pushes::write(const Segment& segment, Outgoing& out) {
  const auto slot = static_cast<std::uint32_t>(segment.position);
  const std::uint64_t offset = std::uint64_t{slot} * segment_bytes_;
  Request request;
  if (const Orphan* orphan = orphan_of(segment.operation); orphan != nullptr) {
    request.input = orphan->gradient;
  } else {
    request = operations_.at(segment.operation).request;
  }
  in_flight_.write(segment,
                   {.member = member_,
                    .round = number_of(segment.operation),
                    .segment = slot,
                    .tag = options_.incarnation,
                    .shards = shards_,
                    .payload = contribution(request, 0, offset, bytes_of(slot))},
                   out);
}

}  // namespace iswitch::agent
