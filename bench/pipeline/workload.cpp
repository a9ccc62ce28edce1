#include "bench/pipeline/workload.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "wire/bytes.h"
#include "wire/checksum.h"

namespace iswitch::bench {
namespace {

constexpr wire::Ipv4 switch_ip{0x0A4D00FE};
constexpr wire::Mac switch_mac{{2, 0, 0, 0, 0, 0xFE}};
constexpr std::size_t line = 64;
constexpr std::size_t round_at = wire::encapsulation_bytes + 6;
constexpr std::size_t checksum_at = 40;

wire::Endpoint endpoint_of(unsigned member) {
  return {.mac = {{2, 0, 0, 0, 1, static_cast<std::uint8_t>(member)}},
          .ip = {0x0A4D0001u + member},
          .udp_port = static_cast<std::uint16_t>(40000 + member)};
}

pipeline::PipelineConfig config() {
  pipeline::PipelineConfig config;
  config.address.mac = switch_mac;
  config.address.rules.ip = switch_ip;
  config.ports = ~pipeline::PortMask{0};
  return config;
}

}  // namespace

Blocks::Blocks(std::size_t count, std::size_t bytes)
    : count_(count), stride_((bytes + line - 1) / line * line), memory_(nullptr) {
  if (stride_ / line % 2 == 0) stride_ += line;
  const std::size_t total = count * stride_;
  memory_.reset(static_cast<std::uint8_t*>(::operator new[](total, std::align_val_t{4096})));
  std::memset(memory_.get(), 0, total);
}

PlainBuffers::PlainBuffers(std::size_t count, std::size_t bytes)
    : blocks_(count, bytes), owners_(count) {
  for (std::size_t i = count; i > 0; --i) free_.push_back({static_cast<std::uint32_t>(i)});
}

Workload::Workload(const Shape& shape)
    : shape_(shape),
      frames_(std::size_t{shape.members} * shape.slots, wire::payload_offset + shape.segment_bytes),
      sums_(shape.slots, shape.segment_bytes),
      buffers_(2 * std::size_t{shape.slots} + 64, shape.segment_bytes),
      pipeline_(config(), buffers_) {
  datapath::JobSpec job;
  job.id = 1;
  job.slots = shape.slots;
  job.segment_bytes = static_cast<std::uint32_t>(shape.segment_bytes);
  std::uint64_t number = 0;
  const auto order = [&](auto what) {
    pipeline_.execute({.number = ++number, .job = 1, .what = what}, 0, sink_);
  };
  order(datapath::Install{job});
  for (unsigned m = 0; m < shape.members; ++m) {
    datapath::MemberSpec member;
    member.id = static_cast<wire::MemberId>(m);
    member.endpoint = endpoint_of(m);
    member.ingress = static_cast<datapath::PortId>(m);
    order(datapath::PutMember{member});
  }
  order(datapath::Start{round_ + 1});

  const std::uint32_t window = std::max(1u, std::min(burst, shape.slots));
  for (std::uint32_t first = 0; first < shape.slots; first += window) {
    for (unsigned m = 0; m < shape.members; ++m) {
      for (std::uint32_t s = first; s < std::min(first + window, shape.slots); ++s)
        order_.push_back({m, s});
    }
  }
  for (std::size_t n = 0; n < order_.size(); ++n) {
    const Work& work = order_[n];
    std::uint8_t* frame = frames_[n];
    const std::size_t size = wire::payload_offset + shape.segment_bytes;
    wire::write_encapsulation({endpoint_of(work.member),
                               {switch_mac, switch_ip, wire::default_udp_port},
                               static_cast<std::uint8_t>(wire::FrameRules{}.data_tos | 2)},
                              wire::header_bytes + shape.segment_bytes, frame);
    wire::write_header({.job = 1,
                        .member = static_cast<std::uint16_t>(work.member),
                        .round = round_,
                        .segment = work.slot,
                        .set = wire::contribution_set(7, 1)},
                       frame + wire::encapsulation_bytes);
    for (std::size_t i = 0; i < shape.segment_bytes / sizeof(float); ++i) {
      const float v = value(work.member, work.slot, i);
      std::memcpy(frame + wire::payload_offset + i * sizeof v, &v, sizeof v);
    }
    wire::set_udp_checksum({frame, size});
    burst_.push_back({.bytes = frame,
                      .size = static_cast<std::uint32_t>(size),
                      .port = static_cast<pipeline::PortId>(work.member),
                      .offload = {}});
  }
}

/// Whole numbers whose sums are exact in any order.
float Workload::value(unsigned member, std::uint32_t slot, std::size_t i) const {
  return static_cast<float>((member + 1) * ((slot + i) % 1000));
}

void Workload::next_round() {
  const std::uint32_t old = round_++;
  // The checksum's complement moves by the difference of the two 32-bit fields.
  const wire::PartialSum change =
      wire::PartialSum{__builtin_bswap32(round_)} + (~__builtin_bswap32(old) & 0xFFFF'FFFFu);
  for (std::size_t n = 0; n < order_.size(); ++n) {
    std::uint8_t* frame = frames_[n];
    wire::store_be32(frame + round_at, round_);
    std::uint16_t field;
    std::memcpy(&field, frame + checksum_at, sizeof field);
    const auto old_sum = static_cast<std::uint16_t>(~field);
    field = wire::checksum_field(wire::PartialSum{old_sum} + change);
    if (field == 0) field = 0xFFFF;
    std::memcpy(frame + checksum_at, &field, sizeof field);
  }
}

void Workload::run_pipeline() {
  for (std::size_t n = 0; n < burst_.size(); n += burst) {
    const std::size_t size = std::min<std::size_t>(burst, burst_.size() - n);
    pipeline_.run({burst_.data() + n, size}, 0, sink_);
  }
}

std::string Workload::check() {
  if (sink_.seen.size() != shape_.slots)
    return std::to_string(sink_.seen.size()) + " results instead of " +
           std::to_string(shape_.slots);
  const float factor = static_cast<float>(shape_.members * (shape_.members + 1)) / 2;
  std::vector<float> expected(shape_.segment_bytes / sizeof(float));
  for (const HeaderSink::Seen& seen : sink_.seen) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = factor * value(0, seen.segment, i);
    if (seen.bytes != shape_.segment_bytes ||
        std::memcmp(buffers_.data(seen.payload), expected.data(), shape_.segment_bytes) != 0)
      return "the sum of segment " + std::to_string(seen.segment) + " is wrong";
  }
  sink_.seen.clear();
  return {};
}

void Workload::run_additions() {
  const pipeline::Kernels& kernels = pipeline::best_kernels();
  const std::size_t count = shape_.segment_bytes / sizeof(float);
  for (std::size_t n = 0; n < order_.size(); ++n)
    kernels.add(sums_[order_[n].slot], frames_[n] + wire::payload_offset, count);
}

std::uint64_t Workload::run_checksums() const {
  std::uint64_t total = 0;
  for (std::size_t n = 0; n < order_.size(); ++n)
    total += wire::partial_sum({frames_[n] + wire::payload_offset, shape_.segment_bytes});
  return total;
}

}  // namespace iswitch::bench
