#include "agent/transport/memif_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "agent/fork_guard.h"
#include "agent/transport/clock.h"
#include "wire/pages.h"

namespace iswitch::agent::memif {

namespace {

std::string errno_text() { return std::generic_category().message(errno); }

void close_and_forget(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

template <std::size_t size>
void copy_text(const std::string& from, char (&to)[size]) {
  std::memcpy(to, from.data(), std::min(from.size(), size - 1));
}

void watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

Channel::Channel(ChannelOptions options) : options_(std::move(options)) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ >= 0) close_in_children(epoll_);
}

Channel::~Channel() {
  disconnect();
  if (epoll_ >= 0) forget_in_children(epoll_);
  close_and_forget(epoll_);
}

std::uint32_t Channel::ring_bytes() const {
  return static_cast<std::uint32_t>(sizeof(Ring) + slots() * sizeof(Slot));
}

std::string Channel::connect(Time patience) {
  disconnect();
  refused_ = false;
  std::string problem = open_socket();
  if (problem.empty()) problem = make_memory();
  if (problem.empty()) problem = shake_hands(monotonic_now() + patience);
  if (!problem.empty()) {
    disconnect();
    return problem;
  }
  watch(epoll_, socket_);
  watch(epoll_, to_client_event_);
  connected_ = true;
  return {};
}

void Channel::disconnect() {
  connected_ = false;
  if (socket_ >= 0) forget_in_children(socket_);
  close_and_forget(socket_);
  close_and_forget(to_server_event_);
  close_and_forget(to_client_event_);
  close_and_forget(memory_fd_);
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
  memory_ = nullptr;
}

std::string Channel::open_socket() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& path = options_.socket;
  const std::size_t at = options_.abstract_name ? 1 : 0;
  if (path.empty() || path.size() + at >= sizeof address.sun_path) {
    return "its name is empty or longer than " + std::to_string(sizeof address.sun_path - at - 1) +
           " bytes";
  }
  std::memcpy(address.sun_path + at, path.data(), path.size());
  socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const auto size = static_cast<socklen_t>(
      options_.abstract_name ? offsetof(sockaddr_un, sun_path) + at + path.size() : sizeof address);
  if (socket_ < 0 || ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return errno_text();
  }
  // A child of fork() that kept it open would keep the switch from noticing that we are gone.
  close_in_children(socket_);
  return {};
}

std::string Channel::make_memory() {
  memory_bytes_ = 2 * std::size_t{ring_bytes()} + std::size_t{2} * slots() * stride();
  memory_fd_ = memfd_create("iswitch-memif", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool sized = memory_fd_ >= 0 &&
                     ftruncate(memory_fd_, static_cast<off_t>(memory_bytes_)) == 0 &&
                     fcntl(memory_fd_, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
  void* const mapped =
      sized ? mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_, 0)
            : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    return "cannot make " + std::to_string(memory_bytes_ >> 20) +
           " MiB of shared memory: " + errno_text();
  }
  memory_ = static_cast<std::uint8_t*>(mapped);
  madvise(memory_, memory_bytes_, MADV_DONTFORK);
  use_each_page(memory_, memory_bytes_);
  to_server_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  to_client_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (to_server_event_ < 0 || to_client_event_ < 0)
    return "cannot make an eventfd: " + errno_text();
  fill_rings();
  return {};
}

void Channel::fill_rings() {
  Ring& out = to_server();
  Ring& in = to_client();
  out.cookie = in.cookie = ring_cookie;
  in.flags = Ring::no_interrupts;
  for (std::uint32_t i = 0; i < slots(); ++i) {
    const auto offset = [this](const std::uint8_t* at) {
      return static_cast<std::uint32_t>(at - memory_);
    };
    out.slots()[i] = {0, 0, options_.buffer_bytes, offset(to_server_buffer(i)), 0};
    in.slots()[i] = {0, 0, options_.buffer_bytes, offset(to_client_buffer(i)), 0};
  }
}

std::string Channel::send(const Message& message, int descriptor) {
  msghdr header{};
  iovec piece{const_cast<Message*>(&message), sizeof message};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  return sendmsg(socket_, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message)
             ? std::string()
             : errno_text();
}

std::string Channel::expect(Kind kind, Time deadline, Message& message) {
  const Time left = std::max<Time>(deadline - monotonic_now(), 0);
  pollfd polled{socket_, POLLIN, 0};
  if (poll(&polled, 1, static_cast<int>(std::min<Time>(left / millisecond + 1, 60'000))) <= 0) {
    return "the server does not answer";
  }
  const ssize_t size = recv(socket_, &message, sizeof message, 0);
  if (size != static_cast<ssize_t>(sizeof message)) return "the server closed the connection";
  if (message.kind == Kind::disconnect) {
    refused_ = true;
    message.disconnect.reason[sizeof message.disconnect.reason - 1] = '\0';
    return std::string("the server refuses: ") + message.disconnect.reason;
  }
  return message.kind == kind ? std::string() : "the server does not speak memif version 2";
}

std::string Channel::exchange(Message message, int descriptor, Time deadline) {
  const Kind answer = message.kind == Kind::connect ? Kind::connected : Kind::ack;
  std::string problem = send(message, descriptor);
  return problem.empty() ? expect(answer, deadline, message) : problem;
}

std::string Channel::shake_hands(Time deadline) {
  Message hello;
  std::string problem = expect(Kind::hello, deadline, hello);
  if (!problem.empty()) return problem;
  if (hello.hello.least_version > version || hello.hello.most_version < version) {
    refused_ = true;
    return "the server does not speak memif version 2";
  }
  if (hello.hello.most_log2_ring < options_.log2_slots) {
    refused_ = true;
    return "the server's rings have at most 2^" + std::to_string(hello.hello.most_log2_ring) +
           " slots: lower rsize";
  }

  Message message;
  message.kind = Kind::init;
  message.init = {};
  message.init.version = version;
  message.init.id = options_.id;
  copy_text(options_.secret, message.init.secret);
  copy_text(options_.name, message.init.name);
  problem = exchange(message, -1, deadline);

  message = {};
  message.kind = Kind::add_region;
  message.add_region = {0, memory_bytes_};
  if (problem.empty()) problem = exchange(message, memory_fd_, deadline);

  message = {};
  message.kind = Kind::add_ring;
  const auto log2_slots = static_cast<std::uint8_t>(options_.log2_slots);
  message.add_ring = {1, 0, 0, 0, log2_slots, 0};
  if (problem.empty()) problem = exchange(message, to_server_event_, deadline);
  message.add_ring = {0, 0, 0, ring_bytes(), log2_slots, 0};
  if (problem.empty()) problem = exchange(message, to_client_event_, deadline);

  message = {};
  message.kind = Kind::connect;
  message.connect = {};
  copy_text(options_.name, message.connect.interface);
  return problem.empty() ? exchange(message, -1, deadline) : problem;
}

void Channel::check() {
  if (!connected_) return;
  Message message;
  const ssize_t size = recv(socket_, &message, sizeof message, MSG_DONTWAIT);
  const bool silent = size < 0 && (errno == EAGAIN || errno == EINTR);
  if (!silent && (size <= 0 || message.kind == Kind::disconnect)) disconnect();
}

void Channel::notify_server() const {
  const std::uint64_t one = 1;
  static_cast<void>(!write(to_server_event_, &one, sizeof one));
}

void Channel::clear_interrupt() const {
  std::uint64_t count = 0;
  static_cast<void>(!read(to_client_event_, &count, sizeof count));
}

}  // namespace iswitch::agent::memif
