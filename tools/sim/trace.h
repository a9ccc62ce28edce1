// What happened, in order: a running hash of everything (equal for equal seeds) and the last
// records for people.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/units.h"

namespace iswitch::sim {

struct World;

enum class What : std::uint8_t {
  arrive,      ///< a frame reached a node: detail = its iSwitch header, or zeros
  lost,        ///< dropped by the link's seeded loss
  overflow,    ///< dropped because the link's queue was full
  corrupted,   ///< bits flipped on the link
  duplicated,  ///< sent twice by the link
  reordered,   ///< delayed alone
  spike,       ///< the link stood still for a while
  marked,      ///< Congestion Experienced set by the link
  order,       ///< an order reached a shard: a = order's kind, b = job
  submit,      ///< a worker starts operation a of round base b
  complete,    ///< operation a ended; b = error code
  update,      ///< a worker has applied an update: a = segment, b = its number
  state,       ///< a worker's engine changed state: a = new state, or 100 + event; b = base_round
  crash,       ///< a node's program vanished
  start,       ///< a node's program started
  fault,       ///< a chaos act: a = which, b = its argument
};
const char* what_name(What what);

struct Record {
  Time at = 0;
  What what = What::arrive;
  std::uint16_t node = 0;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::array<std::uint8_t, 24> detail{};  ///< iSwitch header and the two bytes behind it
};

class Trace {
 public:
  /// Keeps the last `keep` records.
  explicit Trace(std::size_t keep = 400) : ring_(keep) {}

  void add(Time at, What what, std::uint16_t node, std::uint32_t a = 0, std::uint32_t b = 0);
  /// An arrival: notes the frame's size and what may be its iSwitch header.
  void arrival(Time at, std::uint16_t node, std::uint32_t port, Bytes frame);

  std::uint64_t hash() const { return hash_; }
  std::uint64_t records() const { return count_; }
  /// The last `limit` records as lines; `names` by node number.
  std::string text(std::size_t limit, const std::vector<std::string>& names) const;

 private:
  void keep(const Record& record);

  std::vector<Record> ring_;
  std::uint64_t count_ = 0;
  std::uint64_t hash_ = 0x1505;
};

}  // namespace iswitch::sim
