// Any bytes as a frame: parse_frame reads nothing past them, agrees with itself, and what it takes
// apart can be put together again to the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzz/require.h"
#include "wire/bytes.h"
#include "wire/frame.h"

namespace {

using namespace iswitch;
using namespace iswitch::wire;
using fuzz::require;

constexpr std::size_t identification_at = 18;  // then flags and fragment offset, then TTL
constexpr std::size_t ip_checksum_at = 24;
constexpr std::size_t udp_checksum_at = 40;

bool same(Bytes a, Bytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

bool same(const Packet& a, const Packet& b) {
  return a.message.header == b.message.header && same(a.message.payload, b.message.payload) &&
         a.source == b.source && a.destination_mac == b.destination_mac &&
         a.destination_port == b.destination_port && a.ecn == b.ecn;
}

std::vector<std::uint8_t> written(const FrameRules& rules, const Packet& packet) {
  const Message& message = packet.message;
  const std::uint8_t tos = message.header.is_data() ? rules.data_tos : rules.control_tos;
  Route route;
  route.from = packet.source;
  route.to = {packet.destination_mac, rules.ip, packet.destination_port};
  route.tos = static_cast<std::uint8_t>(tos | static_cast<unsigned>(packet.ecn));
  std::vector<std::uint8_t> frame(payload_offset + message.payload.size());
  write_encapsulation(route, header_bytes + message.payload.size(), frame.data());
  write_header(message.header, frame.data() + encapsulation_bytes);
  std::copy(message.payload.begin(), message.payload.end(), frame.begin() + payload_offset);
  set_udp_checksum(frame);
  return frame;
}

void check_rewriting(const FrameRules& rules, Bytes frame, const Packet& packet,
                     bool checksums_hold) {
  const auto out = written(rules, packet);
  Packet again;
  const ParsedFrame parsed = parse_frame(rules, out, {}, again);
  require(parsed.origin == Origin::ours && parsed.fault == Fault::none, "what is written is good");
  require(same(packet, again), "what is written says the same");

  require(out.size() <= frame.size(), "nothing is added");
  std::vector<std::uint8_t> expected(frame.begin(),
                                     frame.begin() + static_cast<std::ptrdiff_t>(out.size()));
  // Left to the sender: identification, DF and TTL, hence the IP checksum; no UDP checksum at all.
  const auto copy = [&](std::size_t at, std::size_t size) {
    std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(at), size,
                expected.begin() + static_cast<std::ptrdiff_t>(at));
  };
  copy(identification_at, 5);
  copy(ip_checksum_at, 2);
  if (!checksums_hold || load_be16(frame.data() + udp_checksum_at) == 0) copy(udp_checksum_at, 2);
  require(expected == out, "what is written is the same bytes");
}

void check_receiver(const FrameRules& rules, Bytes frame) {
  Packet packet;
  Packet offloaded;
  const ParsedFrame strict = parse_frame(rules, frame, {}, packet);
  const ParsedFrame lenient = parse_frame(rules, frame, {true, true}, offloaded);
  require(strict.origin == lenient.origin, "checksums do not decide what is ours");
  require(strict.origin == Origin::ours || strict.fault == Fault::none, "ordinary is no fault");
  require(strict.fault < Fault::count_, "a fault has a name");
  const bool checksum_fault =
      strict.fault == Fault::ip_checksum || strict.fault == Fault::udp_checksum;
  require(checksum_fault || strict.fault == lenient.fault, "offloads skip checksums alone");
  if (strict.origin == Origin::ordinary || lenient.fault != Fault::none) return;
  if (!checksum_fault) require(same(packet, offloaded), "offloads change no field");
  check_rewriting(rules, frame, offloaded, !checksum_fault);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes frame(data, size);
  FrameRules rules;
  rules.ip = {0x0A4D00FE};
  rules.ports = 4;
  check_receiver(rules, frame);
  // And as the receiver whom the frame itself names, so that no address need be guessed.
  if (size >= encapsulation_bytes) {
    rules.ip.value = load_be32(data + 30);
    rules.udp_port = load_be16(data + 36);
    rules.ports = 1;
    check_receiver(rules, frame);
  }
  return 0;
}
