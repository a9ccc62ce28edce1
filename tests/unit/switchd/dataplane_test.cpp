// The parts of the dataplane that are values: EAL's arguments, CPUs, idle back-off, pcapng.
#include <catch2/catch.hpp>
#include <cstring>

#include "switchd/admin/pcapng.h"
#include "switchd/dataplane/eal.h"
#include "switchd/dataplane/idle.h"

using namespace iswitch;
using namespace iswitch::switchd;

namespace {

bool has(const std::vector<std::string>& arguments, const std::string& wanted) {
  return std::find(arguments.begin(), arguments.end(), wanted) != arguments.end();
}

}  // namespace

TEST_CASE("EAL's arguments follow the machine") {
  EalWish wish;
  wish.memory_bytes = 100u << 20;
  wish.control_cpus = {0, 2, 3};
  wish.poller_cpus = {1, 4};
  wish.prefix = std::string("switch0");
  auto plain = eal_arguments(wish);
  CHECK(has(plain, "0@(0,2,3),1@1,2@4"));
  CHECK(has(plain, "--no-huge"));
  CHECK(has(plain, "--no-shconf"));
  CHECK(has(plain, "132"));
  CHECK(has(plain, "--no-pci"));
  CHECK_FALSE(has(plain, "--in-memory"));  // excludes --no-huge

  wish.huge_pages = true;
  wish.needs_shared_segments = true;
  wish.pci_devices = {"0000:01:00.0"};
  auto huge = eal_arguments(wish);
  CHECK(has(huge, "--in-memory"));
  CHECK(has(huge, "--single-file-segments"));
  CHECK(has(huge, "-a"));
  CHECK(has(huge, "0000:01:00.0"));
  CHECK_FALSE(has(huge, "--no-huge"));
  CHECK_FALSE(has(huge, "--no-pci"));
}

TEST_CASE("the packet loop gets a CPU of its own where there are two") {
  using Cpus = std::vector<std::uint16_t>;
  CHECK(plan_cpus({0, 1}).pollers == Cpus{1});
  CHECK(plan_cpus({0, 1}).control == Cpus{0});
  CHECK(plan_cpus({4, 7, 9}).pollers == Cpus{9});
  CHECK(plan_cpus({4, 7, 9}, {7}).control == Cpus{4, 9});
  CHECK(plan_cpus({4, 7, 9}, {9, 4}).pollers == Cpus{9, 4});
  CHECK(plan_cpus({4, 7, 9}, {9, 4}).control == Cpus{7});
  CHECK(plan_cpus({4, 7}, {7, 4}).control == Cpus{7});
  CHECK(plan_cpus({5}).pollers == Cpus{5});
  CHECK(plan_cpus({5}).control == Cpus{5});
}

TEST_CASE("an idle loop gives way by and by, a busy one never sleeps") {
  IdleBackoff adaptive(false, 100 * millisecond);
  CHECK(adaptive.after_poll(true, second) == Rest::none);
  CHECK(adaptive.after_poll(false, second + 10 * microsecond) == Rest::pause);
  CHECK(adaptive.after_poll(false, second + 20 * microsecond) == Rest::yield);
  CHECK(adaptive.after_poll(false, second + 100 * millisecond - 1) == Rest::yield);
  CHECK(adaptive.after_poll(false, second + 100 * millisecond) == Rest::sleep);
  CHECK(adaptive.after_poll(true, 2 * second) == Rest::none);
  CHECK(adaptive.after_poll(false, 2 * second + 1) == Rest::pause);
  IdleBackoff busy(true, 100 * millisecond);
  CHECK(busy.after_poll(false, 100 * second) == Rest::pause);
}

TEST_CASE("pcapng blocks are as the format says") {
  const auto word = [](const std::string& bytes, std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  std::string out;
  pcapng::section_header(out, "app");
  CHECK(word(out, 0) == 0x0A0D0D0A);
  CHECK(word(out, 4) == out.size());
  CHECK(word(out, 8) == 0x1A2B3C4D);
  CHECK(word(out, out.size() - 4) == out.size());

  out.clear();
  pcapng::interface(out, "port0", 96);
  CHECK(word(out, 0) == 1);
  CHECK(word(out, 4) == out.size());
  CHECK((word(out, 8) & 0xFFFF) == 1);  // Ethernet
  CHECK(word(out, 12) == 96);

  out.clear();
  const std::uint8_t frame[5] = {1, 2, 3, 4, 5};
  pcapng::packet(out, {.interface = 3,
                       .unix_nanoseconds = 0x1122'3344'5566'7788,
                       .direction = pcapng::PacketDirection::outbound,
                       .original_bytes = 60,
                       .bytes = frame});
  CHECK(word(out, 0) == 6);
  CHECK(word(out, 4) == out.size());
  CHECK(out.size() % 4 == 0);
  CHECK(word(out, 8) == 3);
  CHECK(word(out, 12) == 0x11223344);
  CHECK(word(out, 16) == 0x55667788);
  CHECK(word(out, 20) == 5);
  CHECK(word(out, 24) == 60);
  CHECK(std::memcmp(out.data() + 28, frame, 5) == 0);
  CHECK(word(out, 36) == (4u << 16 | 2));  // epb_flags
  CHECK(word(out, 40) == 2);               // outbound
  CHECK(word(out, out.size() - 4) == out.size());
}
