#include "switchd/pipeline/l2.h"

#include <cstring>

#include "wire/frame.h"

namespace iswitch::pipeline {
namespace {

std::uint64_t number_of(const wire::Mac& address) {
  std::uint64_t value = 0;
  for (const auto byte : address.bytes) value = value << 8 | byte;
  return value;
}

/// 01:80:c2:00:00:00 to 0f: spanning tree, pause, LLDP; never forwarded by a bridge (IEEE
/// 802.1Q 8.6.3).
bool is_link_local_group(const wire::Mac& address) {
  return (number_of(address) & ~std::uint64_t{0xF}) == 0x0180'C200'0000;
}

}  // namespace

MacTable::MacTable(Time age) : age_(age), buckets_(std::make_unique<Bucket[]>(bucket_count)) {}

unsigned MacTable::bucket_of(std::uint64_t address) {
  return static_cast<unsigned>((address * 0x9E37'79B9'7F4A'7C15u) >>
                               54);  // Fibonacci hashing, 10 bits
}

void MacTable::learn(const wire::Mac& address, datapath::PortId port, Time now) {
  const std::uint64_t number = number_of(address);
  Entry* place = nullptr;
  for (Entry& entry : buckets_[bucket_of(number)].entries) {
    if (entry.key >> 16 == number && entry.key != 0) {
      place = &entry;
      break;
    }
    const bool free = !fresh(entry, now);
    if (place == nullptr || (fresh(*place, now) && (free || entry.seen < place->seen)))
      place = &entry;
  }
  place->key = number << 16 | (port + 1u);
  place->seen = now;
}

datapath::PortId MacTable::lookup(const wire::Mac& address, Time now) const {
  const std::uint64_t number = number_of(address);
  for (const Entry& entry : buckets_[bucket_of(number)].entries) {
    if (entry.key >> 16 == number && fresh(entry, now))
      return static_cast<datapath::PortId>((entry.key & 0xFFFF) - 1);
  }
  return no_port;
}

void MacTable::forget(datapath::PortId port) {
  for (unsigned i = 0; i < bucket_count; ++i) {
    for (Entry& entry : buckets_[i].entries) {
      if ((entry.key & 0xFFFF) == port + 1u) entry = {};
    }
  }
}

unsigned MacTable::size(Time now) const {
  unsigned count = 0;
  for (unsigned i = 0; i < bucket_count; ++i) {
    for (const Entry& entry : buckets_[i].entries) count += fresh(entry, now) ? 1 : 0;
  }
  return count;
}

void L2Switch::learn(Bytes frame, datapath::PortId ingress, Time now) {
  wire::Mac source;
  std::memcpy(source.bytes.data(), frame.data() + 6, 6);
  if (!source.is_group() && source != own_) table_.learn(source, ingress, now);
}

datapath::PortMask L2Switch::forward(Bytes frame, datapath::PortId ingress, datapath::PortMask up,
                                     Time now, Counter& terminal) {
  if (frame.size() < wire::ethernet_bytes) {
    terminal = Counter::l2_drop_runt;
    return 0;
  }
  wire::Mac destination;
  wire::Mac source;
  std::memcpy(destination.bytes.data(), frame.data(), 6);
  std::memcpy(source.bytes.data(), frame.data() + 6, 6);
  // Our own address as a source is a loop or a lie; either way nothing may be learned from it.
  if (source.is_group() || source == own_) {
    terminal = Counter::l2_drop_bad_source;
    return 0;
  }
  table_.learn(source, ingress, now);
  if (destination == own_) {
    terminal = Counter::l2_drop_to_self;
    return 0;
  }
  if (is_link_local_group(destination)) {
    terminal = Counter::l2_drop_link_local;
    return 0;
  }
  const datapath::PortMask others = up & ~(datapath::PortMask{1} << ingress);
  if (!destination.is_group()) {
    const datapath::PortId port = table_.lookup(destination, now);
    if (port == ingress) {
      terminal = Counter::l2_drop_same_port;
      return 0;
    }
    if (port != MacTable::no_port && (others >> port & 1) != 0) {
      terminal = Counter::l2_forwarded;
      return datapath::PortMask{1} << port;
    }
  }
  terminal = others != 0 ? Counter::l2_flooded : Counter::l2_drop_no_port;
  return others;
}

}  // namespace iswitch::pipeline
