#include "agent/engine/hand_back.h"

#include <algorithm>
#include <utility>

#include "wire/serial.h"

namespace iswitch::agent {

void HandBack::begin(std::vector<Item> items, const wire::ReplyBody& job, Time now) {
  items_ = std::move(items);
  segment_bytes_ = job.segment_bytes;
  shards_ = job.shards;
  index_.assign(job.slots, none);
  for (std::uint32_t i = 0; i < items_.size(); ++i) index_[items_[i].slot] = i;
  left_ = static_cast<std::uint32_t>(items_.size());
  in_flight_.flight().reset(left_);
  in_flight_.begin(segment_bytes_, std::max<std::uint32_t>(options_.receive_datagrams, 1), now);
}

void HandBack::stop() {
  left_ = 0;
  items_.clear();
  index_.clear();
  in_flight_.stop();
  once_count_ = 0;
}

bool HandBack::answered(std::uint32_t slot, std::uint32_t round, bool marked, Time now) {
  if (!active() || slot >= index_.size() || index_[slot] == none) return false;
  const std::uint32_t index = index_[slot];
  Item& item = items_[index];
  if (item.done || wire::serial_newer(item.round, round)) return false;
  item.done = true;
  item.kept = nullptr;
  --left_;
  if (in_flight_.flight().contains(index)) in_flight_.acknowledge(index, marked, now);
  skip_done(now);
  return true;
}

void HandBack::skip_done(Time now) {
  Flight& flight = in_flight_.flight();
  while (flight.next() < items_.size() && items_[flight.next()].done)
    flight.complete(flight.send_new(0, 0, now));
}

void HandBack::resend(std::uint32_t slot) {
  if (!active() || slot >= index_.size() || index_[slot] == none) return;
  Flight& flight = in_flight_.flight();
  if (flight.contains(index_[slot])) flight.mark_urgent(flight.at(index_[slot]));
}

void HandBack::once(std::uint32_t slot, std::uint64_t number, std::uint32_t round) {
  // The first one that the switch gets of a slot is taken for the newest that is here.
  if (active() && slot < index_.size() && index_[slot] != none && !items_[index_[slot]].done)
    return;
  if (once_count_ == once_.size()) return;  // as if lost
  once_[(once_head_ + once_count_++) % once_.size()] = {slot, round, number};
}

bool HandBack::fresh_may_go() const {
  const Flight& flight = in_flight_.flight();
  return flight.next() < items_.size() && !in_flight_.full() && flight.first_lost() == nullptr &&
         in_flight_.fits_window(segment_bytes_);
}

bool HandBack::ready() const {
  if (paused()) return false;
  return once_count_ != 0 || (active() && (in_flight_.due() != nullptr || fresh_may_go()));
}

bool HandBack::transmit(Outgoing& out, Time now) {
  if (paused()) return false;
  while (once_count_ != 0) {
    const Once once = once_[once_head_];
    once_head_ = (once_head_ + 1) % once_.size();
    --once_count_;
    const KeptResult* kept = kept_.find(once.slot, once.number);
    if (kept == nullptr) continue;
    write(once.slot, once.round, kept, out);
    return true;
  }
  if (!active()) return false;
  Flight& flight = in_flight_.flight();
  if (Segment* segment = in_flight_.due(); segment != nullptr) {
    flight.send_again(*segment, now);
    const Item& item = items_[segment->position];
    write(item.slot, item.round, item.kept, out);
    return true;
  }
  if (!fresh_may_go()) return false;
  const Item& item = items_[flight.next()];
  flight.send_new(0, item.kept == nullptr ? 0 : item.kept->bytes, now);
  in_flight_.sent(now);
  skip_done(now);
  write(item.slot, item.round, item.kept, out);
  return true;
}

void HandBack::write(std::uint32_t slot, std::uint32_t round, const KeptResult* kept,
                     Outgoing& out) {
  wire::Header header;
  header.type = wire::Type::result;
  header.flags = static_cast<std::uint8_t>(wire::DataType::float32);
  header.job = options_.job;
  header.round = round;
  header.segment = slot;
  out.payload = {};
  if (kept != nullptr) {
    // ECN-ECHO is about the way that it came.
    header.flags =
        kept->flags & (wire::flag::data_type_mask | wire::flag::partial | wire::flag::retransmit);
    header.member = kept->workers;
    header.set = kept->set;
    out.payload = kept_.payload_of(*kept);
  }
  in_flight_.address(header, shards_, out);
  ++statistics_.handed_back;
}

}  // namespace iswitch::agent
