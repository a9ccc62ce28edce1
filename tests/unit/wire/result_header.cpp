#include "wire/result_header.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "slow.h"

using namespace iswitch;
using namespace iswitch::wire;

namespace {

Endpoint random_endpoint(std::mt19937_64& random) {
  Endpoint endpoint;
  for (auto& byte : endpoint.mac.bytes) byte = static_cast<std::uint8_t>(random());
  endpoint.ip.value = static_cast<std::uint32_t>(random());
  endpoint.udp_port = static_cast<std::uint16_t>(random());
  return endpoint;
}

ResultFields random_fields(std::mt19937_64& random) {
  ResultFields fields;
  fields.job = static_cast<JobId>(random());
  fields.flags = static_cast<std::uint8_t>(random());
  fields.workers = static_cast<std::uint16_t>(random());
  fields.round = static_cast<std::uint32_t>(random());
  fields.segment = static_cast<std::uint32_t>(random());
  fields.members = random();
  return fields;
}

Header header_of(const ResultFields& fields) {
  Header header;
  header.type = Type::result;
  header.flags = fields.flags;
  header.job = fields.job;
  header.member = fields.workers;
  header.round = fields.round;
  header.segment = fields.segment;
  header.set = fields.members;
  return header;
}

/// write_encapsulation + write_header + set_udp_checksum.
slow::FrameBytes slow_path(const Route& route, const ResultFields& fields, Bytes payload,
                           bool checksum) {
  slow::FrameBytes frame(payload_offset + payload.size());
  write_encapsulation(route, header_bytes + payload.size(), frame.data());
  write_header(header_of(fields), frame.data() + encapsulation_bytes);
  std::copy(payload.begin(), payload.end(), frame.begin() + payload_offset);
  if (checksum) set_udp_checksum(frame);
  return frame;
}

slow::FrameBytes fast_path(const ResultTemplate& header, ResultFields fields, Bytes payload,
                           bool checksum) {
  fields.payload_bytes = static_cast<std::uint32_t>(payload.size());
  fields.payload_sum = checksum ? partial_sum(payload) : 0;
  slow::FrameBytes frame(payload_offset + payload.size(), 0xEE);
  header.write(fields, frame.data());
  std::copy(payload.begin(), payload.end(), frame.begin() + payload_offset);
  return frame;
}

}  // namespace

TEST_CASE("fast, slow and obvious ways write the same result", "[result_header]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    Route route{random_endpoint(random), random_endpoint(random),
                static_cast<std::uint8_t>(random())};
    const auto shards = static_cast<std::uint16_t>(i % 3 == 0 ? 1 + random() % 64 : 1);
    const bool checksum = i % 4 != 0;
    const ResultTemplate header(route, shards, checksum);
    const ResultFields fields = random_fields(random);
    const std::size_t sizes[] = {0, 4, 1440, 8928, random() % 8929};
    slow::FrameBytes payload(sizes[random() % 5]);  // odd lengths too
    for (auto& byte : payload) byte = static_cast<std::uint8_t>(random());

    route.to.udp_port = static_cast<std::uint16_t>(route.to.udp_port + fields.segment % shards);
    slow::FrameBytes obvious = slow::frame(route, header_of(fields), payload);
    if (!checksum) slow::put16(obvious, 40, 0);
    INFO("frame " << i << ", " << payload.size() << " bytes, " << shards << " shards, checksum "
                  << checksum);
    REQUIRE(slow_path(route, fields, payload, checksum) == obvious);
    REQUIRE(fast_path(header, fields, payload, checksum) == obvious);
  }
}

TEST_CASE("a checksum that comes out as 0 is sent as 0xFFFF", "[result_header]") {
  const auto seed = GENERATE(4u, 5u, 6u, 7u);
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const Route route{random_endpoint(random), random_endpoint(random), 0xAE};
  const ResultFields fields = random_fields(random);
  slow::FrameBytes payload(8);
  const slow::FrameBytes before = slow::frame(route, header_of(fields), payload);
  // The payload's last word takes what the sum lacks of 0xFFFF, which is the checksum.
  std::copy(before.begin() + 40, before.begin() + 42, payload.begin() + 6);
  const slow::FrameBytes obvious = slow::frame(route, header_of(fields), payload);
  REQUIRE(slow::get16(obvious, 40) == 0xFFFF);
  CHECK(slow_path(route, fields, payload, true) == obvious);
  CHECK(fast_path(ResultTemplate(route, 1, true), fields, payload, true) == obvious);
  FrameRules rules;
  rules.ip = route.to.ip;
  rules.udp_port = route.to.udp_port;
  Packet packet;
  slow::FrameBytes frame = obvious;
  frame[encapsulation_bytes + 1] = flag::partial;  // whatever bits the seed gave
  slow::fix_checksums(frame);
  CHECK(parse_frame(rules, frame, {}, packet).fault == Fault::none);
}

TEST_CASE("all zero fields and payload", "[result_header]") {
  const Route route{};
  const slow::FrameBytes payload(32);
  const ResultFields fields{};
  const auto obvious = slow::frame(route, header_of(fields), payload);
  CHECK(slow_path(route, fields, payload, true) == obvious);
  CHECK(fast_path(ResultTemplate(route, 1, true), fields, payload, true) == obvious);
}

TEST_CASE("a child switch takes segment s on its port + s mod its shards", "[result_header]") {
  Route route{};
  route.to.udp_port = 17170;
  const ResultTemplate header(route, 3, true);
  for (std::uint32_t segment : {0u, 1u, 2u, 3u, 4u, 1000u, 0xFFFFFFFFu}) {
    ResultFields fields;
    fields.segment = segment;
    const auto frame = fast_path(header, fields, {}, true);
    CHECK(slow::get16(frame, 36) == 17170 + segment % 3);
  }
}

TEST_CASE("no shards are taken as one: nothing divides by zero", "[result_header]") {
  Route route{};
  route.to.udp_port = 40001;
  ResultFields fields;
  fields.segment = 5;
  CHECK(slow::get16(fast_path(ResultTemplate(route, 0, true), fields, {}, true), 36) == 40001);
}

TEST_CASE("a sum on its way to the parent: the obvious contribution", "[result_header]") {
  const auto seed = GENERATE(8u, 9u);
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200; ++i) {
    Route route{random_endpoint(random), random_endpoint(random), 0xAE};
    const auto shards = static_cast<std::uint16_t>(1 + random() % 8);
    const ResultTemplate header(route, shards, true);
    ResultFields fields = random_fields(random);
    const ContributionPlace place{static_cast<MemberId>(random() % max_members),
                                  static_cast<std::uint32_t>(random())};
    slow::FrameBytes payload(random() % 2 == 0 ? 0 : 1440);
    for (auto& byte : payload) byte = static_cast<std::uint8_t>(random());
    fields.payload_bytes = static_cast<std::uint32_t>(payload.size());
    fields.payload_sum = partial_sum(payload);

    ResultMessage message;
    message.set(fields, place);
    CHECK(message.type() == Type::contribution);
    slow::FrameBytes frame(payload_offset + payload.size(), 0xEE);
    header.write(message, frame.data());
    std::copy(payload.begin(), payload.end(), frame.begin() + payload_offset);
    const Header right{.type = Type::contribution,
                       .flags = fields.flags,
                       .job = fields.job,
                       .member = place.member,
                       .round = fields.round,
                       .segment = fields.segment,
                       .set = contribution_set(place.operation_tag, fields.workers)};
    route.to.udp_port = static_cast<std::uint16_t>(route.to.udp_port + fields.segment % shards);
    REQUIRE(frame == slow::frame(route, right, payload));
    // The same memory says a result afterwards.
    message.set(fields);
    CHECK(message.type() == Type::result);
    header.write(message, frame.data());
    REQUIRE(frame == slow::frame(route, header_of(fields), payload));
  }
}
