// A bounded ring of values from one thread to another (rte_ring, single producer and consumer).
#pragma once

#include <rte_errno.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace iswitch::switchd {

template <class T>
class Ring {
  static_assert(std::is_trivially_copyable_v<T>, "values are copied as bytes");
  // rte_ring copies whole 32-bit words.
  // T may be a pointer, and it is the pointer that is passed on.
  static constexpr std::size_t value_bytes = sizeof(T);  // NOLINT(bugprone-sizeof-expression)
  struct alignas(8) Slot {
    std::uint8_t bytes[(value_bytes + 7) / 8 * 8];
  };

 public:
  /// `count` is rounded up to a power of two less one. Test ok() before use.
  Ring(const std::string& name, unsigned count)
      : ring_(rte_ring_create_elem(name.c_str(), sizeof(Slot), rte_align32pow2(count + 1),
                                   SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ)) {}
  ~Ring() { rte_ring_free(ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  bool ok() const { return ring_ != nullptr; }

  /// False: full, nothing put.
  bool put(const T& value) {
    Slot slot;
    std::memcpy(slot.bytes, &value, value_bytes);
    return rte_ring_sp_enqueue_elem(ring_, &slot, sizeof(Slot)) == 0;
  }
  /// False: empty.
  bool take(T& value) {
    if (rte_ring_empty(ring_)) return false;
    Slot slot;
    if (rte_ring_sc_dequeue_elem(ring_, &slot, sizeof(Slot)) != 0) return false;
    std::memcpy(&value, slot.bytes, value_bytes);
    return true;
  }
  bool empty() const { return rte_ring_empty(ring_) != 0; }
  unsigned size() const { return rte_ring_count(ring_); }
  unsigned room() const { return rte_ring_free_count(ring_); }

 private:
  rte_ring* ring_;
};

}  // namespace iswitch::switchd
