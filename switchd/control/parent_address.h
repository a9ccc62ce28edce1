// The parent's MAC: asked for by ARP (RFC 826) from start-up on, and now and then again.
#pragma once

#include <optional>

#include "switchd/control/turn.h"

namespace iswitch::control {

class ParentAddress {
 public:
  /// Asks nobody where the config gives the MAC.
  ParentAddress(const ParentConfig& parent, const datapath::SwitchAddress& own, Time now);

  const std::optional<wire::Mac>& mac() const { return mac_; }
  /// An ARP reply. True: another MAC than before.
  bool heard(const datapath::Notice& notice, Time now);
  /// The parent does not answer: it may have another MAC now.
  void doubt(Time now);
  void tick(const Turn& turn);
  Time next_deadline() const { return next_; }

 private:
  void send_request(const Turn& turn) const;

  ParentConfig parent_;
  datapath::SwitchAddress own_;
  std::optional<wire::Mac> mac_;
  bool asking_ = false;  ///< a request is out, repeated until answered
  Time next_ = never;
  Time interval_ = 0;
};

}  // namespace iswitch::control
