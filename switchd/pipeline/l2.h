// Ordinary traffic: the learning layer-2 switch (protocol.md section 7).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "switchd/datapath/datapath.h"
#include "switchd/pipeline/counters.h"
#include "wire/address.h"
#include "wire/units.h"

namespace iswitch::pipeline {

/// Which port an address was last seen on. Fixed size: 1024 buckets of four addresses, a bucket one
/// cache line; a full bucket forgets its oldest. An address not seen for `age` counts as unknown.
class MacTable {
 public:
  explicit MacTable(Time age);

  void learn(const wire::Mac& address, datapath::PortId port, Time now);
  /// The port, or no_port.
  datapath::PortId lookup(const wire::Mac& address, Time now) const;
  static constexpr datapath::PortId no_port = 0xFFFF;

  /// Forgets what was learned on a port (it went down).
  void forget(datapath::PortId port);
  /// Addresses known at `now`, for people.
  unsigned size(Time now) const;

 private:
  struct Entry {
    std::uint64_t key = 0;  // address << 16 | port + 1; 0 is free
    Time seen = 0;
  };
  struct alignas(64) Bucket {
    std::array<Entry, 4> entries;
  };
  static constexpr unsigned bucket_count = 1024;

  static unsigned bucket_of(std::uint64_t address);
  bool fresh(const Entry& entry, Time now) const {
    return entry.key != 0 && now - entry.seen < age_;
  }

  Time age_;
  std::unique_ptr<Bucket[]> buckets_;
};

/// Decides where an ordinary frame goes.
class L2Switch {
 public:
  L2Switch(const wire::Mac& own, Time age) : own_(own), table_(age) {}

  /// Learns the source and gives the ports the frame leaves by; never the ingress port, only ports
  /// of `up`. 0: dropped. `terminal` is the counter the frame ends in.
  datapath::PortMask forward(Bytes frame, datapath::PortId ingress, datapath::PortMask up, Time now,
                             Counter& terminal);
  /// Learns the source of a whole frame that ended at the switch itself (ARP, echo, control).
  void learn(Bytes frame, datapath::PortId ingress, Time now);
  MacTable& table() { return table_; }
  const MacTable& table() const { return table_; }

 private:
  wire::Mac own_;
  MacTable table_;
};

}  // namespace iswitch::pipeline
