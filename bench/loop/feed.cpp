#include "bench/loop/feed.h"

#include <rte_mempool.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "wire/bytes.h"
#include "wire/header.h"

namespace iswitch::bench {
namespace {

constexpr std::uint32_t operation_tag = 0x12345678;
constexpr std::uint64_t whole_check_interval = 256;
constexpr std::size_t udp_checksum_offset = wire::ethernet_bytes + wire::ipv4_bytes + 6;
constexpr std::size_t job_offset = wire::encapsulation_bytes + 2;
constexpr std::size_t round_offset = wire::encapsulation_bytes + 6;
constexpr std::size_t segment_offset = wire::encapsulation_bytes + 10;

struct Filling {
  const std::vector<float>& pattern;
};

void fill_buffer(rte_mempool* /*pool*/, void* opaque, void* object, unsigned index) {
  const auto& filling = *static_cast<const Filling*>(opaque);
  auto* frame = static_cast<rte_mbuf*>(object);
  auto* payload = reinterpret_cast<float*>(static_cast<std::uint8_t*>(frame->buf_addr) +
                                           RTE_PKTMBUF_HEADROOM + wire::payload_offset);
  const auto scale = static_cast<float>(1 + index % 4);
  for (std::size_t i = 0; i < filling.pattern.size(); ++i) payload[i] = filling.pattern[i] * scale;
}

}  // namespace

Feed::Feed(const FeedConfig& config)
    : config_(config),
      slots_(config.slots / shards()),
      round_(config.base_round),
      expected_(std::size_t{config.jobs} * slots_) {
  // Small integers: sums are exact whatever the order. The first is 1, which tells a buffer's
  // scale.
  pattern_.resize(config.segment_bytes / sizeof(float));
  for (std::size_t i = 0; i < pattern_.size(); ++i)
    pattern_[i] = static_cast<float>(1 + i * 7 % 13);
  for (unsigned scale = 1; scale <= scales; ++scale) {
    std::vector<float> payload(pattern_);
    for (float& value : payload) value *= static_cast<float>(scale);
    payload_sums_[scale - 1] = wire::partial_sum(
        {reinterpret_cast<const std::uint8_t*>(payload.data()), config.segment_bytes});
  }
  for (unsigned m = 0; m < config.members; ++m) {
    Template made;
    const datapath::MemberSpec spec = member(m);
    const wire::Route route{
        spec.endpoint,
        {config.address.mac, config.address.rules.ip,
         static_cast<std::uint16_t>(config.address.rules.udp_port + config.shard)},
        static_cast<std::uint8_t>(config.address.rules.data_tos |
                                  static_cast<std::uint8_t>(wire::Ecn::ect0))};
    wire::write_encapsulation(route, wire::header_bytes + config.segment_bytes, made.bytes.data());
    wire::Header header;
    header.member = static_cast<std::uint16_t>(m);
    header.set = wire::contribution_set(operation_tag, 1);
    wire::write_header(header, made.bytes.data() + wire::encapsulation_bytes);
    // The checksum of a whole frame with an empty payload says the sum of all but the payload.
    std::vector<std::uint8_t> whole(made.bytes.begin(), made.bytes.end());
    whole.resize(wire::payload_offset + config.segment_bytes);
    wire::set_udp_checksum(whole);
    std::uint16_t field;
    std::memcpy(&field, whole.data() + udp_checksum_offset, sizeof field);
    made.udp_sum = static_cast<std::uint16_t>(~field);
    templates_.push_back(made);
  }
}

datapath::MemberSpec Feed::member(unsigned index) const {
  datapath::MemberSpec spec;
  spec.id = static_cast<wire::MemberId>(index);
  spec.endpoint.mac = {{2, 0, 0, 0, 1, static_cast<std::uint8_t>(index)}};
  spec.endpoint.ip = {config_.address.rules.ip.value - 200 + index};
  spec.endpoint.udp_port = static_cast<std::uint16_t>(40000 + index);
  return spec;
}

void Feed::fill(rte_mempool* pool) {
  Filling filling{pattern_};
  rte_mempool_obj_iter(pool, fill_buffer, &filling);
}

void Feed::advance() {
  const std::uint32_t width = std::min(block, slots_ - first_);
  if (++place_ < width) return;
  place_ = 0;
  if (++member_ < config_.members) return;
  member_ = 0;
  if (++job_ < config_.jobs) return;
  job_ = 0;
  first_ += width;
  if (first_ < slots_) return;
  first_ = 0;
  ++round_;
}

void Feed::write_contribution(rte_mbuf* frame) {
  const Template& made = templates_[member_];
  const std::uint32_t slot = first_ + place_;
  const std::uint32_t segment = slot * shards() + config_.shard;
  auto* bytes = rte_pktmbuf_mtod(frame, std::uint8_t*);
  std::memcpy(bytes, made.bytes.data(), made.bytes.size());
  const auto job = static_cast<std::uint16_t>(config_.first_job + job_);
  wire::store_be16(bytes + job_offset, job);
  wire::store_be32(bytes + round_offset, round_);
  wire::store_be32(bytes + segment_offset, segment);
  float scale;
  std::memcpy(&scale, bytes + wire::payload_offset, sizeof scale);
  if (config_.udp_checksum) {
    const wire::PartialSum sum = made.udp_sum + __builtin_bswap16(job) + __builtin_bswap32(round_) +
                                 __builtin_bswap32(segment) +
                                 payload_sums_[static_cast<unsigned>(scale) - 1];
    std::uint16_t field = wire::checksum_field(sum);
    if (field == 0) field = 0xFFFF;
    std::memcpy(bytes + udp_checksum_offset, &field, sizeof field);
  }
  float& expected = expected_[std::size_t{job_} * slots_ + slot];
  expected = member_ == 0 ? scale : expected + scale;
}

void Feed::generate(rte_mbuf** burst, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    write_contribution(burst[i]);
    advance();
  }
  generated_ += count;
  if (++bursts_ % sample_interval != 0) return;
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  generated_then_.store(generated_, std::memory_order_relaxed);
  cpu_nanoseconds_.store(std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec,
                         std::memory_order_release);
}

Feed::Progress Feed::progress() const {
  return {cpu_nanoseconds_.load(std::memory_order_acquire),
          generated_then_.load(std::memory_order_relaxed)};
}

bool Feed::is_right(const rte_mbuf* frame) {
  const auto* bytes = rte_pktmbuf_mtod(frame, const std::uint8_t*);
  const std::uint32_t segment = wire::load_be32(bytes + segment_offset);
  const unsigned job = wire::load_be16(bytes + job_offset) - unsigned{config_.first_job};
  // Divisions only where there are shards: the check runs beside what is measured.
  const std::uint32_t slot = shards() == 1 ? segment : segment / shards();
  if (frame->pkt_len != wire::payload_offset + config_.segment_bytes || job >= config_.jobs ||
      segment >= config_.slots || segment - slot * shards() != config_.shard)
    return false;
  const auto* payload = frame->next == nullptr
                            ? reinterpret_cast<const float*>(bytes + wire::payload_offset)
                            : rte_pktmbuf_mtod(frame->next, const float*);
  const float scale = expected_[std::size_t{job} * slots_ + slot];
  if (results_ % whole_check_interval == 0 && !whole_is_right(frame, payload, scale)) return false;
  return payload[0] == pattern_.front() * scale &&
         payload[pattern_.size() - 1] == pattern_.back() * scale;
}

bool Feed::whole_is_right(const rte_mbuf* frame, const float* payload, float scale) {
  ++checked_whole_;
  for (std::size_t i = 0; i < pattern_.size(); ++i) {
    if (payload[i] != pattern_[i] * scale) return false;
  }
  // As the member would: checksums, lengths, type.
  std::vector<std::uint8_t> linear(frame->pkt_len);
  std::uint8_t* out = linear.data();
  for (const rte_mbuf* part = frame; part != nullptr; part = part->next) {
    std::memcpy(out, rte_pktmbuf_mtod(part, const void*), part->data_len);
    out += part->data_len;
  }
  wire::FrameRules rules = config_.address.rules;
  rules.ip = {wire::load_be32(linear.data() + 30)};
  rules.udp_port = wire::load_be16(linear.data() + 36);
  wire::Packet packet;
  const wire::ParsedFrame parsed = wire::parse_frame(rules, linear, {}, packet);
  return parsed.origin == wire::Origin::ours && parsed.fault == wire::Fault::none &&
         packet.message.header.type == wire::Type::result &&
         packet.message.header.member == config_.members;
}

void Feed::check(rte_mbuf* const* burst, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (!is_right(burst[i])) ++wrong_;
    ++results_;
  }
}

}  // namespace iswitch::bench
