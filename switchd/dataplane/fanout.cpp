// DPDK 22.11's net_af_packet puts each of its sockets into a fanout group with
// PACKET_FANOUT_FLAG_DEFRAG: the kernel then reassembles IPv4 fragments before a port sees them. A
// switch has to pass fragments on as they are (and a reassembled packet exceeds every MTU), and the
// driver has no argument for it. So its call is caught here: this definition stands before the C
// library's for everything in the process, drops that one flag, and changes nothing else.
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

extern "C" __attribute__((visibility("default"))) int setsockopt(int fd, int level, int name,
                                                                 const void* value,
                                                                 socklen_t length) noexcept {
  constexpr unsigned defragment = PACKET_FANOUT_FLAG_DEFRAG << 16;
  unsigned fanout = 0;
  if (level == SOL_PACKET && name == PACKET_FANOUT && length == sizeof fanout) {
    std::memcpy(&fanout, value, sizeof fanout);
    fanout &= ~defragment;
    value = &fanout;
  }
  return static_cast<int>(syscall(SYS_setsockopt, fd, level, name, value, length));
}
