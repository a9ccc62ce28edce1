#include "tests/unit/control/parent.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace control_test {

control::ParentConfig parent_config() {
  control::ParentConfig config;
  config.ip = parent_ip;
  config.port = parent_port;
  return config;
}

Parent::Parent(Bench& bench) : bench_(bench) {
  endpoint = {{{2, 0, 0, 0, 0, 0xFD}}, parent_ip, 17170};
  terms.slots = 64;
  terms.segment_bytes = 1440;
  terms.shards = 2;
  terms.history = 1;
}

void Parent::show_address() {
  datapath::Notice notice;
  notice.kind = datapath::Notice::Kind::parent_address;
  notice.ingress = ingress;
  notice.source = {endpoint.mac, endpoint.ip, 0};
  bench_.control.on_notice(notice, bench_.now, bench_.effects);
  bench_.settle();
}

std::vector<Sent> Parent::got(std::size_t from) const {
  std::vector<Sent> found;
  for (std::size_t i = from; i < bench_.sent.size(); ++i)
    if (bench_.sent[i].to.ip == parent_ip) found.push_back(bench_.sent[i]);
  return found;
}

std::vector<Sent> Parent::got(Action action, std::size_t from) const {
  auto found = got(from);
  std::erase_if(found, [action](const Sent& one) { return one.is_reply || one.action != action; });
  return found;
}

void Parent::pump() {
  while (answered_ < bench_.sent.size()) {
    const Sent next = bench_.sent[answered_++];
    if (next.to.ip == parent_ip && !next.is_reply && answers) answer(next);
  }
}

void Parent::pass(Time time, Time step) {
  const Time end = bench_.now + time;
  pump();
  while (bench_.now < end) {
    bench_.at(std::min(end, bench_.now + step));
    pump();
  }
}

wire::ReplyBody Parent::describe() const {
  wire::ReplyBody body = terms;
  body.state = state;
  body.base_round = base;
  body.members_now = row ? 2 : 1;
  body.members_expected = 2;
  body.threshold = body.members_now;
  body.member = row ? row->id : wire::no_member;
  return body;
}

void Parent::answer(const Sent& request) {
  CHECK(request.to == endpoint);
  CHECK(request.port == parent_port);
  if (!knows_job) return reply(request, Status::no_such_job, {});
  Status status = Status::ok;
  if (request.action != Action::ping && request.action != Action::help) {
    if (request.nonce < last_nonce_) return reply(request, Status::replayed_nonce);
    if (request.nonce == last_nonce_ && !statuses.count(request.action))  // not done again
      return reply(request,
                   row || request.action == Action::leave ? Status::ok : Status::not_a_member);
    last_nonce_ = request.nonce;
  }
  if (request.action == Action::join) {
    std::uint32_t incarnation = 0;
    for (int i = 12; i < 16; ++i)
      incarnation = incarnation << 8 | request.body.at(static_cast<std::size_t>(i));
    const auto forced = statuses.find(Action::join);
    if (forced != statuses.end()) return reply(request, forced->second);
    if (!row || row->incarnation != incarnation) {
      ++joins;
      // A Join that adds a member to a running synchronous job resets it.
      if (state != JobState::forming && terms.mode == wire::Mode::sync && joins > 1) base += 2;
      row = Row{next_id, incarnation};
    }
    return reply(request, Status::ok);
  }
  if (!row || row->id != request.member) return reply(request, Status::not_a_member);
  if (request.action == Action::reset) {
    ++resets;
    base += 10;
  }
  if (request.action == Action::halt) state = JobState::halted;
  if (request.action == Action::resume) state = JobState::running;
  if (request.action == Action::leave) {
    ++leaves;
    row.reset();
  }
  const auto forced = statuses.find(request.action);
  if (forced != statuses.end()) status = forced->second;
  reply(request, status);
}

void Parent::reply(const Sent& request, Status status, const wire::ReplyBody& body) {
  wire::ReplyBody said = body;
  said.status = status;
  const wire::ControlHeader header{request.action, request.job, said.member, request.request_id,
                                   request.nonce};
  deliver(wire::write_reply(header, said,
                            {key, switch_address().rules.ip, switch_address().rules.udp_port}));
}

void Parent::deliver(const wire::ControlDatagram& datagram) {
  if (carry) return carry(datagram);
  Client as;
  as.endpoint = endpoint;
  as.ingress = ingress;
  bench_.deliver(as, datagram);
}

wire::ControlHeader Parent::next_header(Action action) {
  return {action, 1, row ? row->id : MemberId{0}, ++request_id_, ++nonce_};
}

std::optional<Sent> Parent::deliver_order(const wire::ControlHeader& header,
                                          const wire::ControlDatagram& datagram) {
  const std::size_t before = bench_.sent.size();
  deliver(datagram);
  for (const Sent& one : got(before))
    if (one.is_reply && one.action == header.action && one.request_id == header.request_id &&
        one.nonce == header.nonce)
      return one;
  return std::nullopt;
}

std::optional<Sent> Parent::order(Action action) {
  if (action == Action::halt) state = JobState::halted;
  if (action == Action::resume) state = JobState::running;
  const auto header = next_header(action);
  return deliver_order(header, wire::write_plain_request(header, client()));
}

std::optional<Sent> Parent::order_reset(std::uint32_t base_round) {
  base = base_round;
  const auto header = next_header(Action::reset);
  return deliver_order(header, wire::write_reset(header, base_round, client()));
}

std::optional<Sent> Parent::order_help(std::uint32_t segment, std::uint32_t round) {
  const auto header = next_header(Action::help);
  return deliver_order(header, wire::write_slot_request(header, {segment, round}, client()));
}

wire::ControlDatagram Parent::unasked(Status status, std::uint64_t missing) {
  wire::ReplyBody body = describe();
  body.status = status;
  body.missing = missing;
  const auto datagram =
      wire::write_reply({Action::ping, 1, body.member, 0, ++nonce_}, body,
                        {key, switch_address().rules.ip, switch_address().rules.udp_port});
  deliver(datagram);
  return datagram;
}

ChildRig::ChildRig(const JobConfig& config, std::uint16_t shards)
    : bench({config}, parent_config(), shards), parent(bench) {
  parent.terms.mode = config.mode;
  parent.key = config.key;
}

void ChildRig::members_come_back() {
  CHECK(bench.view().members.empty());
  for (const Client& member : members) {
    const auto told = bench.to(member);
    CHECK(std::any_of(told.begin(), told.end(), [](const Sent& one) {
      return one.is_reply && one.request_id == 0 && one.status() == Status::not_a_member;
    }));
  }
  for (Client& member : members) {
    wire::JoinBody body = join_body(member, member.id);
    body.mode = bench.view().config.mode;
    const auto reply = bench.join(member, body);
    REQUIRE(reply);
    CHECK(reply->status() == Status::ok);
  }
  parent.pass(500 * millisecond);
}

void ChildRig::members_join() {
  const auto config = bench.view().config;
  for (unsigned i = 0; i < config.members; ++i) {
    members.push_back(client(i));
    members.back().key = parent.key;
    wire::JoinBody body = join_body(members.back(), static_cast<MemberId>(i));
    body.mode = config.mode;
    const auto reply = bench.join(members.back(), body);
    REQUIRE(reply);
    REQUIRE(reply->status() == Status::ok);
  }
}

void ChildRig::run() {
  parent.show_address();
  members_join();
  parent.pass(50 * millisecond);
  REQUIRE(bench.view().state == JobState::running);
}

}  // namespace control_test
