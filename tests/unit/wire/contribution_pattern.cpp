#include "wire/contribution_pattern.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "slow.h"

using namespace iswitch;
using namespace iswitch::wire;
using slow::FrameBytes;

namespace {

const Endpoint switch_end{*parse_mac("02:00:00:00:00:fe"), *parse_ipv4("10.77.0.254"), 17170};
const Endpoint worker_end{*parse_mac("02:00:00:00:01:00"), *parse_ipv4("10.77.0.1"), 40001};

FrameRules rules_with(std::uint16_t ports) {
  FrameRules rules;
  rules.ip = switch_end.ip;
  rules.ports = ports;
  return rules;
}

FrameBytes contribution(std::mt19937_64& random, std::uint16_t port, std::size_t payload,
                        Type type = Type::contribution) {
  Header header;
  header.type = type;
  header.flags = static_cast<std::uint8_t>(random() & ~unsigned{flag::reserved_mask});
  header.job = static_cast<JobId>(random());
  header.member = static_cast<std::uint16_t>(random());
  header.round = static_cast<std::uint32_t>(random());
  header.segment = static_cast<std::uint32_t>(random());
  header.set = random();
  FrameBytes bytes(payload);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  Endpoint to = switch_end;
  to.udp_port = port;
  const auto tos = static_cast<std::uint8_t>(0xAC | random() % 4);
  return slow::frame({worker_end, to, tos}, header, bytes);
}

/// The pattern says yes exactly where parse_headers finds a contribution, and the same of it.
bool agree(const FrameRules& rules, const FrameBytes& frame, Offload offload) {
  const FrameBytes exact(frame.begin(), frame.end());  // the address sanitizer sees its end
  Packet usual;
  Packet quick;
  const ParsedFrame parsed = parse_headers(rules, exact, offload, usual);
  const bool found = ContributionPattern(rules).parse(exact, offload, quick);
  const bool is_contribution = parsed.origin == Origin::ours && parsed.fault == Fault::none &&
                               usual.message.header.type == Type::contribution;
  CHECK(found == is_contribution);
  if (!found || !is_contribution) return false;
  CHECK(quick.message.header == usual.message.header);
  CHECK(quick.message.payload.data() == usual.message.payload.data());
  CHECK(quick.message.payload.size() == usual.message.payload.size());
  CHECK(quick.source == usual.source);
  CHECK(quick.destination_mac == usual.destination_mac);
  CHECK(quick.destination_port == usual.destination_port);
  CHECK(quick.ecn == usual.ecn);
  CHECK(quick.unverified == usual.unverified);
  if (usual.unverified) CHECK(fold(quick.outer_sum) == fold(usual.outer_sum));
  CHECK(payload_is_right(quick, &partial_sum) == payload_is_right(usual, &partial_sum));
  return true;
}

constexpr Offload offloads[] = {{false, false}, {true, false}, {false, true}, {true, true}};

}  // namespace

TEST_CASE("the pattern finds every right contribution", "[contribution_pattern]") {
  std::mt19937_64 random(1);
  for (const std::uint16_t ports : {1, 4}) {
    const FrameRules rules = rules_with(ports);
    for (const std::size_t payload : {0, 4, 32, 1440, 8928}) {
      for (std::uint16_t port = 0; port < ports; ++port) {
        for (const Offload offload : offloads) {
          FrameBytes frame =
              contribution(random, static_cast<std::uint16_t>(rules.udp_port + port), payload);
          CHECK(agree(rules, frame, offload));
          frame.resize(frame.size() + 7);  // padding behind the packet
          CHECK(agree(rules, frame, offload));
          frame[40] = frame[41] = 0;  // no UDP checksum
          CHECK(agree(rules, frame, offload));
        }
      }
    }
  }
}

TEST_CASE("the pattern says no where the parser finds anything else", "[contribution_pattern]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  unsigned found = 0;
  unsigned refused = 0;
  for (int i = 0; i < 60000; ++i) {
    const FrameRules rules = rules_with(i % 2 == 0 ? 1 : 4);
    const auto type = i % 16 == 0 ? Type::result : Type::contribution;
    // Beside those that are ours, ports just below and above.
    const auto port = static_cast<std::uint16_t>(17169 + random() % 6);
    FrameBytes frame = contribution(random, port, 4 * (random() % 20), type);
    // One bit in the headers, or none; most with checksums that are right for what is there then.
    if (random() % 4 != 0) {
      const std::size_t at = 12 + random() % (encapsulation_bytes + 2 - 12);
      frame[at] = static_cast<std::uint8_t>(frame[at] ^ 1u << random() % 8);
    }
    if (random() % 4 != 0) slow::fix_checksums(frame);
    if (random() % 8 == 0) frame.resize(random() % (frame.size() + 1));
    (agree(rules, frame, offloads[random() % 4]) ? found : refused) += 1;
  }
  CHECK(found > 5000);
  CHECK(refused > 5000);
}

TEST_CASE("lengths at their limits: pattern and parser agree", "[contribution_pattern]") {
  std::mt19937_64 random(5);
  const FrameRules rules = rules_with(1);
  for (const int payload : {-1, 0, 1, 2, 3, 4, 8924, 8928, 8929, 8932, 9000}) {
    for (const int more : {-4, -1, 0, 1, 4}) {
      FrameBytes frame = contribution(random, rules.udp_port, 9100);
      const int total = 50 + payload;
      frame[16] = static_cast<std::uint8_t>(total >> 8);
      frame[17] = static_cast<std::uint8_t>(total);
      const int udp = total - 20 + more;
      frame[38] = static_cast<std::uint8_t>(udp >> 8);
      frame[39] = static_cast<std::uint8_t>(udp);
      frame.resize(static_cast<std::size_t>(14 + total));
      agree(rules, frame, {true, true});
      frame.resize(static_cast<std::size_t>(14 + total - 1));
      agree(rules, frame, {true, true});
    }
  }
}
