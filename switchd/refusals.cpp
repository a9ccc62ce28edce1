#include "switchd/refusals.h"

#include <algorithm>
#include <cstring>

#include "switchd/log.h"
#include "switchd/text.h"
#include "wire/address.h"
#include "wire/bytes.h"
#include "wire/frame.h"

namespace iswitch::switchd {
namespace {

/// "parse_drop_udp_checksum" reads "udp checksum".
std::string readable(std::string name) {
  const std::size_t drop = name.find("_drop_");
  if (drop != std::string::npos) name.erase(0, drop + 6);
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

/// Who sent it, as far as its first bytes say; they may be anything.
std::string source(const Refusal& refusal) {
  const std::uint8_t* head = refusal.head.data();
  const std::size_t size = std::min<std::size_t>(refusal.frame_bytes, refusal.head.size());
  std::string out;
  if (size >= wire::ethernet_bytes) {
    wire::Mac mac;
    std::memcpy(mac.bytes.data(), head + 6, mac.bytes.size());
    out = wire::to_string(mac);
  }
  constexpr std::uint16_t ipv4 = 0x0800;
  if (size < wire::encapsulation_bytes || wire::load_be16(head + 12) != ipv4) return out;
  const wire::Ipv4 ip{wire::load_be32(head + 26)};
  out = text(wire::to_string(ip), ':', wire::load_be16(head + 34), " (", out, ')');
  if (size >= wire::encapsulation_bytes + 4) out += text(", job ", wire::load_be16(head + 44));
  return out;
}

std::string port_name(const Config& config, datapath::PortId port) {
  return port < config.ports.size() ? config.ports[port].name : text(port);
}

}  // namespace

void RefusalLog::note(const std::string& reason, const Refusal& refusal) {
  Entry& entry = entries_[reason];
  entry.example = refusal;
  entry.count += refusal.count;
  news_ = true;
}

void RefusalLog::add(const Refusal& refusal) {
  const char* name = pipeline::counter_name(refusal.reason);
  note(text("frame refused: ", readable(name), " (", name, ")"), refusal);
}

void RefusalLog::add(wire::Status status, const datapath::ControlFrame& frame) {
  Refusal refusal;
  refusal.port = frame.ingress;
  refusal.count = 1;
  refusal.frame_bytes = frame.size;
  std::memcpy(refusal.head.data(), frame.bytes.data(),
              std::min<std::size_t>(refusal.head.size(), frame.size));
  const auto action = static_cast<wire::Action>(frame.bytes[wire::encapsulation_bytes + 1]);
  note(text("request refused: ", wire::action_name(action), ": ", wire::status_name(status)),
       refusal);
}

void RefusalLog::write(const Config& config, Time now) {
  if (!news_) return;
  news_ = false;
  for (auto& [reason, entry] : entries_) {
    if (entry.count == 0) continue;
    if (now - entry.told_at < interval) {
      news_ = true;
      continue;
    }
    log(LogLevel::info, reason, ", ", entry.count, entry.count == 1 ? " time" : " times",
        ", the latest from ", source(entry.example), " on port ",
        port_name(config, entry.example.port), ", ", entry.example.frame_bytes, " bytes");
    entry.count = 0;
    entry.told_at = now;
  }
}

}  // namespace iswitch::switchd
