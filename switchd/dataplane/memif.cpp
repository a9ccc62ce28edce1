// Four habits of DPDK 22.11's net_memif that a switch cannot have and the driver has no argument
// for. Its calls are caught here: these definitions stand before the C library's for everything in
// the process, and change nothing else.
//
// When a client goes, the interrupt thread unmaps the memory that it shared and frees what
// describes it, at once: also while a packet loop is between finding the port connected and the end
// of its burst, and the switch would end by a segmentation fault, the sooner the busier its cores
// are. The port is marked as not connected before; here the first unmapping waits until every
// packet loop has begun another turn, which finds it so.
//
// When a client goes before it has been greeted, the greeting fails, and the driver closes the
// connection without telling the interrupt thread, which then ends the process since it cannot wait
// for a closed descriptor. Here the greeting seems to succeed; the next thing read from the
// connection is its end, which the driver handles well.
//
// The file of its socket outlives a switch that is killed, and the next one could not start. Here a
// socket on which nobody listens is replaced.
//
// The pages of a client's memory are mapped one by one, as frames come to use them, in the middle
// of a burst. Here they all are before the client is told that it is connected.
#include <rte_interrupts.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>  // NOLINT(modernize-deprecated-headers): clock_gettime is POSIX
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "switchd/dataplane/turns.h"
#include "wire/pages.h"
#include "wire/units.h"

namespace {

/// A loop that has not got on for so long hangs in a driver.
constexpr unsigned most_waits = 50'000;
constexpr timespec between_looks{0, 100'000};
/// Of the processor's. What takes longer is left to the frames that come: others wait to be
/// greeted.
constexpr iswitch::Time longest_mapping = 20 * iswitch::millisecond;

int plain_munmap(void* address, std::size_t bytes) {
  return static_cast<int>(syscall(SYS_munmap, address, bytes));
}

void* plain_mmap(void* address, std::size_t bytes, int protection, int flags, int fd, off_t at) {
  return reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr)
      syscall(SYS_mmap, address, bytes, protection, flags, fd, at));
}

/// Whatever else runs on this CPU meanwhile.
iswitch::Time time_of_this_thread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * iswitch::second + time.tv_nsec;
}

/// The client waits for our answer and writes nothing meanwhile. What it promises and the file does
/// not hold is left alone.
void use_pages(std::uint8_t* memory, std::size_t bytes, int fd) {
  constexpr std::size_t at_once = 64 * iswitch::smallest_page;
  struct stat file {};
  if (fstat(fd, &file) != 0) return;
  bytes = std::min(bytes, static_cast<std::size_t>(file.st_size));
  madvise(memory, bytes, MADV_POPULATE_WRITE);  // from Linux 5.14 on: all at once
  const iswitch::Time end = time_of_this_thread() + longest_mapping;
  while (bytes > 0 && time_of_this_thread() < end) {
    const std::size_t now = std::min(bytes, at_once);
    iswitch::use_each_page(memory, now);
    memory += now;
    bytes -= now;
  }
}

void wait_for_packet_loops() {
  const iswitch::switchd::Turns before = iswitch::switchd::turns_now();
  for (unsigned i = 0; i < most_waits && !iswitch::switchd::all_have_let_go(before); ++i)
    nanosleep(&between_looks, nullptr);
}

ssize_t bytes_of(const msghdr& message) {
  ssize_t bytes = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    bytes += static_cast<ssize_t>(message.msg_iov[i].iov_len);
  }
  return bytes;
}

int plain_bind(int fd, const sockaddr* address, socklen_t length) {
  return static_cast<int>(syscall(SYS_bind, fd, address, length));
}

/// memif is what listens on such sockets.
bool is_packet_socket(int fd) {
  int type = 0;
  socklen_t length = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

bool nobody_listens(const sockaddr* address, socklen_t length) {
  const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  const bool refused = connect(probe, address, length) != 0 && errno == ECONNREFUSED;
  close(probe);
  return refused;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int bind(int fd, const sockaddr* address,
                                                           socklen_t length) noexcept {
  const int outcome = plain_bind(fd, address, length);
  if (outcome == 0 || errno != EADDRINUSE) return outcome;
  const auto* const local = reinterpret_cast<const sockaddr_un*>(address);
  const bool stale = address->sa_family == AF_UNIX && local->sun_path[0] != '\0' &&
                     is_packet_socket(fd) && nobody_listens(address, length);
  if (!stale) {
    errno = EADDRINUSE;
    return -1;
  }
  unlink(local->sun_path);
  return plain_bind(fd, address, length);
}

extern "C" __attribute__((visibility("default"))) void* mmap(void* address, std::size_t bytes,
                                                             int protection, int flags, int fd,
                                                             off_t at) noexcept {
  void* const memory = plain_mmap(address, bytes, protection, flags, fd, at);
  const bool of_client = memory != MAP_FAILED && (flags & MAP_SHARED) != 0 &&
                         (protection & PROT_WRITE) != 0 && fd >= 0 && rte_thread_is_intr() != 0;
  if (of_client) use_pages(static_cast<std::uint8_t*>(memory), bytes, fd);
  return memory;
}

extern "C" __attribute__((visibility("default"))) int munmap(void* address,
                                                             std::size_t bytes) noexcept {
  if (rte_thread_is_intr() != 0) wait_for_packet_loops();
  return plain_munmap(address, bytes);
}

extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message,
                                                                  int flags) {
  const bool interrupts = rte_thread_is_intr() != 0;
  if (interrupts) flags |= MSG_NOSIGNAL;
  const auto sent = static_cast<ssize_t>(syscall(SYS_sendmsg, fd, message, flags));
  const bool gone = interrupts && sent < 0 && (errno == EPIPE || errno == ECONNRESET);
  return gone ? bytes_of(*message) : sent;
}
