#include "tests/unit/agent/memif_server.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "wire/pages.h"

namespace iswitch::test {

using namespace agent::memif;

MemifServer::MemifServer(Options options) : options_(std::move(options)) {
  char folder[] = "/tmp/iswitch-memif-XXXXXX";
  folder_ = mkdtemp(folder) == nullptr ? std::string() : folder;
  path_ = folder_ + "/sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_, 8) != 0) {
    std::abort();
  }
}

MemifServer::~MemifServer() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  close(listener_);
  drop();
  unlink(path_.c_str());
  rmdir(folder_.c_str());
}

void MemifServer::accept_one() {
  if (thread_.joinable()) thread_.join();
  drop();
  stop_ = false;
  thread_ = std::thread([this] { serve(); });
}

bool MemifServer::connected() {
  for (int i = 0; i < 2'000 && !connected_; ++i) usleep(1'000);
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  return connected_;
}

void MemifServer::drop() {
  connected_ = false;
  for (int* const fd : {&client_, &to_server_event_, &to_client_event_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
  memory_ = nullptr;
}

bool MemifServer::client_is_gone() const {
  char byte = 0;
  return recv(client_, &byte, 1, MSG_DONTWAIT) == 0;
}

void MemifServer::serve() {
  while (!stop_ && !connected_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (poll(&waiting, 1, 10) != 1) continue;
    drop();
    client_ = accept(listener_, nullptr, nullptr);
    if (client_ < 0) return;
    if (!options_.silent) serve_one();
    while (options_.silent && !stop_) usleep(1'000);
  }
}

/// One client's handshake; gives up after two seconds of silence.
void MemifServer::serve_one() {
  Message hello;
  hello.kind = Kind::hello;
  hello.hello = {};
  hello.hello.least_version = hello.hello.most_version = options_.version;
  hello.hello.most_log2_ring = static_cast<std::uint8_t>(options_.most_log2_ring);
  if (::send(client_, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return;
  while (true) {
    pollfd polled{client_, POLLIN, 0};
    if (poll(&polled, 1, 2'000) != 1) return;
    Message message;
    iovec piece{&message, sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (recvmsg(client_, &header, 0) != sizeof message) return;
    int fd = -1;
    if (const cmsghdr* const rights = CMSG_FIRSTHDR(&header)) {
      std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
    }
    switch (message.kind) {
      case Kind::init:
        if (message.init.id != options_.id || options_.secret != message.init.secret) {
          Message refusal;
          refusal.kind = Kind::disconnect;
          refusal.disconnect = {};
          std::strcpy(refusal.disconnect.reason,
                      message.init.id != options_.id ? "ID not found" : "Incorrect secret");
          static_cast<void>(!::send(client_, &refusal, sizeof refusal, MSG_NOSIGNAL));
          return;
        }
        break;
      case Kind::add_region: {
        memory_bytes_ = message.add_region.bytes;
        void* const mapped =
            mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (mapped == MAP_FAILED) return;
        memory_ = static_cast<std::uint8_t*>(mapped);
        break;
      }
      case Kind::add_ring: {
        const bool from_client = message.add_ring.flags == 1;
        (from_client ? to_server_event_ : to_client_event_) = fd;
        (from_client ? to_server_at_ : to_client_at_) = message.add_ring.offset;
        log2_slots_ = message.add_ring.log2_slots;
        break;
      }
      case Kind::connect:
        // As DPDK's server does: whatever stood in them, the rings begin at zero.
        for (Ring* const ring : {&to_server(), &to_client()}) {
          if (ring->cookie != ring_cookie) return;
          ring->head = ring->tail = 0;
        }
        to_server().flags = Ring::no_interrupts;
        read_ = 0;
        message = {};
        message.kind = Kind::connected;
        connected_ = ::send(client_, &message, sizeof message, MSG_NOSIGNAL) == sizeof message;
        return;
      default:
        return;
    }
    message = {};
    message.kind = Kind::ack;
    if (::send(client_, &message, sizeof message, MSG_NOSIGNAL) != sizeof message) return;
  }
}

Ring& MemifServer::to_server() { return *reinterpret_cast<Ring*>(at(to_server_at_)); }
Ring& MemifServer::to_client() { return *reinterpret_cast<Ring*>(at(to_client_at_)); }

std::size_t MemifServer::waiting() {
  return static_cast<std::uint16_t>(__atomic_load_n(&to_server().head, __ATOMIC_ACQUIRE) - read_);
}

std::size_t MemifServer::unused_pages() const {
  std::vector<unsigned char> states((memory_bytes_ + smallest_page - 1) / smallest_page);
  if (mincore(memory_, memory_bytes_, states.data()) != 0) return states.size();
  return static_cast<std::size_t>(std::count_if(
      states.begin(), states.end(), [](unsigned char state) { return (state & 1) == 0; }));
}

std::optional<Frame> MemifServer::receive() {
  if (waiting() == 0) return std::nullopt;
  const Slot& slot = to_server().slots()[read_ & (slots() - 1)];
  const std::uint8_t* const bytes = at(slot.offset);
  Frame frame(bytes, bytes + slot.length);
  ++read_;
  __atomic_store_n(&to_server().tail, read_, __ATOMIC_RELEASE);
  return frame;
}

Slot& MemifServer::next_slot() { return to_client().slots()[to_client().tail & (slots() - 1)]; }

bool MemifServer::send(const std::vector<Frame>& pieces) {
  Ring& ring = to_client();
  std::uint16_t tail = ring.tail;
  const auto lent =
      static_cast<std::uint16_t>(__atomic_load_n(&ring.head, __ATOMIC_ACQUIRE) - tail);
  if (lent < pieces.size()) return false;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Slot& slot = ring.slots()[tail++ & (slots() - 1)];
    std::memcpy(at(slot.offset), pieces[i].data(), pieces[i].size());
    slot.length = static_cast<std::uint32_t>(pieces[i].size());
    // As DPDK's server does: what stands there already is not taken away.
    if (i + 1 < pieces.size()) slot.flags |= Slot::next;
  }
  __atomic_store_n(&ring.tail, tail, __ATOMIC_RELEASE);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if ((__atomic_load_n(&ring.flags, __ATOMIC_RELAXED) & Ring::no_interrupts) == 0) {
    const std::uint64_t one = 1;
    static_cast<void>(!write(to_client_event_, &one, sizeof one));
  }
  return true;
}

}  // namespace iswitch::test
