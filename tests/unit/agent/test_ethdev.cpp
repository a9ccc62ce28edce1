// A DPDK device as a frame device: rings in this process, whose EAL the agent must share.
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "agent/transport/frame_device.h"
#include "tests/unit/agent/frames.h"

using namespace iswitch;
using namespace iswitch::agent;
using Catch::Matchers::Contains;

namespace {

using Frame = std::vector<std::uint8_t>;
constexpr unsigned ring_slots = 256;

void start_eal_as_an_application() {
  static const bool done = [] {
    std::vector<std::string> words{"test",
                                   "--no-huge",
                                   "--no-shconf",
                                   "-m",
                                   "128",
                                   "--no-pci",
                                   "--no-telemetry",
                                   "--log-level=critical",
                                   "--file-prefix=iswitch-agent-test"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    return rte_eal_init(static_cast<int>(words.size()), argv.data()) >= 0;
  }();
  REQUIRE(done);
}

/// A device of two rings, and the other ends of both.
class Rings {
 public:
  explicit Rings(const std::string& name) {
    start_eal_as_an_application();
    to_device_ = rte_ring_create((name + "-in").c_str(), ring_slots, SOCKET_ID_ANY, 0);
    from_device_ = rte_ring_create((name + "-out").c_str(), ring_slots, SOCKET_ID_ANY, 0);
    pool_ = rte_pktmbuf_pool_create((name + "-pool").c_str(), 1023, 0, 0, 2048, SOCKET_ID_ANY);
    REQUIRE(to_device_ != nullptr);
    REQUIRE(from_device_ != nullptr);
    REQUIRE(pool_ != nullptr);
    REQUIRE(rte_eth_from_rings(name.c_str(), &to_device_, 1, &from_device_, 1, 0) >= 0);
  }
  ~Rings() {
    while (receive()) {
    }
    rte_ring_free(to_device_);
    rte_ring_free(from_device_);
    rte_mempool_free(pool_);
  }
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  bool send(const std::vector<Frame>& pieces) {
    rte_mbuf* head = nullptr;
    for (const Frame& piece : pieces) {
      rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool_);
      if (mbuf == nullptr) return false;
      std::memcpy(rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(piece.size())), piece.data(),
                  piece.size());
      if (head == nullptr) {
        head = mbuf;
      } else {
        rte_pktmbuf_chain(head, mbuf);
      }
    }
    return rte_ring_enqueue(to_device_, head) == 0;
  }
  std::optional<Frame> receive() {
    void* taken = nullptr;
    if (rte_ring_dequeue(from_device_, &taken) != 0) return std::nullopt;
    auto* const mbuf = static_cast<rte_mbuf*>(taken);
    const auto* const bytes = rte_pktmbuf_mtod(mbuf, const std::uint8_t*);
    Frame frame(bytes, bytes + mbuf->data_len);
    rte_pktmbuf_free(mbuf);
    return frame;
  }
  bool all_buffers_are_back() const { return rte_mempool_full(pool_) == 1; }

 private:
  rte_ring* to_device_ = nullptr;
  rte_ring* from_device_ = nullptr;
  rte_mempool* pool_ = nullptr;
};

std::unique_ptr<FrameDevice> open(const std::string& device) {
  auto opened = open_frame_device({device, second});
  if (const auto* error = std::get_if<Error>(&opened)) FAIL(error->text);
  return std::get<std::unique_ptr<FrameDevice>>(std::move(opened));
}

std::string problem_of(const std::string& device) {
  auto opened = open_frame_device({device, second});
  const auto* error = std::get_if<Error>(&opened);
  return error == nullptr ? "none" : error->text;
}

}  // namespace

TEST_CASE("frames go both ways over a device of the application's") {
  Rings rings("both");
  const auto device = open("net_ring_both");
  CHECK(device->link_is_up());
  CHECK(device->fd() == -1);
  CHECK_FALSE(device->mac() == wire::Mac{});
  std::mt19937_64 random(1);
  for (unsigned i = 0; i < 3'000; ++i) {
    const Frame frame = random_frame(random, 14 + random() % 1'500);
    send(*device, {frame});
    REQUIRE(rings.receive() == frame);
    REQUIRE(rings.send({frame}));
    const auto frames = device->receive();
    REQUIRE(frames.size() == 1);
    REQUIRE(Frame(frames[0].bytes.begin(), frames[0].bytes.end()) == frame);
  }
  CHECK(device->receive().empty());
  CHECK(rings.all_buffers_are_back());
}

TEST_CASE("a head and a payload become one frame") {
  Rings rings("chain");
  const auto device = open("net_ring_chain");
  std::mt19937_64 random(2);
  for (unsigned i = 0; i < 1'000; ++i) {
    const Frame whole = random_frame(random, 1'504);
    // Too long a head to be put before the payload: copied, whole all the same.
    const std::ptrdiff_t cut = i % 2 == 0 ? 64 : 900;
    REQUIRE(rings.send(
        {Frame(whole.begin(), whole.begin() + cut), Frame(whole.begin() + cut, whole.end())}));
    const auto frames = device->receive();
    REQUIRE(frames.size() == 1);
    REQUIRE(Frame(frames[0].bytes.begin(), frames[0].bytes.end()) == whole);
  }
  CHECK(device->receive().empty());
  CHECK(rings.all_buffers_are_back());
}

TEST_CASE(
    "what a full queue does not take is kept, in order, and there is no room until it is gone") {
  Rings rings("full");
  const auto device = open("net_ring_full");
  std::mt19937_64 random(3);
  std::vector<Frame> sent;
  while (device->has_room()) {
    std::vector<Frame> burst;
    for (unsigned i = 0; i < 50; ++i) burst.push_back(random_frame(random, 100));
    send(*device, burst);
    sent.insert(sent.end(), burst.begin(), burst.end());
    REQUIRE(sent.size() <= ring_slots + 2 * FrameDevice::burst);
  }
  CHECK(device->reserve(1).empty());
  std::vector<Frame> got;
  for (unsigned i = 0; i < 10; ++i) got.push_back(*rings.receive());
  device->flush();
  while (const auto frame = rings.receive()) got.push_back(*frame);
  device->flush();
  CHECK(device->has_room());
  while (const auto frame = rings.receive()) got.push_back(*frame);
  CHECK(got == sent);
}

TEST_CASE("buffers that were reserved and not sent are not lost") {
  Rings rings("reserve");
  const auto device = open("net_ring_reserve");
  for (unsigned i = 0; i < 5'000; ++i) {
    REQUIRE(device->reserve(64).size() == 64);
    if (i % 3 == 0) device->commit({});
  }
  device->commit({});
  CHECK_FALSE(rings.receive());
}

TEST_CASE("several devices of one process, one after another and at once") {
  std::mt19937_64 random(4);
  for (unsigned round = 0; round < 20; ++round) {
    Rings one("one"), other("other");
    const auto first = open("net_ring_one");
    const auto second_device = open("net_ring_other");
    const Frame frame = random_frame(random, 200), answer = random_frame(random, 300);
    send(*first, {frame});
    send(*second_device, {answer});
    CHECK(one.receive() == frame);
    CHECK(other.receive() == answer);
    CHECK_FALSE(first->mac() == second_device->mac());
  }
}

TEST_CASE("a child of fork() is told that DPDK does not survive it") {
  Rings rings("fork");
  const auto device = open("net_ring_fork");
  const pid_t child = fork();
  if (child == 0) {
    const std::string problem = problem_of("net_ring_other");
    _exit(problem.find("does not survive fork()") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a device belongs to one, and what is wrong is told in one line") {
  Rings rings("owned");
  const auto device = open("net_ring_owned");
  CHECK_THAT(problem_of("net_ring_owned"), Contains("is used already in this process"));
  CHECK_THAT(problem_of("net_nothing0"),
             Contains("device net_nothing0: attaching it fails") && !Contains("\n"));
  CHECK_THAT(problem_of("0000:f7:00.0"), Contains("bind it to vfio-pci") && !Contains("\n"));
  CHECK_THAT(problem_of("net_af_packet7,iface=nowhere"),
             Contains("interface nowhere does not exist"));
}
