#include "tests/unit/pipeline/rig.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>

namespace iswitch::testing {

wire::Endpoint endpoint_of(MemberId member) {
  const auto low = static_cast<std::uint8_t>(member);
  return {.mac = {{2, 0, 0, 0, 1, low}},
          .ip = {0x0A4D0001u + member},
          .udp_port = static_cast<std::uint16_t>(40000 + member)};
}

FrameBytes make_frame(const Part& part, std::uint16_t shards) {
  const wire::Header header{.type = part.type,
                            .flags = part.flags,
                            .job = part.job,
                            .member = part.member,
                            .round = part.round,
                            .segment = part.segment,
                            .set = wire::contribution_set(part.tag, part.workers)};
  const std::size_t payload = part.floats.size() * sizeof(float);
  const auto own_port = static_cast<std::uint16_t>(wire::default_udp_port + part.segment % shards);
  const wire::Route route{.from = part.source.value_or(endpoint_of(part.member)),
                          .to = {switch_mac, switch_ip, part.udp_port.value_or(own_port)},
                          .tos = static_cast<std::uint8_t>(wire::FrameRules{}.data_tos |
                                                           static_cast<unsigned>(part.ecn))};
  FrameBytes frame(wire::payload_offset + payload);
  wire::write_encapsulation(route, wire::header_bytes + payload, frame.data());
  wire::write_header(header, frame.data() + wire::encapsulation_bytes);
  if (payload != 0) std::memcpy(frame.data() + wire::payload_offset, part.floats.data(), payload);
  wire::set_udp_checksum(frame);
  return frame;
}

void Recorder::result(const pipeline::Delivery<BlockPool::Handle>& delivery) {
  Result result;
  result.fields = delivery.fields;
  result.to = delivery.to;
  if (delivery.payload) {
    result.floats.resize(delivery.fields.payload_bytes / sizeof(float));
    std::memcpy(result.floats.data(), pool_.data(delivery.payload), delivery.fields.payload_bytes);
  }
  CHECK(static_cast<bool>(delivery.payload) == (delivery.fields.payload_bytes != 0));
  const auto* payload = reinterpret_cast<const std::uint8_t*>(result.floats.data());
  for (MemberId m = 0; m < wire::max_members; ++m) {
    if ((delivery.to >> m & 1) == 0) continue;
    FrameBytes frame(wire::payload_offset);
    delivery.destinations[m].header.write(delivery.fields, frame.data());
    frame.insert(frame.end(), payload, payload + delivery.fields.payload_bytes);
    CHECK(delivery.destinations[m].port == port_of(m));
    result.frames[m] = std::move(frame);
  }
  if (queueing && delivery.payload) {
    const auto copies = static_cast<unsigned>(std::popcount(delivery.to));
    pool_.share(delivery.payload, copies);
    queue_.push_back({delivery.payload, copies, result.floats});
  }
  results.push_back(std::move(result));
}

void Recorder::drain() {
  for (const Queued& queued : queue_) {
    const bool same = std::memcmp(pool_.data(queued.payload), queued.floats.data(),
                                  queued.floats.size() * sizeof(float)) == 0;
    CHECK(same);
    for (unsigned i = 0; i < queued.copies; ++i) pool_.release(queued.payload);
  }
  queue_.clear();
}

Rig::Rig(const RigConfig& config) : pool(config.buffers), sink(pool), config_(config) {
  pipeline::PipelineConfig pc;
  pc.address.mac = switch_mac;
  pc.address.rules.ip = switch_ip;
  pc.address.rules.ports = config.shards;
  pc.shard = config.shard;
  pc.ports = ~PortMask{0};
  pipeline_.emplace(pc, pool);
}

Rig::~Rig() {
  if (pipeline_.has_value()) CHECK(counters_add_up().empty());
  pipeline_.reset();
  sink.drain();
  CHECK(pool.in_use() == 0);
  CHECK(pool.complaints() == std::vector<std::string>{});
}

void Rig::run(const std::vector<Sent>& frames) {
  // Each frame in memory of its own size and odd alignment: reading past it is seen by ASan.
  std::vector<std::unique_ptr<std::uint8_t[]>> memory;
  std::vector<pipeline::Frame> burst;
  for (const auto& [bytes, port] : frames) {
    memory.push_back(std::make_unique<std::uint8_t[]>(bytes.size() + 1));
    std::memcpy(memory.back().get() + 1, bytes.data(), bytes.size());
    burst.push_back({.bytes = memory.back().get() + 1,
                     .size = static_cast<std::uint32_t>(bytes.size()),
                     .port = port,
                     .offload = {}});
  }
  pipeline_->run(burst, now, sink);
  const std::string trouble = counters_add_up();
  CHECK(trouble.empty());
}

void Rig::send(const std::vector<Part>& parts) {
  std::vector<Sent> frames;
  frames.reserve(parts.size());
  for (const Part& part : parts) {
    frames.emplace_back(make_frame(part, config_.shards),
                        part.ingress.value_or(port_of(part.member)));
  }
  run(frames);
}

datapath::Answer Rig::execute(const datapath::Order& order) {
  if (std::holds_alternative<datapath::Remove>(order.what))
    removed_ += job_count(JobCounter::contributions, order.job);
  datapath::Answer answer = pipeline_->execute(order, now, sink);
  CHECK(answer.number == order.number);
  CHECK(answer.shard == config_.shard);
  return answer;
}

void Rig::make_job(datapath::JobSpec spec, unsigned members, std::uint32_t base_round) {
  REQUIRE(order(datapath::Install{spec}, spec.id).ok);
  for (unsigned m = 0; m < members; ++m) put(static_cast<MemberId>(m), spec.id);
  REQUIRE(order(datapath::Start{base_round}, spec.id).ok);
}

void Rig::put(MemberId member, JobId job, wire::MemberKind kind, std::uint16_t shards) {
  const datapath::MemberSpec spec{.id = member,
                                  .kind = kind,
                                  .endpoint = endpoint_of(member),
                                  .ingress = port_of(member),
                                  .shards = shards};
  REQUIRE(order(datapath::PutMember{spec}, job).ok);
}

std::uint64_t Rig::job_count(JobCounter counter, JobId job) const {
  std::uint64_t value = 0;
  pipeline_->job_stats().for_each([&](JobId id, const pipeline::JobStats& stats) {
    if (id == job) value = stats.get(counter);
  });
  return value;
}

Time Rig::last_heard(MemberId member, JobId job) const {
  Time value = -1;
  pipeline_->job_stats().for_each([&](JobId id, const pipeline::JobStats& stats) {
    if (id == job) value = stats.last_heard(member);
  });
  return value;
}

std::vector<Result> Rig::take_results() {
  std::vector<Result> taken;
  taken.swap(sink.results);
  return taken;
}

std::vector<Notice> Rig::take_notices() {
  std::vector<Notice> taken;
  taken.swap(sink.notices);
  return taken;
}

std::string check_partition(const pipeline::Counters& counters) {
  std::uint64_t ended = 0;
  std::string listing;
  pipeline::for_each_counter(counters, [&](const char* name, std::uint64_t value, bool terminal) {
    if (terminal) ended += value;
    if (value != 0) listing += std::string(name) + "=" + std::to_string(value) + " ";
  });
  const std::uint64_t received = counters.get(Counter::parse_received);
  if (ended == received) return {};
  return std::to_string(received) + " received, " + std::to_string(ended) + " ended: " + listing;
}

std::string Rig::counters_add_up() const {
  std::string trouble = check_partition(pipeline_->counters());
  // What the shard counts of contributions from members, the jobs count too.
  std::uint64_t in_jobs = removed_;
  pipeline_->job_stats().for_each([&](JobId, const pipeline::JobStats& stats) {
    in_jobs += stats.get(JobCounter::contributions);
  });
  std::uint64_t in_shard = 0;
  for (auto c = static_cast<std::size_t>(Counter::classify_drop_wrong_port);
       c <= static_cast<std::size_t>(Counter::aggregate_drop_no_buffer); ++c)
    in_shard += count(static_cast<Counter>(c));
  if (in_jobs != in_shard)
    trouble += std::to_string(in_shard) + " from members, " + std::to_string(in_jobs) + " in jobs";
  return trouble;
}

datapath::JobSpec small_job() {
  datapath::JobSpec spec;
  spec.id = 1;
  spec.slots = 4;
  spec.segment_bytes = 64;
  return spec;
}

std::vector<std::uint32_t> bits(const std::vector<float>& floats) {
  std::vector<std::uint32_t> values(floats.size());
  for (std::size_t i = 0; i < floats.size(); ++i)
    values[i] = std::bit_cast<std::uint32_t>(floats[i]);
  return values;
}

}  // namespace iswitch::testing
