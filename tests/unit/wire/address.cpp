#include "wire/address.h"

#include <catch2/catch.hpp>

using namespace iswitch::wire;

TEST_CASE("MAC addresses have one text form to write and two cases to read", "[address]") {
  const auto mac = parse_mac("02:00:00:aB:Cd:fe");
  REQUIRE(mac);
  CHECK(mac->bytes == std::array<std::uint8_t, 6>{2, 0, 0, 0xAB, 0xCD, 0xFE});
  CHECK(to_string(*mac) == "02:00:00:ab:cd:fe");
  CHECK_FALSE(mac->is_group());
  CHECK(parse_mac("ff:ff:ff:ff:ff:ff")->is_group());
  CHECK(parse_mac("01:00:5e:00:00:01")->is_group());
}

TEST_CASE("what is not a MAC address is refused", "[address]") {
  const auto* text = GENERATE("", "02:00:00:00:00", "02:00:00:00:00:fe:00", "02-00-00-00-00-fe",
                              "2:0:0:0:0:fe", "02:00:00:00:00:fg", "02:00:00:00:00:f ",
                              "0200000000fe", "02:00:00:00:00;fe", ":02:00:00:00:00:f");
  INFO(text);
  CHECK_FALSE(parse_mac(text));
}

TEST_CASE("IPv4 addresses are read in host order", "[address]") {
  CHECK(parse_ipv4("10.77.0.254") == Ipv4{0x0A4D00FE});
  CHECK(parse_ipv4("0.0.0.0") == Ipv4{0});
  CHECK(parse_ipv4("255.255.255.255") == Ipv4{0xFFFFFFFF});
  CHECK(to_string(Ipv4{0x0A4D00FE}) == "10.77.0.254");
  CHECK(to_string(Ipv4{0}) == "0.0.0.0");
}

TEST_CASE("what is not an IPv4 address is refused", "[address]") {
  const auto* text =
      GENERATE("", "10.77.0", "10.77.0.254.1", "10.77.0.256", "10.77.0.-1", "10..0.1", "10.77.0.1 ",
               " 10.77.0.1", "010.77.0.1", "10.77.0.0x1", "10,77,0,1", "10.77.0.", ".77.0.1",
               "10.77.0.+1", "10.77.0.99999999999");
  INFO(text);
  CHECK_FALSE(parse_ipv4(text));
}
