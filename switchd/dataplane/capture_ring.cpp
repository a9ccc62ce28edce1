#include "switchd/dataplane/capture_ring.h"

#include <rte_mbuf.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace iswitch::switchd {

CaptureRing::CaptureRing(std::size_t bytes)
    : buffer_(std::bit_ceil(bytes)), mask_(buffer_.size() - 1) {}

void CaptureRing::write(std::uint64_t at, const void* from, std::size_t size) {
  const std::uint64_t start = at & mask_;
  const std::size_t first = std::min<std::size_t>(size, buffer_.size() - start);
  std::memcpy(buffer_.data() + start, from, first);
  std::memcpy(buffer_.data(), static_cast<const std::uint8_t*>(from) + first, size - first);
}

void CaptureRing::read(std::uint64_t at, void* to, std::size_t size) const {
  const std::uint64_t start = at & mask_;
  const std::size_t first = std::min<std::size_t>(size, buffer_.size() - start);
  std::memcpy(to, buffer_.data() + start, first);
  std::memcpy(static_cast<std::uint8_t*>(to) + first, buffer_.data(), size - first);
}

void CaptureRing::record(rte_mbuf* const* frames, unsigned count, datapath::PortId port,
                         Direction direction, Time at) {
  if ((ports_.load(std::memory_order_relaxed) >> port & 1) == 0) return;
  const std::uint32_t snap = snap_.load(std::memory_order_relaxed);
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  const std::uint64_t tail = tail_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) {
    const rte_mbuf* frame = frames[i];
    const Header header{at, frame->pkt_len, std::min(frame->pkt_len, snap), port, direction};
    if (head - tail + sizeof header + header.captured_bytes > buffer_.size()) {
      dropped_[port].add(count - i);
      break;
    }
    write(head, &header, sizeof header);
    head += sizeof header;
    std::uint32_t left = header.captured_bytes;
    for (const rte_mbuf* part = frame; part != nullptr && left > 0; part = part->next) {
      const std::uint32_t bytes = std::min<std::uint32_t>(left, part->data_len);
      write(head, rte_pktmbuf_mtod(part, const void*), bytes);
      head += bytes;
      left -= bytes;
    }
    head += left;  // a chain shorter than it says; whatever the ring held there
  }
  head_.store(head, std::memory_order_release);
}

bool CaptureRing::take(CapturedFrame& out) {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (head_.load(std::memory_order_acquire) == tail) return false;
  Header header;
  read(tail, &header, sizeof header);
  taken_.resize(header.captured_bytes);
  read(tail + sizeof header, taken_.data(), taken_.size());
  tail_.store(tail + sizeof header + taken_.size(), std::memory_order_release);
  out = {header.at, header.port, header.direction, header.original_bytes, taken_};
  return true;
}

}  // namespace iswitch::switchd
