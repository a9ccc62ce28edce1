// A bounded ring of values from one thread to another (rte_ring, single producer and consumer).
#pragma once

#include <rte_errno.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <algorithm>
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
    if (empty()) return false;
    Slot slot;
    if (rte_ring_sc_dequeue_elem(ring_, &slot, sizeof(Slot)) != 0) return false;
    std::memcpy(&value, slot.bytes, value_bytes);
    return true;
  }

  // Of values that fill their slot, such as pointers: how many of them, from the first on.
  unsigned put(const T* values, unsigned count) {
    static_assert(sizeof(Slot) == value_bytes, "copied where they are");
    return rte_ring_sp_enqueue_burst_elem(ring_, values, sizeof(Slot), count, nullptr);
  }
  unsigned take(T* values, unsigned most) {
    static_assert(sizeof(Slot) == value_bytes, "copied where they are");
    return rte_ring_sc_dequeue_burst_elem(ring_, values, sizeof(Slot), most, nullptr);
  }

  // What rte_ring_empty, _count and _free_count tell, by loads that may run beside the other side.
  bool empty() const { return size() == 0; }
  unsigned size() const {
    const unsigned count = (read(ring_->prod.tail) - read(ring_->cons.tail)) & ring_->mask;
    return std::min(count, ring_->capacity);
  }
  unsigned room() const { return ring_->capacity - size(); }

 private:
  static std::uint32_t read(const volatile std::uint32_t& index) {
    return __atomic_load_n(&index, __ATOMIC_RELAXED);
  }

  rte_ring* ring_;
};

}  // namespace iswitch::switchd
