// Device strings and the ring geometry of net_af_packet.
#include "switchd/device.h"

#include <catch2/catch.hpp>

using namespace iswitch::switchd;

TEST_CASE("device strings") {
  const auto af = Device::parse("net_af_packet0,iface=sw0,qpairs=1,flag");
  REQUIRE(af);
  CHECK(af->name == "net_af_packet0");
  CHECK(af->is("net_af_packet"));
  CHECK_FALSE(af->is("net_af_xdp"));
  CHECK_FALSE(af->is("net_af_pack"));
  CHECK(Device::parse("net_ring_x")->is("net_ring"));
  CHECK_FALSE(af->is_pci());
  CHECK(af->kernel_interface() == "sw0");
  CHECK(*af->argument("qpairs") == "1");
  CHECK(af->argument("flag")->empty());
  CHECK(af->argument("framesz") == nullptr);
  CHECK(af->text() == "net_af_packet0,iface=sw0,qpairs=1,flag");

  const auto pci = Device::parse("3B:00.1");
  REQUIRE(pci);
  CHECK(pci->is_pci());
  CHECK(pci->name == "0000:3b:00.1");

  for (const char* wrong :
       {"", ",", "net_null0,", "net_null0,,x", "net null0", "0000:01:00.8", "0net", "a=b", "x/y",
        "net_af_packet0", "net_af_xdp0", "net_af_packet0,iface=", "\x01net"}) {
    CAPTURE(wrong);
    CHECK_FALSE(Device::parse(wrong));
  }
  CHECK_FALSE(Device::parse(std::string(256, 'a')));
}

TEST_CASE("a ring frame holds the MTU's frame, a block whole frames, and the lock limit is kept") {
  for (const std::uint32_t mtu :
       {256u, 1500u, 1968u, 1969u, 4016u, 4017u, 8112u, 8113u, 9000u, 9136u, 9137u, 9216u}) {
    for (const std::uint64_t locked :
         {std::uint64_t{8} << 20, std::uint64_t{2} << 20, std::uint64_t{512} << 10, UINT64_MAX}) {
      CAPTURE(mtu, locked);
      const auto ring = af_packet_ring(mtu, locked);
      REQUIRE(ring);
      // What the kernel needs: the network header at 80, and room for a VLAN tag.
      CHECK(ring->frame_bytes >= mtu + 84);
      CHECK(ring->frame_bytes % 16 == 0);
      CHECK(ring->block_bytes % 4096 == 0);
      CHECK(ring->block_bytes % ring->frame_bytes == 0);
      const std::uint64_t per_block = ring->block_bytes / ring->frame_bytes;
      CHECK(ring->frames % per_block == 0);
      CHECK(ring->frames >= 16);
      CHECK(ring->frames <= 512);
      CHECK(2 * ring->frames / per_block * ring->block_bytes <= locked);
    }
  }
  // Facts of the kernel's default limit of 8 MiB: four ports at MTU 9000 get 64 frames, at 1500 all
  // of them.
  CHECK(af_packet_ring(9000, (8u << 20) / 4)->frames == 64);
  CHECK(af_packet_ring(1500, (8u << 20) / 4)->frames == 512);
  CHECK_FALSE(af_packet_ring(9000, af_packet_least_bytes(9000) - 1));
  CHECK(af_packet_ring(9000, af_packet_least_bytes(9000)));
}

TEST_CASE("the user's own ring arguments are left alone") {
  auto plain = *Device::parse("net_af_packet0,iface=x");
  complete_af_packet(plain, {2048, 4096, 128});
  CHECK(plain.text() == "net_af_packet0,iface=x,framesz=2048,blocksz=4096,framecnt=128");
  auto own = *Device::parse("net_af_packet0,iface=x,framecnt=32");
  complete_af_packet(own, {2048, 4096, 128});
  CHECK(own.text() == "net_af_packet0,iface=x,framecnt=32");
}
