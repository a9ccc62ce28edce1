// An engine driven by hand: each datagram it sends is taken apart, each it gets is written here.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "agent/engine/engine.h"
#include "wire/control.h"
#include "wire/header.h"

namespace iswitch::agent {

/// A datagram the engine sent.
struct SentDatagram {
  wire::Header header;
  std::vector<std::uint8_t> bytes;  ///< whole datagram
  std::vector<float> floats;        ///< payload of a contribution or a result handed back
  std::uint16_t shard = 0;
  std::uint8_t tos = 0;
  Time at = 0;

  bool is(wire::Action action) const {
    return header.type == wire::Type::request && header.flags == static_cast<std::uint8_t>(action);
  }
  bool contribution() const { return header.type == wire::Type::contribution; }
  bool handed_back() const { return header.type == wire::Type::result; }
  bool retransmitted() const { return (header.flags & wire::flag::retransmit) != 0; }
  Bytes body() const { return Bytes(bytes).subspan(wire::header_bytes); }
};

class Hand {
 public:
  explicit Hand(EngineOptions engine_options = default_options(),
                wire::ReplyBody description = default_job())
      : options(std::move(engine_options)), job(description), engine(options) {}

  static EngineOptions default_options() {
    EngineOptions options;
    options.job = 7;
    options.own_ip = {0x0A4D0001};
    options.own_port = 40001;
    options.switch_ip = {0x0A4D00FE};
    options.switch_port = 17170;
    options.incarnation = 0xABCD;
    options.start_unix_microseconds = 1'700'000'000'000'000;
    options.resume_within = 0;  // restart_test.cpp has the rest
    return options;
  }
  static wire::ReplyBody default_job() {
    wire::ReplyBody body;
    body.state = wire::JobState::running;
    body.member = 1;
    body.members_now = body.members_expected = body.threshold = 4;
    body.shards = 1;
    body.segment_bytes = 32;  // 8 floats
    body.slots = 1024;
    body.base_round = 100;
    body.history = 1;
    return body;
  }

  /// Those of an asynchronous job.
  static EngineOptions async(EngineOptions options, std::uint64_t elements) {
    options.mode = wire::Mode::async;
    options.elements = elements;
    return options;
  }
  static wire::ReplyBody async(wire::ReplyBody body, std::uint16_t history) {
    body.mode = wire::Mode::async;
    body.history = history;
    return body;
  }

  /// Everything the engine has to send now.
  std::vector<SentDatagram> sent() {
    engine.tick(now);
    std::vector<SentDatagram> all;
    std::array<Outgoing, 3> out;  // small, so that bursts are taken in pieces
    for (;;) {
      const std::size_t count = engine.transmit(out, now);
      for (std::size_t i = 0; i < count; ++i) {
        SentDatagram datagram;
        datagram.bytes.assign(out[i].head.begin(), out[i].head.begin() + out[i].head_size);
        datagram.bytes.insert(datagram.bytes.end(), out[i].payload.begin(), out[i].payload.end());
        wire::Message message;
        REQUIRE(wire::parse_message(datagram.bytes, message) == wire::Fault::none);
        datagram.header = message.header;
        datagram.shard = out[i].shard;
        datagram.tos = out[i].tos;
        datagram.at = now;
        if (datagram.header.is_data()) {
          datagram.floats.resize(message.payload.size() / sizeof(float));
          if (!message.payload.empty())
            std::memcpy(datagram.floats.data(), message.payload.data(), message.payload.size());
        } else {
          const auto& who = message.header.type == wire::Type::reply ? asking_switch() : client();
          REQUIRE(wire::tag_is_right(options.key, datagram.bytes, who.ip, who.udp_port));
        }
        all.push_back(std::move(datagram));
      }
      if (count < out.size()) break;
    }
    return all;
  }

  /// Lets time pass, calling the engine when it asks for it; gives what it sent meanwhile.
  std::vector<SentDatagram> run_until(Time end) {
    std::vector<SentDatagram> all = sent();
    int stuck = 0;
    while (engine.next_deadline() <= end) {
      const Time next = engine.next_deadline();
      stuck = next <= now ? stuck + 1 : 0;
      REQUIRE(stuck < 3);  // a deadline that does not move would be a busy loop
      now = std::max(now, next);
      for (SentDatagram& datagram : sent()) all.push_back(std::move(datagram));
    }
    now = end;
    return all;
  }
  std::vector<SentDatagram> run_for(Time time) { return run_until(now + time); }

  void receive(const std::vector<std::uint8_t>& datagram, wire::Ecn ecn = wire::Ecn::not_ect) {
    engine.receive(datagram, ecn, now);
  }
  void receive(const wire::ControlDatagram& datagram) {
    engine.receive(datagram.view(), wire::Ecn::not_ect, now);
  }

  wire::Client client() const { return {options.key, options.own_ip, options.own_port}; }
  wire::Client asking_switch() const {
    return {options.key, options.switch_ip, options.switch_port};
  }

  void reply(const SentDatagram& request, const wire::ReplyBody& body) {
    receive(wire::write_reply({.action = static_cast<wire::Action>(request.header.flags),
                               .job = options.job,
                               .member = body.member,
                               .request_id = request.header.round,
                               .nonce = request.header.set},
                              body, client()));
  }
  void reply(const SentDatagram& request, wire::Status status) {
    wire::ReplyBody body = job;
    body.status = status;
    reply(request, body);
  }
  /// A reply nobody asked for.
  void unasked(const wire::ReplyBody& body) {
    receive(wire::write_reply({.action = wire::Action::ping,
                               .job = options.job,
                               .member = body.member,
                               .request_id = 0,
                               .nonce = ++switch_nonce},
                              body, client()));
  }
  void unasked(wire::Status status, std::uint32_t segment, std::uint32_t round) {
    wire::ReplyBody body = job;
    body.status = status;
    body.missing = std::uint64_t{segment} << 32 | round;
    unasked(body);
  }
  wire::ControlHeader request_header(wire::Action action) {
    return {.action = action,
            .job = options.job,
            .member = job.member,
            .request_id = ++switch_request,
            .nonce = ++switch_nonce};
  }
  void request(wire::Action action) {
    receive(wire::write_plain_request(request_header(action), asking_switch()));
  }
  void request_reset(std::uint32_t base_round) {
    receive(wire::write_reset(request_header(wire::Action::reset), base_round, asking_switch()));
  }
  void request_help(std::uint32_t segment, std::uint32_t round) {
    receive(wire::write_slot_request(request_header(wire::Action::help), {segment, round},
                                     asking_switch()));
  }

  std::vector<std::uint8_t> result_bytes(std::uint32_t segment, std::uint32_t round,
                                         const std::vector<float>& floats,
                                         std::uint16_t workers = 4, std::uint8_t flags = 0,
                                         wire::MemberMask members = 0xF) const {
    wire::Header header;
    header.type = wire::Type::result;
    header.flags = flags;
    header.job = options.job;
    header.member = workers;
    header.round = round;
    header.segment = segment;
    header.set = members;
    std::vector<std::uint8_t> bytes(wire::header_bytes + floats.size() * sizeof(float));
    wire::write_header(header, bytes.data());
    if (!floats.empty())
      std::memcpy(bytes.data() + wire::header_bytes, floats.data(), floats.size() * sizeof(float));
    return bytes;
  }
  void result(std::uint32_t segment, std::uint32_t round, const std::vector<float>& floats,
              std::uint16_t workers = 4, std::uint8_t flags = 0, wire::Ecn ecn = wire::Ecn::ect0) {
    receive(result_bytes(segment, round, floats, workers, flags), ecn);
  }
  /// The result of a contribution: its floats times `factor`.
  void answer(const SentDatagram& contribution, float factor = 4.0F) {
    std::vector<float> floats = contribution.floats;
    for (float& value : floats) value *= factor;
    result(contribution.header.segment, contribution.header.round, floats);
  }

  /// Joins; the engine runs afterwards.
  void join() {
    engine.join(now, now + 10 * second);
    const auto requests = sent();
    REQUIRE(requests.size() == 1);
    REQUIRE(requests[0].is(wire::Action::join));
    reply(requests[0], job);
    REQUIRE(engine.state() == EngineState::running);
  }

  /// Joins a job that forms, and runs a moment later: nothing can have happened in it.
  void join_forming() {
    engine.join(now, now + 10 * second);
    wire::ReplyBody forming = job;
    forming.state = wire::JobState::forming;
    reply(sent().at(0), forming);
    std::vector<SentDatagram> polls;
    for (const SentDatagram& datagram : run_for(second))
      if (datagram.is(wire::Action::join)) polls.push_back(datagram);
    REQUIRE_FALSE(polls.empty());
    reply(polls.back(), job);
    REQUIRE(engine.state() == EngineState::running);
    REQUIRE_FALSE(engine.needs_weights());
  }

  Completion completion() {
    auto completion = engine.take_completion();
    REQUIRE(completion.has_value());
    return *completion;
  }
  bool idle() { return !engine.take_completion().has_value(); }

  OperationId sum(std::span<const float> input, std::span<float> output,
                  Time timeout = 10 * second) {
    Request request;
    request.input = input;
    request.output = output;
    request.deadline = now + timeout;
    return engine.submit(request, now);
  }
  OperationId barrier(Time timeout = 10 * second) {
    Request request;
    request.kind = wire::OperationKind::barrier;
    request.deadline = now + timeout;
    return engine.submit(request, now);
  }

  EngineOptions options;
  wire::ReplyBody job;
  Engine engine;
  Time now = 0;
  std::uint64_t switch_nonce = 5'000'000;
  std::uint32_t switch_request = 0;
};

inline std::vector<SentDatagram> contributions(const std::vector<SentDatagram>& all) {
  std::vector<SentDatagram> some;
  for (const SentDatagram& datagram : all)
    if (datagram.contribution()) some.push_back(datagram);
  return some;
}
inline std::vector<SentDatagram> handed_back(const std::vector<SentDatagram>& all) {
  std::vector<SentDatagram> some;
  for (const SentDatagram& datagram : all)
    if (datagram.handed_back()) some.push_back(datagram);
  return some;
}
inline std::vector<SentDatagram> requests(const std::vector<SentDatagram>& all,
                                          wire::Action action) {
  std::vector<SentDatagram> some;
  for (const SentDatagram& datagram : all)
    if (datagram.is(action)) some.push_back(datagram);
  return some;
}
inline std::vector<SentDatagram> replies(const std::vector<SentDatagram>& all) {
  std::vector<SentDatagram> some;
  for (const SentDatagram& datagram : all)
    if (datagram.header.type == wire::Type::reply) some.push_back(datagram);
  return some;
}
inline std::vector<float> counted(std::size_t size, float first = 1) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = first + static_cast<float>(i % 1000);
  return values;
}

}  // namespace iswitch::agent
