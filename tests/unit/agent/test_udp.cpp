// The kernel transport against plain sockets: boundaries, addresses, ToS, budgets, errors as
// values.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "agent/transport/udp.h"

using namespace iswitch;
using namespace iswitch::agent;
using Catch::Matchers::Contains;

namespace {

constexpr wire::Ipv4 loopback{0x7F000001};

/// A plain socket on loopback.
class Peer {
 public:
  explicit Peer(std::uint16_t port = 0) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(loopback.value);
    address.sin_port = htons(port);
    bound_ = bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    socklen_t size = sizeof address;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    const int on = 1, buffer = 4 << 20;
    setsockopt(fd_, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  }
  ~Peer() { close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  bool bound() const { return bound_; }
  std::uint16_t port() const { return port_; }

  void send_to(std::uint16_t port, const std::vector<std::uint8_t>& bytes, int tos = 0) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(loopback.value);
    to.sin_port = htons(port);
    setsockopt(fd_, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
    sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
  }

  /// One call for many datagrams of `size` bytes.
  void send_segments_to(std::uint16_t port, const std::vector<std::uint8_t>& bytes,
                        int size) const {
    setsockopt(fd_, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
    send_to(port, bytes);
  }

  struct Got {
    std::vector<std::uint8_t> bytes;
    int tos = -1;
    std::uint16_t from = 0;
  };
  /// Waits at most a second.
  std::optional<Got> receive() const {
    pollfd polled{fd_, POLLIN, 0};
    if (poll(&polled, 1, 1'000) != 1) return std::nullopt;
    Got got;
    got.bytes.resize(65'536);
    sockaddr_in from{};
    iovec piece{got.bytes.data(), got.bytes.size()};
    alignas(cmsghdr) char ancillary[64];
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = ancillary;
    message.msg_controllen = sizeof ancillary;
    const ssize_t size = recvmsg(fd_, &message, 0);
    if (size < 0) return std::nullopt;
    got.bytes.resize(static_cast<std::size_t>(size));
    got.from = ntohs(from.sin_port);
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) got.tos = *CMSG_DATA(c);
    }
    return got;
  }

 private:
  int fd_;
  bool bound_ = false;
  std::uint16_t port_ = 0;
};

std::unique_ptr<UdpTransport> open_to(const Peer& peer, UdpOptions options = {}) {
  options.switch_ip = loopback;
  options.base_port = peer.port();
  auto opened = UdpTransport::open(options);
  if (const Error* error = std::get_if<Error>(&opened)) FAIL(error->text);
  return std::move(std::get<std::unique_ptr<UdpTransport>>(opened));
}

std::string open_error(const UdpOptions& options) {
  auto opened = UdpTransport::open(options);
  const Error* error = std::get_if<Error>(&opened);
  if (error == nullptr) return {};
  CHECK(error->code == ErrorCode::system);
  CHECK(error->text.find('\n') == std::string::npos);
  return error->text;
}

/// What comes within a second.
std::vector<std::vector<std::uint8_t>> receive_some(UdpTransport& transport, std::size_t count) {
  std::vector<std::vector<std::uint8_t>> all;
  while (all.size() < count) {
    pollfd polled{transport.fd(), POLLIN, 0};
    if (poll(&polled, 1, 1'000) != 1) break;
    for (const Received& received : transport.receive()) {
      all.emplace_back(received.datagram.begin(), received.datagram.end());
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a received frame costs what the kernel charges") {
  CHECK(receive_cost(1'504) == 2'304);
  CHECK(212'992 / receive_cost(1'504) == 92);
  CHECK(receive_cost(8'992) == 16'384 + 256);
}

TEST_CASE("datagrams keep their boundaries, bytes, order, port and ToS") {
  const bool offload = GENERATE(true, false);
  Peer base;
  Peer next(static_cast<std::uint16_t>(base.port() + 1));
  if (!next.bound()) return;  // the neighbouring port is somebody's
  UdpOptions options;
  options.segmentation_offload = offload;
  auto transport = open_to(base, options);
  const std::uint64_t seed = 42;
  INFO("seed " << seed << ", offload " << offload);
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> memory(std::size_t{150} * 1'440);
  for (std::uint8_t& byte : memory) byte = static_cast<std::uint8_t>(random());

  // Runs of full segments, short ones, empty payloads, control between data, both shards.
  std::vector<Outgoing> all(150);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Outgoing& out = all[i];
    const bool control = random() % 10 == 0;
    out.head_size = control ? 78 : 22;
    for (std::uint8_t& byte : out.head) byte = static_cast<std::uint8_t>(random());
    out.head[0] = static_cast<std::uint8_t>(i);
    out.shard = control ? 0 : static_cast<std::uint16_t>(random() % 8 == 0);
    out.tos = control ? 0xBC : random() % 20 == 0 ? 0xAC : 0xAE;
    const std::size_t length = control ? 0 : random() % 12 == 0 ? random() % 1'440 / 4 * 4 : 1'440;
    out.payload = {memory.data() + i * 1'440, length};
  }
  transport->send(all);
  REQUIRE_FALSE(transport->blocked());
  CHECK(transport->counts().datagrams_sent == all.size());
  CHECK(transport->counts().send_errors == 0);
  for (std::uint16_t shard = 0; shard < 2; ++shard) {
    for (const Outgoing& out : all) {
      if (out.shard != shard) continue;
      const auto got = (shard == 0 ? base : next).receive();
      REQUIRE(got);
      std::vector<std::uint8_t> right(out.head.begin(), out.head.begin() + out.head_size);
      right.insert(right.end(), out.payload.begin(), out.payload.end());
      CHECK(got->bytes == right);
      CHECK(got->tos == out.tos);
      CHECK(got->from == transport->local_port());
    }
  }
  if (offload && transport->segmentation_offload()) {
    // 150 datagrams in batches of 64.
    CHECK(transport->counts().send_calls <= 10);
  }
}

TEST_CASE("only the switch is heard, its ECN bits too") {
  Peer on, stranger;
  auto transport = open_to(on);
  CHECK(transport->local_ip() == loopback);
  stranger.send_to(transport->local_port(), {1, 2, 3});
  on.send_to(transport->local_port(), {4, 5, 6}, 0xAC | 3);
  on.send_to(transport->local_port(), {7}, 0xBC);
  on.send_to(transport->local_port(), {});
  std::vector<wire::Ecn> marks;
  std::vector<std::size_t> sizes;
  while (sizes.size() < 3) {
    pollfd polled{transport->fd(), POLLIN, 0};
    REQUIRE(poll(&polled, 1, 1'000) == 1);
    for (const Received& received : transport->receive()) {
      sizes.push_back(received.datagram.size());
      marks.push_back(received.ecn);
    }
  }
  CHECK(sizes == std::vector<std::size_t>{3, 1, 0});
  CHECK(marks == std::vector<wire::Ecn>{wire::Ecn::ce, wire::Ecn::not_ect, wire::Ecn::not_ect});
  CHECK(transport->receive().empty());
}

TEST_CASE("the receive buffer holds as many datagrams as promised") {
  Peer on;
  UdpOptions options;
  options.receive_buffer_bytes = GENERATE(0, 100'000, 1 << 20);
  const std::uint32_t segment = GENERATE(32, 1'440, 8'928);
  auto transport = open_to(on, options);
  const std::size_t promised = transport->receive_datagrams(segment);
  INFO("granted " << transport->granted_receive_buffer() << " for segments of " << segment);
  CHECK(promised >= 1);
  for (std::size_t i = 0; i < promised; ++i) {
    on.send_to(transport->local_port(), std::vector<std::uint8_t>(22 + segment, 1));
  }
  CHECK(receive_some(*transport, promised).size() == promised);
}

TEST_CASE("merged datagrams come apart again") {
  Peer on;
  UdpOptions options;
  options.receive_offload = GENERATE(true, false);
  auto receiver = open_to(on, options);
  const std::size_t tail = GENERATE(1'462, 62);
  // On loopback what was sent with segmentation offload reaches such a receiver in one piece.
  std::vector<std::vector<std::uint8_t>> right(20, std::vector<std::uint8_t>(1'462));
  right.emplace_back(tail);
  std::vector<std::uint8_t> all;
  for (std::size_t i = 0; i < right.size(); ++i) {
    right[i].assign(right[i].size(), static_cast<std::uint8_t>(i));
    all.insert(all.end(), right[i].begin(), right[i].end());
  }
  on.send_segments_to(receiver->local_port(), all, 1'462);
  CHECK(receive_some(*receiver, right.size()) == right);
  CHECK(receiver->counts().truncated == 0);
  CHECK(receiver->counts().datagrams_received == right.size());
}

TEST_CASE("nobody listening is trouble to tell, not a failure") {
  std::unique_ptr<UdpTransport> transport;
  {
    Peer gone;
    transport = open_to(gone);
  }
  Outgoing out;
  out.head_size = 22;
  for (int i = 0; i < 5; ++i) {
    transport->send({&out, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(transport->receive().empty());
  }
  CHECK_FALSE(transport->blocked());
  CHECK(transport->trouble() == ECONNREFUSED);
}

TEST_CASE("addresses that do not work are named with what to do") {
  Peer on;
  UdpOptions options;
  options.switch_ip = loopback;
  options.base_port = on.port();
  options.local_port = on.port();
  options.local_ip = loopback;
  CHECK_THAT(open_error(options), Contains("127.0.0.1:" + std::to_string(on.port())) &&
                                      Contains("another process has this port"));
  options.local_port = 0;
  options.local_ip = wire::Ipv4{0xC0000201};
  CHECK_THAT(open_error(options), Contains("192.0.2.1") && Contains("no interface"));
  options.local_ip = {};
  options.switch_ip = wire::Ipv4{0xFFFFFFFF};
  CHECK_THAT(open_error(options), Contains("255.255.255.255"));
}

TEST_CASE("the largest segment follows the path's MTU") {
  Peer on;
  auto transport = open_to(on);
  const std::uint32_t mtu = transport->path_mtu();
  CHECK(mtu > 0);
  CHECK(wire::largest_segment(transport->path_mtu()) % 32 == 0);
  CHECK(wire::largest_segment(transport->path_mtu()) <= wire::max_segment_bytes);
  CHECK(wire::largest_segment(transport->path_mtu()) + 50 <= mtu);
}

// In a network namespace of its own, where loopback is slow and has a small MTU; see
// in_namespace.sh.

TEST_CASE("a full send buffer keeps datagrams, in order", "[.namespace]") {
  Peer on;
  UdpOptions options;
  options.send_buffer_bytes = 1;  // the kernel's least
  options.segmentation_offload = GENERATE(true, false);
  auto transport = open_to(on, options);
  std::vector<std::uint8_t> payload(1'000, 0xEE);
  std::vector<Outgoing> out(192);  // three batches; the first may go in one piece
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].head_size = 22;
    out[i].head[0] = static_cast<std::uint8_t>(i);
    out[i].payload = payload;
  }
  transport->send(out);
  CHECK(transport->blocked());
  payload.assign(payload.size(), 0);  // what was kept is a copy
  std::size_t got = 0;
  for (; got < out.size(); ++got) {
    for (int i = 0; i < 1'000 && transport->blocked(); ++i) {
      pollfd polled{transport->fd(), POLLOUT, 0};
      poll(&polled, 1, 10);
      transport->flush();
    }
    const auto received = on.receive();
    REQUIRE(received);
    REQUIRE(received->bytes.size() == 1'022);
    CHECK(received->bytes[0] == got);
    CHECK(received->bytes[1'021] == 0xEE);
  }
  CHECK_FALSE(transport->blocked());
  CHECK(transport->counts().send_errors == 0);
}

TEST_CASE("a datagram above the MTU is an error to be told", "[.namespace]") {
  Peer on;
  auto transport = open_to(on);
  REQUIRE(transport->path_mtu() == 1'280);
  CHECK(wire::largest_segment(transport->path_mtu()) == 1'216);
  std::vector<std::uint8_t> payload(1'440);
  std::vector<Outgoing> out(4);
  for (Outgoing& one : out) {
    one.head_size = 22;
    one.payload = payload;
  }
  transport->send(out);
  CHECK_FALSE(transport->blocked());
  CHECK(transport->trouble() == EMSGSIZE);
  CHECK(transport->counts().send_errors == 4);
}
