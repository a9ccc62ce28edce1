#include "agent/transport/udp.h"

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

namespace iswitch::agent {

namespace {

constexpr std::size_t send_batch = 64;     // datagrams, and messages where nothing is merged
constexpr std::size_t most_segments = 64;  // the kernel's UDP_MAX_SEGMENTS in older versions
constexpr std::size_t most_udp_bytes = 65'507;
constexpr std::size_t receive_batch = 32;

constexpr std::size_t datagram_bytes = 9'216;  // above every datagram of the protocol
constexpr std::size_t merged_bytes = 65'536;

std::string errno_text(int error) { return std::generic_category().message(error); }

std::string address_text(const sockaddr_in& address) {
  return wire::to_string(wire::Ipv4{ntohl(address.sin_addr.s_addr)}) + ":" +
         std::to_string(ntohs(address.sin_port));
}

sockaddr_in socket_address(wire::Ipv4 ip, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(ip.value);
  address.sin_port = htons(port);
  return address;
}

bool set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

int get_option(int fd, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}

Error system_error(std::string text) {
  Error error;
  error.code = ErrorCode::system;
  error.text = std::move(text);
  return error;
}

/// Why connect() to the switch failed, and what to do about it.
std::string connect_advice(int error) {
  switch (error) {
    case ENETUNREACH:
    case EHOSTUNREACH:
      return "no route: check the address, and that the interface to the switch is up and has an "
             "address in its network";
    case EACCES:
    case EPERM:
      return "not allowed: the address is a broadcast address, or a firewall rule forbids it";
    case EINVAL:
      return "the local address cannot reach it: check the local address";
    default:
      return errno_text(error);
  }
}

template <class T>
void append_control(msghdr& message, int level, int type, T value) {
  auto* header =
      reinterpret_cast<cmsghdr*>(static_cast<char*>(message.msg_control) + message.msg_controllen);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(header), &value, sizeof value);
  message.msg_controllen += CMSG_SPACE(sizeof value);
}

std::size_t size_of(const Outgoing& datagram) {
  return datagram.head_size + datagram.payload.size();
}

}  // namespace

std::uint32_t receive_cost(std::uint32_t frame_bytes) {
  constexpr std::uint32_t head_room = 64, shared_info = 320, sk_buff = 256;
  return std::bit_ceil(frame_bytes + head_room + shared_info) + sk_buff;
}

struct UdpTransport::Batch {
  // sending
  std::array<mmsghdr, send_batch> messages{};
  std::array<iovec, 2 * send_batch> pieces{};
  std::array<std::uint8_t, send_batch> datagrams{};  // that each message holds
  std::array<sockaddr_in, send_batch> to{};
  struct alignas(cmsghdr) SendControl {
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(std::uint16_t))];
  };
  std::array<SendControl, send_batch> control{};

  // receiving
  std::size_t buffer_bytes = 0;
  std::size_t buffers = 0;
  std::unique_ptr<std::uint8_t[]> memory;  // not cleared: pages are touched only when used
  std::array<mmsghdr, receive_batch> incoming{};
  std::array<iovec, receive_batch> incoming_pieces{};
  struct alignas(cmsghdr) ReceiveControl {
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(int))];
  };
  std::array<ReceiveControl, receive_batch> incoming_control{};
};

UdpTransport::UdpTransport(int fd) : fd_(fd), batch_(std::make_unique<Batch>()) {}

UdpTransport::~UdpTransport() { close(fd_); }

std::variant<std::unique_ptr<UdpTransport>, Error> UdpTransport::open(const UdpOptions& options) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return system_error("cannot make a UDP socket: " + errno_text(errno));
  std::unique_ptr<UdpTransport> transport(new UdpTransport(fd));
  transport->switch_ = socket_address(options.switch_ip, options.base_port);

  sockaddr_in local = socket_address(options.local_ip, options.local_port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) {
    const int error = errno;
    const char* advice = error == EADDRINUSE
                             ? ": another process has this port; choose another or 0"
                         : error == EADDRNOTAVAIL ? ": no interface of this host has this address"
                                                  : "";
    return system_error("cannot bind UDP " + address_text(local) + ": " + errno_text(error) +
                        advice);
  }

  // Never fragment: a datagram above the path's MTU is an error to be told, not two halves.
  set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
  const auto wanted = static_cast<int>(options.receive_buffer_bytes);
  if (!set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, wanted))
    set_option(fd, SOL_SOCKET, SO_RCVBUF, wanted);
  const auto wanted_send = static_cast<int>(options.send_buffer_bytes);
  if (!set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, wanted_send)) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, wanted_send);
  }
  transport->granted_receive_buffer_ =
      static_cast<std::uint32_t>(std::max(get_option(fd, SOL_SOCKET, SO_RCVBUF), 0));

  const sockaddr_in& to = transport->switch_;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    return system_error("cannot reach switch " + address_text(to) + ": " + connect_advice(errno));
  }
  socklen_t size = sizeof local;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    return system_error("cannot read the socket's own address: " + errno_text(errno));
  }
  transport->local_ip_ = wire::Ipv4{ntohl(local.sin_addr.s_addr)};
  transport->local_port_ = ntohs(local.sin_port);

  // An old kernel lacks the option: then every datagram is a message of its own.
  transport->segmentation_offload_ =
      options.segmentation_offload && get_option(fd, IPPROTO_UDP, UDP_SEGMENT) == 0;
  transport->receive_offload_ = options.receive_offload && set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
  Batch& batch = *transport->batch_;
  batch.buffers = receive_batch;
  batch.buffer_bytes = transport->receive_offload_ ? merged_bytes : datagram_bytes;
  batch.memory.reset(new std::uint8_t[batch.buffers * batch.buffer_bytes]);
  return transport;
}

std::uint32_t UdpTransport::path_mtu() const {
  return static_cast<std::uint32_t>(std::max(get_option(fd_, IPPROTO_IP, IP_MTU), 0));
}

std::uint32_t UdpTransport::receive_datagrams(std::uint32_t segment_bytes) const {
  // While the reader works through its queue, the kernel gives memory back only in quarters.
  const std::uint32_t usable = granted_receive_buffer_ / 4 * 3;
  const auto frame = static_cast<std::uint32_t>(wire::payload_offset + segment_bytes);
  return std::max(1u, usable / receive_cost(frame));
}

/// Makes messages of at most `send_batch` datagrams; runs of equal size, port and ToS become one.
std::size_t UdpTransport::fill_batch(std::span<const Outgoing> datagrams) {
  Batch& batch = *batch_;
  std::size_t used = 0, message_count = 0;
  while (used < std::min(datagrams.size(), send_batch)) {
    const Outgoing& first = datagrams[used];
    const std::size_t segment = size_of(first);
    iovec* pieces = &batch.pieces[2 * used];
    std::size_t count = 0, bytes = 0, piece_count = 0;
    while (used + count < std::min(datagrams.size(), send_batch)) {
      const Outgoing& next = datagrams[used + count];
      const std::size_t size = size_of(next);
      const bool joins = count == 0 || (segmentation_offload_ && next.shard == first.shard &&
                                        next.tos == first.tos && size <= segment &&
                                        count < most_segments && bytes + size <= most_udp_bytes);
      if (!joins) break;
      pieces[piece_count++] = {const_cast<std::uint8_t*>(next.head.data()), next.head_size};
      if (!next.payload.empty()) {
        pieces[piece_count++] = {const_cast<std::uint8_t*>(next.payload.data()),
                                 next.payload.size()};
      }
      bytes += size;
      ++count;
      if (size < segment) break;  // only the last one may be shorter
    }

    msghdr& message = batch.messages[message_count].msg_hdr;
    message = msghdr{};
    message.msg_iov = pieces;
    message.msg_iovlen = piece_count;
    if (first.shard != 0) {
      sockaddr_in& to = batch.to[message_count];
      to = switch_;
      to.sin_port = htons(static_cast<std::uint16_t>(ntohs(switch_.sin_port) + first.shard));
      message.msg_name = &to;
      message.msg_namelen = sizeof to;
    }
    message.msg_control = batch.control[message_count].bytes;
    append_control(message, IPPROTO_IP, IP_TOS, static_cast<int>(first.tos));
    if (count > 1) {
      append_control(message, IPPROTO_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(segment));
    }
    batch.datagrams[message_count] = static_cast<std::uint8_t>(count);
    ++message_count;
    used += count;
  }
  return message_count;
}

std::size_t UdpTransport::send_some(std::span<const Outgoing> datagrams) {
  std::size_t done = 0;
  unsigned bounced = 0;
  while (done < datagrams.size()) {
    const std::size_t message_count = fill_batch(datagrams.subspan(done));
    std::size_t next = 0;
    bool refill = false;
    while (next < message_count && !refill) {
      ++counts_.send_calls;
      const int sent = sendmmsg(fd_, &batch_->messages[next],
                                static_cast<unsigned>(message_count - next), MSG_NOSIGNAL);
      if (sent > 0) {
        for (int i = 0; i < sent; ++i) {
          done += batch_->datagrams[next];
          counts_.datagrams_sent += batch_->datagrams[next];
          ++next;
        }
        continue;
      }
      const int error = errno;
      const std::size_t in_message = batch_->datagrams[next];
      if (error == EINTR) continue;
      if (error == EAGAIN || error == EWOULDBLOCK) return done;
      if (in_message > 1 && error != ECONNREFUSED && error != ENOBUFS) {
        // EIO: a device without checksum offload in older kernels; EINVAL, EMSGSIZE, ENOPROTOOPT,
        // EOPNOTSUPP: other reasons not to segment. Whatever else it is shows again without it.
        segmentation_offload_ = false;
        refill = true;
        continue;
      }
      trouble_ = error;
      if (error == ECONNREFUSED && bounced++ < 4)
        continue;                         // told of an earlier one; this was not sent
      counts_.send_errors += in_message;  // lost; the engine sends it again in time
      done += in_message;
      ++next;
    }
  }
  return done;
}

void UdpTransport::keep(std::span<const Outgoing> datagrams) {
  for (const Outgoing& datagram : datagrams) {
    Kept& kept = backlog_.emplace_back();
    kept.datagram = datagram;
    kept.payload.assign(datagram.payload.begin(), datagram.payload.end());
  }
  for (Kept& kept : backlog_) kept.datagram.payload = kept.payload;
}

void UdpTransport::send(std::span<const Outgoing> datagrams) {
  const std::size_t done = blocked() ? 0 : send_some(datagrams);
  if (done < datagrams.size()) keep(datagrams.subspan(done));
}

void UdpTransport::flush() {
  while (blocked()) {
    if (send_some({&backlog_[backlog_next_].datagram, 1}) == 0) return;
    ++backlog_next_;
  }
  backlog_.clear();
  backlog_next_ = 0;
}

std::span<const Received> UdpTransport::receive() {
  Batch& batch = *batch_;
  received_.clear();
  for (std::size_t i = 0; i < batch.buffers; ++i) {
    batch.incoming_pieces[i] = {batch.memory.get() + i * batch.buffer_bytes, batch.buffer_bytes};
    msghdr& message = batch.incoming[i].msg_hdr;
    message = msghdr{};
    message.msg_iov = &batch.incoming_pieces[i];
    message.msg_iovlen = 1;
    message.msg_control = batch.incoming_control[i].bytes;
    message.msg_controllen = sizeof batch.incoming_control[i].bytes;
  }
  int count = -1;
  for (int attempt = 0; attempt < 4 && count < 0; ++attempt) {
    ++counts_.receive_calls;
    count = recvmmsg(fd_, batch.incoming.data(), static_cast<unsigned>(batch.buffers), MSG_DONTWAIT,
                     nullptr);
    if (count >= 0 || errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    trouble_ = errno;  // an ICMP error for something sent before; the next call goes on
  }
  drained_ = count < static_cast<int>(batch.buffers);
  for (int i = 0; i < count; ++i) {
    msghdr& message = batch.incoming[static_cast<std::size_t>(i)].msg_hdr;
    const std::size_t size = batch.incoming[static_cast<std::size_t>(i)].msg_len;
    if ((message.msg_flags & MSG_TRUNC) != 0) {
      ++counts_.truncated;
      continue;
    }
    auto ecn = wire::Ecn::not_ect;
    std::size_t segment = size;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
        ecn = static_cast<wire::Ecn>(*CMSG_DATA(c) & 3);
      } else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
        int merged = 0;
        std::memcpy(&merged, CMSG_DATA(c), sizeof merged);
        if (merged > 0) segment = static_cast<std::size_t>(merged);
      }
    }
    const auto* bytes = static_cast<const std::uint8_t*>(message.msg_iov[0].iov_base);
    std::size_t offset = 0;
    do {  // an empty datagram is one datagram, for the engine to count as malformed
      const std::size_t length = std::min(segment, size - offset);
      received_.push_back({Bytes{bytes + offset, length}, ecn});
      offset += length;
    } while (offset < size);
  }
  if (!received_.empty()) trouble_ = 0;
  counts_.datagrams_received += received_.size();
  return received_;
}

bool UdpTransport::too_long() const { return trouble_ == EMSGSIZE; }

std::string UdpTransport::trouble_text() const {
  if (trouble_ == 0) return {};
  if (trouble_ == ECONNREFUSED) {
    return " (the host answers that nothing listens on that port: is switchd running?)";
  }
  return " (the last packet was refused: " + errno_text(trouble_) + ")";
}

}  // namespace iswitch::agent
