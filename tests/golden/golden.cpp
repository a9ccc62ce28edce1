#include "golden/golden.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "wire/bytes.h"

namespace iswitch::golden {
namespace {

using Json = nlohmann::json;

std::vector<std::uint8_t> from_hex(const std::string& text) {
  if (text.size() % 2 != 0) throw std::runtime_error("golden frames: odd number of hex digits");
  std::vector<std::uint8_t> bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

template <class T>
void take(const Json& from, const char* key, std::optional<T>& to) {
  if (const auto found = from.find(key); found != from.end() && !found->is_null())
    to = static_cast<T>(found->get<std::uint64_t>());
}

wire::Ipv4 ipv4(const Json& text) {
  const auto ip = wire::parse_ipv4(text.get<std::string>());
  if (!ip) throw std::runtime_error("golden frames: not an IPv4 address: " + text.dump());
  return *ip;
}

wire::Endpoint endpoint(const Json& from) {
  const auto mac = wire::parse_mac(from.at("mac").get<std::string>());
  if (!mac) throw std::runtime_error("golden frames: not a MAC address: " + from.dump());
  return {*mac, ipv4(from.at("ip")), from.at("udp_port").get<std::uint16_t>()};
}

wire::Type type_named(const std::string& name) {
  if (name == "contribution") return wire::Type::contribution;
  if (name == "result") return wire::Type::result;
  if (name == "request") return wire::Type::request;
  if (name == "reply") return wire::Type::reply;
  throw std::runtime_error("golden frames: no such type: " + name);
}

/// "floats_hex": bits of each; "floats": n, the values 0 to n - 1.
std::optional<std::vector<std::uint32_t>> float_bits(const Json& from) {
  std::vector<std::uint32_t> bits;
  if (const auto hex = from.find("floats_hex"); hex != from.end()) {
    for (const auto& one : *hex) bits.push_back(wire::load_be32(from_hex(one).data()));
    return bits;
  }
  if (const auto count = from.find("floats"); count != from.end()) {
    for (unsigned i = 0; i < count->get<unsigned>(); ++i)
      bits.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(i)));
    return bits;
  }
  return std::nullopt;
}

Frame read_frame(const Json& from) {
  Frame frame;
  frame.name = from.at("name").get<std::string>();
  frame.note = from.value("note", "");
  frame.bytes = from_hex(from.at("frame").get<std::string>());
  frame.malformed = from.value("malformed", false);
  if (from.contains("type")) frame.type = type_named(from.at("type").get<std::string>());
  take(from, "job", frame.job);
  take(from, "member", frame.member);
  take(from, "round", frame.round);
  take(from, "segment", frame.segment);
  take(from, "flags", frame.flags);
  take(from, "ecn", frame.ecn);
  take(from, "udp_destination", frame.udp_destination);
  take(from, "udp_checksum", frame.udp_checksum);
  take(from, "operation_tag", frame.operation_tag);
  take(from, "workers", frame.workers);
  take(from, "members_bitmap", frame.members_bitmap);
  frame.float_bits = float_bits(from);
  take(from, "action", frame.action);
  take(from, "request_id", frame.request_id);
  take(from, "nonce", frame.nonce);
  if (from.contains("key") && !from.at("key").is_null())
    frame.key = from_hex(from.at("key").get<std::string>());
  if (from.contains("client")) frame.client = ipv4(from.at("client"));
  take(from, "client_port", frame.client_port);
  if (from.contains("tag")) {
    const auto bytes = from_hex(from.at("tag").get<std::string>());
    wire::Tag tag{};
    if (bytes.size() != tag.size()) throw std::runtime_error("golden frames: a tag has 16 bytes");
    std::copy(bytes.begin(), bytes.end(), tag.begin());
    frame.tag = tag;
  }
  take(from, "status", frame.status);
  take(from, "state", frame.state);
  take(from, "members_now", frame.members_now);
  take(from, "members_expected", frame.members_expected);
  take(from, "threshold", frame.threshold);
  take(from, "shards", frame.shards);
  take(from, "segment_bytes", frame.segment_bytes);
  take(from, "slots", frame.slots);
  take(from, "base_round", frame.base_round);
  take(from, "history", frame.history);
  take(from, "missing", frame.missing);
  return frame;
}

Set read_set(const char* path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(std::string("golden frames: cannot open ") + path);
  const Json json = Json::parse(file);
  Set set;
  set.switch_endpoint = endpoint(json.at("switch"));
  for (const auto& worker : json.at("workers")) set.workers.push_back(endpoint(worker));
  set.segment_bytes = json.at("segment_bytes").get<std::uint32_t>();
  for (const auto& one : json.at("operation_tags")) {
    OperationTag tag;
    tag.operation.kind = static_cast<wire::OperationKind>(one.at("kind").get<unsigned>());
    tag.operation.data_type = static_cast<wire::DataType>(one.at("data_type").get<unsigned>());
    tag.operation.root = one.at("root").get<std::uint32_t>();
    tag.operation.elements = one.at("elements").get<std::uint64_t>();
    tag.operation.user_tag = one.at("user_tag").get<std::uint32_t>();
    tag.tag = one.at("tag").get<std::uint32_t>();
    set.operation_tags.push_back(tag);
  }
  for (const auto& frame : json.at("frames")) set.frames.push_back(read_frame(frame));
  return set;
}

}  // namespace

const Frame& Set::frame(std::string_view name) const {
  const auto found = std::find_if(frames.begin(), frames.end(),
                                  [&](const Frame& frame) { return frame.name == name; });
  if (found == frames.end())
    throw std::runtime_error("golden frames: none is named " + std::string(name));
  return *found;
}

wire::FrameRules Set::rules_for(const Frame& frame, std::uint16_t shards) const {
  wire::FrameRules rules;
  rules.ip = switch_endpoint.ip;
  rules.udp_port = switch_endpoint.udp_port;
  rules.ports = shards;
  for (const wire::Endpoint& worker : workers) {
    if (frame.bytes.size() < 6 ||
        !std::equal(worker.mac.bytes.begin(), worker.mac.bytes.end(), frame.bytes.begin()))
      continue;
    rules.ip = worker.ip;
    rules.udp_port = worker.udp_port;
    rules.ports = 1;
  }
  return rules;
}

const Set& wire_set() {
  static const Set set = read_set(ISWITCH_GOLDEN_DIR "/wire.json");
  return set;
}

}  // namespace iswitch::golden
