// A cable between two network interfaces that loses, duplicates, reorders and corrupts frames from
// a seed: the simulator's links driven by the clock instead of virtual time, packet sockets at the
// ends.
//
//   faulty-cable --a if0 --b if1 --seed 7 --loss 0.01 --duplicate 0.1 --reorder 0.05 --corrupt
//   0.001
//
// Prints "ready", and what it did as one line of JSON when SIGTERM or SIGINT ends it.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include "tools/sim/link.h"
#include "tools/sim/world.h"

namespace {

using namespace iswitch;

volatile std::sig_atomic_t stopped = 0;
constexpr std::size_t frame_room = 9216;

Time clock_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Time{t.tv_sec} * second + t.tv_nsec;
}

/// One end: a packet socket. A frame that arrives at it in virtual time is sent.
class End final : public sim::EventHandler {
 public:
  ~End() {
    if (fd_ >= 0) close(fd_);
  }

  bool open(const std::string& interface) {
    const unsigned index = if_nametoindex(interface.c_str());
    fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(index);
    packet_mreq promiscuous{};
    promiscuous.mr_ifindex = static_cast<int>(index);
    promiscuous.mr_type = PACKET_MR_PROMISC;
    const int room = 8 << 20;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    const bool good =
        index != 0 && fd_ >= 0 &&
        bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        setsockopt(fd_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) == 0;
    if (!good)
      std::fprintf(stderr, "faulty-cable: cannot open %s: %s\n", interface.c_str(),
                   std::strerror(errno));
    return good;
  }

  /// A frame that came in on the interface; false when there is none.
  bool receive(sim::FramePool& pool, sim::FrameRef& frame) {
    std::array<std::uint8_t, frame_room> bytes;
    sockaddr_ll from{};
    socklen_t length = sizeof from;
    for (;;) {
      const ssize_t n =
          recvfrom(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
      if (n <= 0) return false;
      if (from.sll_pkttype == PACKET_OUTGOING) continue;  // the kernel's own
      frame = pool.copy({bytes.data(), static_cast<std::size_t>(n)});
      return true;
    }
  }

  void handle(const sim::Event& event) override {
    const auto frame = sim::FrameRef::attach(event.object);
    // A full device queue is one more loss; the count says so.
    if (send(fd_, frame.view().data(), frame.size(), 0) < 0) ++refused;
  }

  int descriptor() const { return fd_; }
  std::uint64_t refused = 0;

 private:
  int fd_ = -1;
};

void print(const sim::Link& link, const End& to, const char* name, const char* behind) {
  const sim::LinkCounters& c = link.counters();
  std::printf(
      "\"%s\":{\"sent\":%llu,\"lost\":%llu,\"duplicated\":%llu,\"reordered\":%llu,\"corrupted\":%"
      "llu,\"overflow\":%llu,"
      "\"delivered\":%llu,\"refused\":%llu}%s",
      name, static_cast<unsigned long long>(c.sent), static_cast<unsigned long long>(c.lost),
      static_cast<unsigned long long>(c.duplicated), static_cast<unsigned long long>(c.reordered),
      static_cast<unsigned long long>(c.corrupted), static_cast<unsigned long long>(c.overflow),
      static_cast<unsigned long long>(c.delivered), static_cast<unsigned long long>(to.refused),
      behind);
}

}  // namespace

int main(int argc, char** argv) {
  std::string first;
  std::string other;
  std::uint64_t seed = 1;
  sim::LinkSpec spec;
  spec.bits_per_second = 0;
  spec.delay = 0;
  spec.queue_bytes = 1u << 30;
  spec.faults.reorder_delay = 2 * millisecond;
  CLI::App app("A faulty cable between two interfaces.");
  app.add_option("--a", first)->required();
  app.add_option("--b", other)->required();
  app.add_option("--seed", seed);
  app.add_option("--loss", spec.faults.loss);
  app.add_option("--duplicate", spec.faults.duplicate);
  app.add_option("--reorder", spec.faults.reorder);
  app.add_option("--corrupt", spec.faults.corrupt);
  CLI11_PARSE(app, argc, argv);

  End a;
  End b;
  if (!a.open(first) || !b.open(other)) return 1;
  struct sigaction stop {};
  stop.sa_handler = [](int) { stopped = 1; };
  sigaction(SIGTERM, &stop, nullptr);
  sigaction(SIGINT, &stop, nullptr);

  sim::World world(seed, frame_room, 16);
  sim::Link forward(world, spec, 0, b, 0, world.random.fork(1));
  sim::Link backward(world, spec, 1, a, 0, world.random.fork(2));
  std::puts("ready");
  std::fflush(stdout);

  const Time origin = clock_now();
  while (stopped == 0) {
    world.queue.run_until(clock_now() - origin);
    sim::FrameRef frame;
    for (int i = 0; i < 64 && a.receive(world.frames, frame); ++i) forward.send(std::move(frame));
    for (int i = 0; i < 64 && b.receive(world.frames, frame); ++i) backward.send(std::move(frame));
    if (world.queue.next_at() <= world.now()) continue;
    std::array<pollfd, 2> ends{{{a.descriptor(), POLLIN, 0}, {b.descriptor(), POLLIN, 0}}};
    const int wait = world.queue.empty() ? 100 : 1;
    poll(ends.data(), ends.size(), wait);
  }
  world.queue.run_until(world.now() + second);  // nothing stays in the cable
  std::printf("{");
  print(forward, b, "forward", ",");
  print(backward, a, "backward", "}\n");
  return 0;
}
