#include "switchd/control/parent_address.h"

#include <algorithm>
#include <array>

#include "wire/bytes.h"
#include "wire/frame.h"

namespace iswitch::control {
namespace {

constexpr Time first_repeat = 100 * millisecond;
constexpr Time slowest_repeat = 2 * second;
constexpr Time refresh_after = 30 * second;
constexpr std::size_t shortest_frame = 60;  // without FCS
constexpr std::uint16_t ethertype_arp = 0x0806;

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
  OutFrame frame;
  frame.port = parent_.port;
  frame.bytes.resize(shortest_frame);
  std::uint8_t* const out = frame.bytes.data();
  std::fill_n(out, 6, std::uint8_t{0xFF});
  std::copy_n(own_.mac.bytes.begin(), 6, out + 6);
  wire::store_be16(out + 12, ethertype_arp);
  // Hardware type 1, protocol 0x0800, address lengths 6 and 4, operation 1: a request.
  static constexpr std::array<std::uint8_t, 8> request{0, 1, 8, 0, 6, 4, 0, 1};
  std::uint8_t* const arp = out + wire::ethernet_bytes;
  std::copy(request.begin(), request.end(), arp);
  std::copy_n(own_.mac.bytes.begin(), 6, arp + 8);
  wire::store_be32(arp + 14, own_.rules.ip.value);
  wire::store_be32(arp + 24, parent_.ip.value);
  turn.effects.frames.push_back(std::move(frame));
}

}  // namespace iswitch::control
