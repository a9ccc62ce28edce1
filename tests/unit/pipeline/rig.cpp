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

wire::Endpoint parent_endpoint() {
  return {.mac = {{2, 0, 0, 0, 9, 9}}, .ip = {0x0A4D0909}, .udp_port = 20000};
}

datapath::ParentSpec parent_spec() {
  return {.member = id_at_parent,
          .endpoint = parent_endpoint(),
          .port = parent_port,
          .shards = 3,
          .incarnation = 0xABCD'0123};
}

namespace {

FrameBytes make_frame(const wire::Header& header, const wire::Route& route,
                      const std::vector<float>& floats) {
  const std::size_t payload = floats.size() * sizeof(float);
  FrameBytes frame(wire::payload_offset + payload);
  wire::write_encapsulation(route, wire::header_bytes + payload, frame.data());
  wire::write_header(header, frame.data() + wire::encapsulation_bytes);
  if (payload != 0) std::memcpy(frame.data() + wire::payload_offset, floats.data(), payload);
  wire::set_udp_checksum(frame);
  return frame;
}

std::uint8_t data_tos(wire::Ecn ecn) {
  return static_cast<std::uint8_t>(wire::FrameRules{}.data_tos | static_cast<unsigned>(ecn));
}

std::uint16_t port_of_segment(std::uint32_t segment, std::uint16_t shards) {
  return static_cast<std::uint16_t>(wire::default_udp_port + segment % shards);
}

}  // namespace

FrameBytes make_frame(const Part& part, std::uint16_t shards) {
  const wire::Header header{.type = part.type,
                            .flags = part.flags,
                            .job = part.job,
                            .member = part.member,
                            .round = part.round,
                            .segment = part.segment,
                            .set = wire::contribution_set(part.tag, part.workers)};
  const std::uint16_t port = part.udp_port.value_or(port_of_segment(part.segment, shards));
  return make_frame(header,
                    {.from = part.source.value_or(endpoint_of(part.member)),
                     .to = {switch_mac, switch_ip, port},
                     .tos = data_tos(part.ecn)},
                    part.floats);
}

FrameBytes make_frame(const Down& down, std::uint16_t shards) {
  const wire::Header header{.type = wire::Type::result,
                            .flags = down.flags,
                            .job = down.job,
                            .member = down.workers,
                            .round = down.round,
                            .segment = down.segment,
                            .set = down.members};
  const std::uint16_t port = down.udp_port.value_or(port_of_segment(down.segment, shards));
  return make_frame(header,
                    {.from = down.source.value_or(parent_endpoint()),
                     .to = {switch_mac, switch_ip, port},
                     .tos = data_tos(down.ecn)},
                    down.floats);
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
  if (delivery.up) {
    CHECK(delivery.to == 1);
    Up up{delivery.fields, result.floats, FrameBytes(wire::payload_offset), {}};
    delivery.destinations[0].header.write(delivery.fields, up.frame.data());
    up.frame.insert(up.frame.end(), payload, payload + delivery.fields.payload_bytes);
    wire::Message message;
    CHECK(wire::parse_message(Bytes(up.frame).subspan(wire::encapsulation_bytes), message) ==
          wire::Fault::none);
    up.header = message.header;
    up_ports.push_back(delivery.destinations[0].port);
    queue(delivery, 1, result.floats);
    ups.push_back(std::move(up));
    return;
  }
  for (MemberId m = 0; m < wire::max_members; ++m) {
    if ((delivery.to >> m & 1) == 0) continue;
    FrameBytes frame(wire::payload_offset);
    delivery.destinations[m].header.write(delivery.fields, frame.data());
    frame.insert(frame.end(), payload, payload + delivery.fields.payload_bytes);
    CHECK(delivery.destinations[m].port == port_of(m));
    result.frames[m] = std::move(frame);
  }
  queue(delivery, static_cast<unsigned>(std::popcount(delivery.to)), result.floats);
  results.push_back(std::move(result));
}

void Recorder::queue(const pipeline::Delivery<BlockPool::Handle>& delivery, unsigned copies,
                     const std::vector<float>& floats) {
  if (!queueing || !delivery.payload) return;
  pool_.share(delivery.payload, copies);
  queue_.push_back({delivery.payload, copies, floats});
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
  pc.parent = config.parent;
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

void Rig::send(const Down& down) {
  run({{make_frame(down, config_.shards), down.ingress.value_or(parent_port)}});
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

void Rig::make_child(datapath::JobSpec spec, unsigned members, std::uint32_t base_round,
                     const datapath::ParentSpec& parent) {
  spec.child = true;
  REQUIRE(order(datapath::Install{spec}, spec.id).ok);
  REQUIRE(order(datapath::PutParent{parent}, spec.id).ok);
  for (unsigned m = 0; m < members; ++m) put(static_cast<MemberId>(m), spec.id);
  REQUIRE(order(datapath::Start{base_round}, spec.id).ok);
}

void Rig::put(MemberId member, JobId job, wire::MemberKind kind, std::uint16_t shards,
              std::uint32_t incarnation) {
  const datapath::MemberSpec spec{.id = member,
                                  .kind = kind,
                                  .endpoint = endpoint_of(member),
                                  .ingress = port_of(member),
                                  .shards = shards,
                                  .incarnation = incarnation};
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

std::vector<Up> Rig::take_ups() {
  std::vector<Up> taken;
  taken.swap(sink.ups);
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

std::vector<float> random_floats(std::mt19937& random) {
  if (random() % 4 == 0) return {};
  std::vector<float> floats(random() % 16 == 0 ? 1 + random() % 16 : 11);
  for (float& value : floats) {
    // Any bits at times: infinities, NaNs, subnormals; else values that round when added.
    const auto any = static_cast<std::uint32_t>(random());
    value = any % 8 == 0 ? std::bit_cast<float>(static_cast<std::uint32_t>(random()))
                         : static_cast<float>(static_cast<int>(any % 2001) - 1000) * 0.1f;
  }
  return floats;
}

std::vector<std::uint32_t> bits(const std::vector<float>& floats) {
  std::vector<std::uint32_t> values(floats.size());
  for (std::size_t i = 0; i < floats.size(); ++i)
    values[i] = std::bit_cast<std::uint32_t>(floats[i]);
  return values;
}

}  // namespace iswitch::testing
