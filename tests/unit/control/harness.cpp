#include "tests/unit/control/harness.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "wire/serial.h"

namespace control_test {
namespace {

std::uint64_t be(const std::vector<std::uint8_t>& bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) value = value << 8 | bytes.at(at + i);
  return value;
}

wire::Mac mac_at(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  wire::Mac mac;
  for (std::size_t i = 0; i < 6; ++i) mac.bytes.at(i) = bytes.at(at + i);
  return mac;
}

/// 16-bit words from `first`, as the Internet checksum adds them; 0xFFFF where a checksum is right.
std::uint32_t ones_sum(const std::vector<std::uint8_t>& bytes, std::size_t first, std::size_t end,
                       std::uint32_t sum = 0) {
  for (std::size_t i = first; i < end; i += 2)
    sum += static_cast<std::uint32_t>(bytes[i] << 8 | (i + 1 < end ? bytes[i + 1] : 0));
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum;
}

}  // namespace

datapath::SwitchAddress switch_address() {
  datapath::SwitchAddress address;
  address.mac = {{2, 0, 0, 0, 0, 0xFE}};
  address.rules.ip = {0x0A4D00FE};
  address.rules.ports = 2;
  return address;
}

JobConfig job_config(wire::JobId id, std::uint16_t members) {
  JobConfig config;
  config.id = id;
  config.members = members;
  config.slots = 64;
  return config;
}

// ---- what comes out

std::string frame_fault(const std::vector<std::uint8_t>& f) {
  if (f.size() < 64 + 16) return "too short";
  const auto own = switch_address();
  if (mac_at(f, 6) != own.mac) return "source MAC";
  if (be(f, 12, 2) != 0x0800 || f[14] != 0x45) return "not plain IPv4";
  if (f[15] != 0xBC) return "ToS is not control, Not-ECT";
  if (be(f, 16, 2) != f.size() - 14) return "IPv4 total length";
  if (be(f, 18, 2) != 0 || be(f, 20, 2) != 0x4000 || f[22] != 64 || f[23] != 17)
    return "identification, DF, TTL or protocol";
  if (ones_sum(f, 14, 34) != 0xFFFF) return "IPv4 checksum";
  if (be(f, 26, 4) != own.rules.ip.value || be(f, 34, 2) != 17170) return "source IP or port";
  if (be(f, 38, 2) != f.size() - 34) return "UDP length";
  if (be(f, 40, 2) == 0) return "no UDP checksum";
  const auto length = static_cast<std::uint32_t>(f.size() - 34);
  if (ones_sum(f, 26, f.size(), 17 + length) != 0xFFFF) return "UDP checksum";
  if (f[42] != 0x12 && f[42] != 0x13) return "version or type";
  if (be(f, 52, 4) != 0) return "segment field";
  if (f[42] == 0x13 && f.size() != 64 + 40 + 16) return "reply length";
  if (f[42] == 0x13 && (f[64 + 5] != 0 || be(f, 64 + 30, 2) != 0)) return "reserved bytes";
  return {};
}

Sent take_apart(const control::OutFrame& frame) {
  const auto& f = frame.bytes;
  const std::string fault = frame_fault(f);
  INFO("frame fault: " << fault);
  REQUIRE(fault.empty());
  Sent sent;
  sent.port = frame.port;
  sent.to = {mac_at(f, 0),
             {static_cast<std::uint32_t>(be(f, 30, 4))},
             static_cast<std::uint16_t>(be(f, 36, 2))};
  sent.is_reply = f[42] == 0x13;
  sent.action = static_cast<Action>(f[43]);
  sent.job = static_cast<wire::JobId>(be(f, 44, 2));
  sent.member = static_cast<MemberId>(be(f, 46, 2));
  sent.request_id = static_cast<std::uint32_t>(be(f, 48, 4));
  sent.nonce = be(f, 56, 8);
  sent.datagram.assign(f.begin() + 42, f.end());
  sent.body.assign(f.begin() + 64, f.end() - 16);
  sent.tag.assign(f.end() - 16, f.end());
  return sent;
}

Status Sent::status() const { return static_cast<Status>(be(body, 0, 2)); }
JobState Sent::state() const { return static_cast<JobState>(body.at(2)); }
std::uint16_t Sent::body_member() const { return static_cast<std::uint16_t>(be(body, 6, 2)); }
std::uint16_t Sent::members_now() const { return static_cast<std::uint16_t>(be(body, 8, 2)); }
std::uint16_t Sent::members_expected() const { return static_cast<std::uint16_t>(be(body, 10, 2)); }
std::uint16_t Sent::threshold() const { return static_cast<std::uint16_t>(be(body, 12, 2)); }
std::uint16_t Sent::shards() const { return static_cast<std::uint16_t>(be(body, 14, 2)); }
std::uint32_t Sent::segment_bytes() const { return static_cast<std::uint32_t>(be(body, 16, 4)); }
std::uint32_t Sent::slots() const { return static_cast<std::uint32_t>(be(body, 20, 4)); }
std::uint32_t Sent::base_round() const { return static_cast<std::uint32_t>(be(body, 24, 4)); }
std::uint16_t Sent::history() const { return static_cast<std::uint16_t>(be(body, 28, 2)); }
std::uint64_t Sent::missing() const { return be(body, 32, 8); }
std::uint32_t Sent::reset_base() const { return static_cast<std::uint32_t>(be(body, 0, 4)); }
std::uint32_t Sent::slot_segment() const { return static_cast<std::uint32_t>(be(body, 0, 4)); }
std::uint32_t Sent::slot_round() const { return static_cast<std::uint32_t>(be(body, 4, 4)); }

// ---- the datapath

void FakeDatapath::take(const datapath::Order& order) {
  REQUIRE(order.number == log.size() + 1);
  log.push_back(order);
  for (std::uint16_t shard = 0; shard < shards_; ++shard) queues_[shard].push_back(order);
}

bool FakeDatapath::idle() const {
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const auto& queue) { return queue.second.empty(); });
}

std::optional<datapath::Answer> FakeDatapath::execute(std::uint16_t shard) {
  auto& queue = queues_[shard];
  if (queue.empty()) return std::nullopt;
  const datapath::Order order = queue.front();
  queue.pop_front();
  return carry_out(order, shard);
}

datapath::Answer FakeDatapath::carry_out(const datapath::Order& order, std::uint16_t number) {
  datapath::Answer answer;
  answer.number = order.number;
  answer.shard = number;
  Shard& shard = state_[{number, order.job}];
  shard.executed = order.number;
  if (std::holds_alternative<datapath::Install>(order.what)) {
    answer.ok = memory;
    shard = Shard{};
    shard.installed = memory;
    shard.spec = std::get<datapath::Install>(order.what).job;
    return answer;
  }
  if (!shard.installed) {
    answer.ok = false;
    return answer;
  }
  const auto find_slot = [&](std::uint32_t segment, std::uint32_t round) {
    if (segment % shards_ != number) return;
    const auto found = slots.find({segment, round});
    answer.slot = found == slots.end() ? datapath::SlotState::none : found->second;
    const auto absent = missing.find({segment, round});
    if (absent != missing.end()) answer.missing = absent->second;
  };
  if (std::holds_alternative<datapath::Remove>(order.what)) {
    shard = Shard{};
  } else if (std::holds_alternative<datapath::Stop>(order.what)) {
    shard.running = false;
    ++shard.stops;
    const auto seen = highest.find(number);
    answer.highest_round = shard.base - 1;
    if (seen != highest.end() && wire::serial_newer(seen->second, answer.highest_round))
      answer.highest_round = seen->second;
  } else if (const auto* start = std::get_if<datapath::Start>(&order.what)) {
    REQUIRE((!shard.spec.child || shard.parent));
    shard.running = true;
    if (start_ends_halt) shard.halted = false;
    shard.base = start->base_round;
    shard.started_at = order.number;
    shard.started_bases.insert(start->base_round);
  } else if (const auto* halt = std::get_if<datapath::SetHalted>(&order.what)) {
    shard.halted = halt->halted;
  } else if (const auto* put = std::get_if<datapath::PutMember>(&order.what)) {
    const auto before = shard.members.find(put->member.id);
    if (before == shard.members.end() || before->second.incarnation != put->member.incarnation)
      ++shard.refills[put->member.id];
    shard.members[put->member.id] = put->member;
    shard.put_at[put->member.id] = order.number;
  } else if (const auto* drop = std::get_if<datapath::DropMember>(&order.what)) {
    shard.members.erase(drop->member);
  } else if (const auto* threshold = std::get_if<datapath::SetThreshold>(&order.what)) {
    shard.threshold = threshold->threshold;
  } else if (const auto* force = std::get_if<datapath::Force>(&order.what)) {
    find_slot(force->segment, force->round);
  } else if (const auto* replay = std::get_if<datapath::Replay>(&order.what)) {
    find_slot(replay->segment, replay->round);
  } else if (const auto* up = std::get_if<datapath::SendUp>(&order.what)) {
    find_slot(up->segment, up->round);
  } else if (const auto* parent = std::get_if<datapath::PutParent>(&order.what)) {
    // Another place only while nothing of the last one is in the slots.
    const bool moves = !shard.parent || shard.parent->member != parent->parent.member ||
                       shard.parent->incarnation != parent->parent.incarnation;
    REQUIRE(shard.spec.child);
    REQUIRE_FALSE((moves && shard.running));
    shard.parent = parent->parent;
  } else if (const auto* list = std::get_if<datapath::ListSlots>(&order.what)) {
    for (const auto& slot : open)
      if (slot.segment % shards_ == number && answer.open.size() < list->limit)
        answer.open.push_back(slot);
  }
  return answer;
}

// ---- clients

wire::ControlHeader Client::next_header(Action action) {
  return {action, job, action == Action::join ? wire::no_member : id, ++request_id, ++nonce};
}

Client client(unsigned n, wire::JobId job) {
  Client made;
  made.endpoint.mac = {{2, 0, 0, 0, 1, static_cast<std::uint8_t>(n)}};
  made.endpoint.ip = {0x0A4D0001 + n};
  made.endpoint.udp_port = static_cast<std::uint16_t>(40001 + n);
  made.ingress = static_cast<datapath::PortId>(n % 4);
  made.job = job;
  made.incarnation = 100 + n;
  return made;
}

wire::JoinBody join_body(const Client& client, MemberId wanted) {
  wire::JoinBody body;
  body.wanted_member = wanted;
  body.max_segment_bytes = 1440;
  body.incarnation = client.incarnation;
  return body;
}

datapath::ControlFrame frame_of(const Client& from, const wire::ControlDatagram& datagram) {
  const auto own = switch_address();
  datapath::ControlFrame frame;
  frame.ingress = from.ingress;
  frame.size = static_cast<std::uint16_t>(wire::encapsulation_bytes + datagram.size);
  const wire::Route route{from.endpoint, {own.mac, own.rules.ip, own.rules.udp_port}, 0xBC};
  wire::write_encapsulation(route, datagram.size, frame.bytes.data());
  std::copy_n(datagram.bytes.begin(), datagram.size,
              frame.bytes.begin() + wire::encapsulation_bytes);
  wire::set_udp_checksum({frame.bytes.data(), frame.size});
  return frame;
}

// ---- the bench

control::SwitchConfig switch_config(std::uint16_t shards) {
  control::SwitchConfig config;
  config.address = switch_address();
  config.shards = shards;
  config.start_unix_microseconds = start_unix_seconds * 1'000'000;
  config.start_time = start_time;
  return config;
}

namespace {

control::SwitchConfig child_config(std::uint16_t shards, const control::ParentConfig& parent) {
  control::SwitchConfig config = switch_config(shards);
  config.parent = parent;
  config.incarnation = 0xABCD0000;
  return config;
}

bool is_arp(const control::OutFrame& frame) {
  return frame.bytes.size() >= 14 && frame.bytes[12] == 0x08 && frame.bytes[13] == 0x06;
}

}  // namespace

Bench::Bench(const std::vector<JobConfig>& jobs, std::uint16_t shards,
             bool answering_from_the_start)
    : datapath(shards),
      control(switch_config(shards), jobs, start_time, effects),
      answering(answering_from_the_start) {
  settle();
}

Bench::Bench(const std::vector<JobConfig>& jobs, const control::ParentConfig& parent,
             std::uint16_t shards)
    : datapath(shards),
      control(child_config(shards, parent), jobs, start_time, effects),
      answering(true) {
  settle();
}

void Bench::collect() {
  // Frames first: what they say must be true before the orders made with them are carried out.
  const control::Effects made = std::exchange(effects, {});
  for (const auto& frame : made.frames) {
    if (is_arp(frame)) {
      arps.push_back(frame);
      continue;
    }
    sent.push_back(take_apart(frame));
    if (on_sent) on_sent(sent.back());
  }
  for (const auto& order : made.orders) datapath.take(order);
}

void Bench::settle() {
  collect();
  if (answering) answer_all();
}

bool Bench::answer_one(std::uint16_t shard) {
  const auto answer = datapath.execute(shard);
  if (!answer) return false;
  control.on_answer(*answer, now, effects);
  collect();
  return true;
}

void Bench::answer_all() {
  while (!datapath.idle())
    for (std::uint16_t shard = 0; shard < datapath.shards(); ++shard) answer_one(shard);
}

void Bench::at(Time when) {
  now = when;
  control.tick(now, effects);
  settle();
}

void Bench::deliver(const Client& from, const wire::ControlDatagram& datagram) {
  control.on_frame(frame_of(from, datagram), now, effects);
  settle();
}

std::optional<Sent> Bench::reply_to(const Client& from, const wire::ControlHeader& header) const {
  const auto found = std::find_if(sent.rbegin(), sent.rend(), [&](const Sent& one) {
    return one.is_reply && one.to.ip == from.endpoint.ip &&
           one.to.udp_port == from.endpoint.udp_port && one.port == from.ingress &&
           one.action == header.action && one.request_id == header.request_id &&
           one.nonce == header.nonce && one.job == header.job;
  });
  return found == sent.rend() ? std::nullopt : std::optional<Sent>{*found};
}

std::optional<Sent> Bench::join(Client& from, MemberId wanted) {
  return join(from, join_body(from, wanted));
}

std::optional<Sent> Bench::join(Client& from, const wire::JoinBody& body) {
  const auto header = from.next_header(Action::join);
  deliver(from, wire::write_join(header, body, from.as_client()));
  auto reply = reply_to(from, header);
  if (reply && reply->status() == Status::ok) from.id = reply->body_member();
  return reply;
}

std::optional<Sent> Bench::plain(Client& from, Action action) {
  const auto header = from.next_header(action);
  deliver(from, wire::write_plain_request(header, from.as_client()));
  return reply_to(from, header);
}

std::optional<Sent> Bench::reset(Client& from, std::uint32_t base) {
  const auto header = from.next_header(Action::reset);
  deliver(from, wire::write_reset(header, base, from.as_client()));
  return reply_to(from, header);
}

std::optional<Sent> Bench::set_threshold(Client& from, std::uint16_t threshold) {
  const auto header = from.next_header(Action::set_threshold);
  deliver(from, wire::write_set_threshold(header, threshold, from.as_client()));
  return reply_to(from, header);
}

std::optional<Sent> Bench::force(Client& from, std::uint32_t segment, std::uint32_t round) {
  const auto header = from.next_header(Action::force_broadcast);
  deliver(from, wire::write_slot_request(header, {segment, round}, from.as_client()));
  return reply_to(from, header);
}

std::optional<Sent> Bench::help(Client& from, std::uint32_t segment, std::uint32_t round) {
  const auto header = from.next_header(Action::help);
  deliver(from, wire::write_slot_request(header, {segment, round}, from.as_client()));
  return reply_to(from, header);
}

void Bench::member_reply(const Client& from, const Sent& request, Status status) {
  wire::ReplyBody body;
  body.status = status;
  body.member = from.id;
  const wire::ControlHeader header{request.action, request.job, from.id, request.request_id,
                                   request.nonce};
  // The requester was the switch.
  deliver(from, wire::write_reply(
                    header, body,
                    {from.key, switch_address().rules.ip, switch_address().rules.udp_port}));
}

void Bench::notice(datapath::Notice::Kind kind, const Client& about, std::uint32_t segment,
                   std::uint32_t round, datapath::MemberMask others) {
  datapath::Notice notice;
  notice.kind = kind;
  notice.job = about.job;
  notice.member = about.id;
  notice.ingress = about.ingress;
  notice.source = about.endpoint;
  notice.segment = segment;
  notice.round = round;
  notice.others = others;
  control.on_notice(notice, now, effects);
  settle();
}

std::vector<Client> Bench::joined(unsigned n, wire::JobId job,
                                  const std::vector<std::uint8_t>& key) {
  std::vector<Client> clients;
  for (unsigned i = 0; i < n; ++i) {
    clients.push_back(client(i, job));
    clients.back().key = key;
    const auto reply = join(clients.back(), static_cast<MemberId>(i));
    REQUIRE(reply);
    REQUIRE(reply->status() == Status::ok);
    REQUIRE(clients.back().id == i);
  }
  REQUIRE(view(job).state == JobState::running);
  return clients;
}

control::JobView Bench::view(wire::JobId job) const {
  for (const auto& view : control.jobs())
    if (view.config.id == job) return view;
  FAIL("no job " << job);
  return {};
}

std::vector<Sent> Bench::to(const Client& client, std::size_t from) const {
  std::vector<Sent> found;
  for (std::size_t i = from; i < sent.size(); ++i)
    if (sent[i].to.ip == client.endpoint.ip && sent[i].to.udp_port == client.endpoint.udp_port &&
        sent[i].job == client.job)
      found.push_back(sent[i]);
  return found;
}

std::vector<Sent> Bench::requests_to(const Client& client, std::size_t from) const {
  auto found = to(client, from);
  std::erase_if(found, [](const Sent& one) { return one.is_reply; });
  return found;
}

}  // namespace control_test
