// Three habits of DPDK 22.11's net_af_packet that a switch cannot have and the driver has no
// argument for. Its calls are caught here: these definitions stand before the C library's for
// everything in the process, change what the driver asks for, and nothing else.
//
// It puts each of its sockets into a fanout group with PACKET_FANOUT_FLAG_DEFRAG: the kernel then
// reassembles IPv4 fragments before a port sees them. A switch has to pass fragments on as they are
// (and a reassembled packet exceeds every MTU).
//
// The group's number is process id xor interface index, which several switches on one machine share
// by chance; the second one's interface is refused then. The kernel can choose a free one.
//
// When its transmit ring is full it waits in poll() until there is room, without end: one slow link
// would stop every other port. Told that poll() failed, it gives the rest of the burst back, which
// is then counted as tx_drop_full.
#include <linux/if_packet.h>
#include <poll.h>
#include <rte_lcore.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

namespace {

int plain_setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  return static_cast<int>(syscall(SYS_setsockopt, fd, level, name, value, length));
}

int join_fanout(int fd, unsigned wanted) {
  // The number that the driver wanted, and the one that the kernel gave. One thread attaches ports.
  static std::map<unsigned, unsigned> given_numbers;
  constexpr unsigned number_mask = 0xFFFF;
  constexpr unsigned defragment = PACKET_FANOUT_FLAG_DEFRAG << 16;
  constexpr unsigned kernel_chooses = PACKET_FANOUT_FLAG_UNIQUEID << 16;
  const unsigned how = wanted & ~number_mask & ~defragment;
  // Another queue of an interface that has its group.
  if (const auto known = given_numbers.find(wanted & number_mask); known != given_numbers.end()) {
    const unsigned group = how | known->second;
    return plain_setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &group, sizeof group);
  }
  const unsigned group = how | kernel_chooses;
  const int outcome = plain_setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &group, sizeof group);
  unsigned given = 0;
  socklen_t length = sizeof given;
  if (outcome == 0 && getsockopt(fd, SOL_PACKET, PACKET_FANOUT, &given, &length) == 0)
    given_numbers[wanted & number_mask] = given & number_mask;
  return outcome;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int setsockopt(int fd, int level, int name,
                                                                 const void* value,
                                                                 socklen_t length) noexcept {
  unsigned fanout = 0;
  if (level == SOL_PACKET && name == PACKET_FANOUT && length == sizeof fanout) {
    std::memcpy(&fanout, value, sizeof fanout);
    return join_fanout(fd, fanout);
  }
  return plain_setsockopt(fd, level, name, value, length);
}

// By its symbol alone: glibc declares that poll() only writes to `fds`, and the compiler believes
// it.
extern "C" __attribute__((visibility("default"))) int caught_poll(pollfd* fds, nfds_t count,
                                                                  int timeout) __asm__("poll");

int caught_poll(pollfd* fds, nfds_t count, int timeout) {
  const bool in_packet_loop = timeout < 0 && count == 1 && fds->events == POLLOUT &&
                              rte_lcore_id() != static_cast<unsigned>(LCORE_ID_ANY);
  const auto ready = static_cast<int>(syscall(SYS_poll, fds, count, in_packet_loop ? 0 : timeout));
  if (in_packet_loop && ready == 0) {
    errno = EAGAIN;
    return -1;
  }
  return ready;
}
