#include "switchd/control/parent_address.h"

#include <algorithm>

#include "switchd/control/arp.h"

namespace iswitch::control {
namespace {

constexpr Time first_repeat = 100 * millisecond;
constexpr Time slowest_repeat = 2 * second;
constexpr Time refresh_after = 30 * second;

}  // namespace

ParentAddress::ParentAddress(const ParentConfig& parent, const datapath::SwitchAddress& own,
                             Time now)
    : parent_(parent), own_(own), mac_(parent.mac) {
  if (mac_) return;
  asking_ = true;
  next_ = now;
  interval_ = first_repeat;
}

bool ParentAddress::heard(const datapath::Notice& notice, Time now) {
  const wire::Mac& mac = notice.source.mac;
  const bool believable = !parent_.mac && notice.source.ip == parent_.ip &&
                          notice.ingress == parent_.port && !mac.is_group() && mac != wire::Mac{} &&
                          mac != own_.mac;
  if (!believable) return false;
  asking_ = false;
  next_ = now + refresh_after;
  const bool news = mac_ != mac;
  mac_ = mac;
  return news;
}

void ParentAddress::doubt(Time now) {
  if (parent_.mac || asking_) return;
  asking_ = true;
  next_ = now;
  interval_ = first_repeat;
}

void ParentAddress::tick(const Turn& turn) {
  if (turn.now < next_) return;
  if (!asking_) doubt(turn.now);
  send_request(turn);
  next_ = turn.now + interval_;
  interval_ = std::min(interval_ * 2, slowest_repeat);
}

void ParentAddress::send_request(const Turn& turn) const {
  turn.effects.frames.push_back(arp_request(own_, parent_.ip, parent_.port));
}

}  // namespace iswitch::control
