// ARP and ICMP echo for the switch's own address: frames written down from RFC 826, 791 and 792.
#include "switchd/pipeline/local.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

using namespace iswitch;
using namespace iswitch::pipeline;
using Frame = std::vector<std::uint8_t>;

namespace {

const wire::Mac own{{2, 0, 0, 0, 0, 0xFE}};
const wire::Ipv4 own_ip{0x0A4D00FE};

Frame bytes(const std::string& hex) {
  Frame out;
  std::string digits;
  for (const char c : hex) {
    if (c != ' ') digits += c;
  }
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    out.push_back(static_cast<std::uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return out;
}

Frame arp_request() {
  return bytes(
      "ffffffffffff 020000000101 0806  0001 0800 06 04 0001  020000000101 0a4d0001  000000000000 "
      "0a4d00fe");
}

// ping 10.77.0.254 from 10.77.0.1, id 0x1234, sequence 1, payload "abcdefgh"; checksums by hand.
Frame echo_request() {
  return bytes(
      "0200000000fe 020000000101 0800"
      "4500 0024 0001 4000 40 01 25d9 0a4d0001 0a4d00fe"
      "0800 4f32 1234 0001 6162636465666768");
}

std::uint16_t rfc1071(const std::uint8_t* p, std::size_t n) {  // slow and by the book
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < n; i += 2)
    sum += static_cast<std::uint32_t>(p[i] << 8 | (i + 1 < n ? p[i + 1] : 0));
  while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

Frame with_checksums(Frame frame, std::size_t total) {
  frame[24] = frame[25] = 0;
  const auto ip = rfc1071(&frame[14], 20);
  frame[24] = static_cast<std::uint8_t>(ip >> 8);
  frame[25] = static_cast<std::uint8_t>(ip);
  frame[36] = frame[37] = 0;
  const auto icmp = rfc1071(&frame[34], total - 20);
  frame[36] = static_cast<std::uint8_t>(icmp >> 8);
  frame[37] = static_cast<std::uint8_t>(icmp);
  return frame;
}

}  // namespace

TEST_CASE("an ARP request for the switch is answered") {
  Local local(own, own_ip);
  const auto outcome = local.handle(arp_request());
  REQUIRE(outcome.handled);
  CHECK(outcome.terminal == Counter::local_arp_answered);
  Frame expected = bytes(
      "020000000101 0200000000fe 0806  0001 0800 06 04 0002  0200000000fe 0a4d00fe  020000000101 "
      "0a4d0001");
  expected.resize(60, 0);
  CHECK(Frame(outcome.reply.begin(), outcome.reply.end()) == expected);
}

TEST_CASE("ARP for somebody else, ARP replies and cut ARP are ordinary traffic") {
  Local local(own, own_ip);
  Frame other = arp_request();
  other.back() = 0xFD;
  CHECK_FALSE(local.handle(other).handled);
  Frame reply = arp_request();
  reply[21] = 2;
  CHECK_FALSE(local.handle(reply).handled);
  Frame request = arp_request();
  for (std::size_t size = 0; size < request.size(); ++size) {
    CHECK_FALSE(local.handle(Bytes(request.data(), size)).handled);
  }
}

TEST_CASE("an echo request is answered with the same identity and data") {
  Local local(own, own_ip);
  const Frame request = with_checksums(echo_request(), 36);
  const auto outcome = local.handle(request);
  REQUIRE(outcome.handled);
  CHECK(outcome.terminal == Counter::local_echo_answered);
  const Frame reply(outcome.reply.begin(), outcome.reply.end());
  REQUIRE(reply.size() == 60);
  CHECK(std::equal(reply.begin(), reply.begin() + 6, request.begin() + 6));
  CHECK(std::equal(reply.begin() + 6, reply.begin() + 12, own.bytes.begin()));
  CHECK(std::equal(reply.begin() + 26, reply.begin() + 30, request.begin() + 30));
  CHECK(std::equal(reply.begin() + 30, reply.begin() + 34, request.begin() + 26));
  CHECK(reply[34] == 0);
  CHECK(std::equal(reply.begin() + 38, reply.begin() + 50, request.begin() + 38));
  CHECK(rfc1071(&reply[14], 20) == 0);
  CHECK(rfc1071(&reply[34], 16) == 0);
}

TEST_CASE("echo of every length, odd ones too") {
  Local local(own, own_ip);
  std::mt19937 random(7);
  for (std::size_t data = 0; data <= 8972; data += data < 70 ? 1 : 997) {
    Frame request = echo_request();
    const std::size_t total = 28 + data;
    request.resize(14 + total);
    for (std::size_t i = 42; i < request.size(); ++i)
      request[i] = static_cast<std::uint8_t>(random());
    request[16] = static_cast<std::uint8_t>(total >> 8);
    request[17] = static_cast<std::uint8_t>(total);
    request = with_checksums(request, total);
    const auto outcome = local.handle(request);
    INFO("data " << data);
    REQUIRE(outcome.terminal == Counter::local_echo_answered);
    REQUIRE(rfc1071(outcome.reply.data() + 34, total - 20) == 0);
    REQUIRE(std::equal(request.begin() + 42, request.end(), outcome.reply.begin() + 42));
  }
}

TEST_CASE("broken echo requests are counted, not answered") {
  Local local(own, own_ip);
  const Frame good = with_checksums(echo_request(), 36);
  const auto broken = [&](std::size_t at, std::uint8_t value) {
    Frame frame = good;
    frame[at] = value;
    const auto outcome = local.handle(frame);
    CHECK(outcome.handled);
    CHECK(outcome.terminal == Counter::local_drop_malformed);
    CHECK(outcome.reply.empty());
  };
  broken(14, 0x46);  // options
  broken(17, 0xFF);  // longer than the frame
  broken(20, 0x20);  // more fragments
  broken(24, 0x00);  // IPv4 checksum
  broken(45, 0x00);  // ICMP checksum
  for (std::size_t size = 34; size < good.size(); ++size) {
    CHECK(local.handle(Bytes(good.data(), size)).terminal == Counter::local_drop_malformed);
  }
}

TEST_CASE("echo replies, other protocols and other addresses are ordinary traffic") {
  Local local(own, own_ip);
  Frame reply = echo_request();
  reply[34] = 0;
  CHECK_FALSE(local.handle(with_checksums(reply, 36)).handled);
  Frame tcp = echo_request();
  tcp[23] = 6;
  CHECK_FALSE(local.handle(tcp).handled);
  Frame other = echo_request();
  other[33] = 1;
  CHECK_FALSE(local.handle(other).handled);
}
