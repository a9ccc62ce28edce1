#include "tools/sim/switch_bugs.h"

#include <cstring>

#include "wire/bytes.h"
#include "wire/checksum.h"
#include "wire/frame.h"

namespace iswitch::sim {

namespace {

constexpr std::size_t header = wire::encapsulation_bytes;
constexpr std::size_t flags_at = header + 1;
constexpr std::size_t job_at = header + 2;
constexpr std::size_t member_at = header + 4;
constexpr std::size_t round_at = header + 6;
constexpr std::size_t tag_at = header + 14;
constexpr std::size_t missing_at = header + wire::header_bytes + 32;  // of a control reply
constexpr std::uint8_t ecn_echo_bit = 0x10;

bool is_contribution(Bytes frame) {
  return frame.size() >= wire::payload_offset && frame[header] == (wire::protocol_version << 4);
}

void reseal(std::span<std::uint8_t> frame) {
  std::memset(&frame[header - 2], 0, 2);
  wire::set_udp_checksum(frame);
}

}  // namespace

bool SwitchBugs::receive(FramePool& pool, datapath::PortId port, bool from_parent, FrameRef& frame,
                         std::vector<Fed>& more) {
  if (!from_parent && !receive_held(frame)) return false;
  if (bug_ == SwitchBug::lose_frame && random_.chance(0.01)) return false;
  if (!is_contribution(frame.view())) return true;
  const bool filled = frame.size() > wire::payload_offset;
  switch (bug_) {
    case SwitchBug::add_twice:
      if (!filled) break;
      remember(port, frame.view());
      if (random_.chance(0.01)) add_as_others(pool, frame, false, more);
      break;
    case SwitchBug::fake_barrier:
      remember(port, frame.view());
      if (!filled) add_as_others(pool, frame, true, more);
      break;
    case SwitchBug::skip_check:
      if (filled && random_.chance(0.01)) {
        FrameRef copy = pool.copy(frame.view());
        const auto bytes = copy.own();
        wire::store_be32(&bytes[round_at], wire::load_be32(&bytes[round_at]) + 1);
        reseal(bytes);
        more.push_back({port, std::move(copy)});
      }
      break;
    case SwitchBug::swap_job:
      if (filled) swap_payload(frame);
      break;
    case SwitchBug::ignore_tag: {
      const auto bytes = frame.own();
      std::memset(&bytes[tag_at], 0, 4);
      reseal(bytes);
      break;
    }
    default:
      break;
  }
  return true;
}

bool SwitchBugs::send(unsigned member, std::span<std::uint8_t> frame) {
  const bool filled = frame.size() > wire::payload_offset;
  switch (bug_) {
    case SwitchBug::forget_member:
      return member != 1;
    case SwitchBug::wrong_bits:
      if (member != 1 || !filled) return true;
      frame[frame.size() - 4] ^= 1;
      break;
    case SwitchBug::miscount:
      wire::store_be16(&frame[member_at],
                       static_cast<std::uint16_t>(wire::load_be16(&frame[member_at]) - 1));
      break;
    case SwitchBug::lose_mark:
      frame[flags_at] &= static_cast<std::uint8_t>(~ecn_echo_bit);
      break;
    case SwitchBug::settle_early:
      frame[flags_at] |= wire::flag::settled;
      break;
    case SwitchBug::forget_doubt:
      frame[flags_at] &= static_cast<std::uint8_t>(~wire::flag::retransmit);
      break;
    case SwitchBug::renumber:
      if (member != 1 || !random_.chance(0.01)) return true;
      wire::store_be32(&frame[round_at], wire::load_be32(&frame[round_at]) + 1);
      break;
    default:
      return true;
  }
  reseal(frame);
  return true;
}

// What a member hands back.
bool SwitchBugs::receive_held(FrameRef& frame) const {
  const Bytes seen = frame.view();
  if (seen.size() < wire::payload_offset || seen[header] != (wire::protocol_version << 4 | 1))
    return true;
  if (bug_ == SwitchBug::lose_held) return false;
  if (bug_ != SwitchBug::wrong_held || seen.size() == wire::payload_offset) return true;
  const auto bytes = frame.own();
  bytes[bytes.size() - 4] ^= 1;
  reseal(bytes);
  return true;
}

void SwitchBugs::answer(std::span<std::uint8_t> frame) const {
  if (bug_ != SwitchBug::deny_stream || frame.size() < missing_at + 8 ||
      frame[header] != (wire::protocol_version << 4 | 3) ||
      frame[header + 1] != static_cast<std::uint8_t>(wire::Action::rejoin) ||
      (frame[missing_at] & 0x80) == 0)
    return;
  const std::uint64_t somebody_new = std::uint64_t{1} << 32;
  wire::store_be64(&frame[missing_at], somebody_new);
  reseal(frame);
}

void SwitchBugs::remember(datapath::PortId port, Bytes frame) {
  Seen& seen = seen_[std::uint32_t{wire::load_be16(&frame[job_at])} << 16 |
                     wire::load_be16(&frame[member_at])];
  std::memcpy(seen.encapsulation.data(), frame.data(), seen.encapsulation.size());
  seen.port = port;
}

// Another member's addresses on a frame, checksums right.
void SwitchBugs::borrow(FrameRef& frame, const Seen& other, std::uint16_t member) {
  const auto out = frame.own();
  std::memcpy(&out[6], &other.encapsulation[6], 6);    // source MAC
  std::memcpy(&out[26], &other.encapsulation[26], 4);  // source address
  std::memcpy(&out[34], &other.encapsulation[34], 2);  // source port
  wire::store_be16(&out[member_at], member);
  std::memset(&out[24], 0, 2);
  const auto field = wire::checksum_field(
      wire::partial_sum(Bytes{out.data() + wire::ethernet_bytes, wire::ipv4_bytes}));
  std::memcpy(&out[24], &field, 2);
  reseal(out);
}

void SwitchBugs::add_as_others(FramePool& pool, const FrameRef& frame, bool all,
                               std::vector<Fed>& more) {
  const std::uint32_t job = wire::load_be16(&frame.view()[job_at]);
  const std::uint32_t member = wire::load_be16(&frame.view()[member_at]);
  for (const auto& [key, other] : seen_) {
    if (key >> 16 != job || (key & 0xFFFFU) == member) continue;
    FrameRef copy = pool.copy(frame.view());
    borrow(copy, other, static_cast<std::uint16_t>(key));
    more.push_back({other.port, std::move(copy)});
    if (!all) return;
  }
}

// Buffers of two jobs mixed up.
void SwitchBugs::swap_payload(FrameRef& frame) {
  const std::uint32_t job = wire::load_be16(&frame.view()[job_at]);
  const FrameRef original = frame;
  for (const auto& [other_job, other] : last_) {
    if (other_job == job || other.size() != frame.size() || !random_.chance(0.01)) continue;
    const auto bytes = frame.own();
    std::memcpy(&bytes[wire::payload_offset], &other.view()[wire::payload_offset],
                bytes.size() - wire::payload_offset);
    reseal(bytes);
  }
  last_[job] = original;
}

}  // namespace iswitch::sim
