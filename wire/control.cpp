#include "wire/control.h"

#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>

#include <algorithm>
#include <cstring>

#include "wire/bytes.h"

namespace iswitch::wire {
namespace {

constexpr std::array<const char*, 11> action_names = {
    "unknown", "join", "leave",  "reset", "set_threshold", "force_broadcast",
    "help",    "halt", "resume", "ping",  "rejoin"};
constexpr std::array<const char*, 12> status_names = {
    "ok",          "no such job", "not a member", "job full",         "bad tag",        "bad value",
    "unsupported", "gone",        "halted",       "parent not ready", "replayed nonce", "mismatch"};
constexpr std::array<const char*, 7> fresh_reason_names = {
    "the stream goes on",
    "somebody joined who does not know what was done so far",
    "members are of different runs of the job",
    "slots or segment size are others now",
    "members are further apart than what is kept",
    "the job went on without this member",
    "the job has been reset"};
constexpr std::array<const char*, 3> job_state_names = {"forming", "running", "halted"};

/// CRC-32C, reflected, one byte a step: twenty bytes an operation need nothing faster.
constexpr std::array<std::uint32_t, 256> crc32c_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0x82F6'3B78U : 0U);
    table[i] = value;
  }
  return table;
}();

std::uint32_t crc32c(Bytes bytes) {
  std::uint32_t crc = 0xFFFF'FFFF;
  for (const std::uint8_t byte : bytes) crc = crc >> 8 ^ crc32c_table[(crc ^ byte) & 0xFF];
  return ~crc;
}

/// Header, then `body_bytes` of body that `write_body(pointer)` fills, then the tag.
template <class WriteBody>
ControlDatagram compose(Type type, const ControlHeader& header, std::size_t body_bytes,
                        const Client& client, WriteBody write_body) {
  ControlDatagram out;
  write_header({.type = type,
                .flags = static_cast<std::uint8_t>(header.action),
                .job = header.job,
                .member = header.member,
                .round = header.request_id,
                .segment = 0,
                .set = header.nonce},
               out.bytes.data());
  write_body(out.bytes.data() + header_bytes);
  const std::size_t tagged = header_bytes + body_bytes;
  const Tag tag = control_tag(client.key, {out.bytes.data(), tagged}, client.ip, client.udp_port);
  std::copy(tag.begin(), tag.end(), out.bytes.begin() + static_cast<std::ptrdiff_t>(tagged));
  out.size = tagged + tag_bytes;
  return out;
}

void write_join_body(const JoinBody& body, std::uint8_t* p) {
  p[0] = static_cast<std::uint8_t>(body.kind);
  p[1] = static_cast<std::uint8_t>(body.data_type);
  p[2] = static_cast<std::uint8_t>(body.mode);
  store_be16(p + 4, body.wanted_member);
  store_be16(p + 6, body.shards);
  store_be32(p + 8, body.max_segment_bytes);
  store_be32(p + 12, body.incarnation);
}

constexpr std::uint64_t goes_on_bit = std::uint64_t{1} << 63;
constexpr std::uint64_t origin_bit = std::uint64_t{1} << 62;
constexpr std::uint32_t most_count = 0x7FFF'FFFF;

}  // namespace

const char* action_name(Action action) {
  const auto index = static_cast<std::size_t>(action);
  return index < action_names.size() ? action_names[index] : "unknown";
}

const char* status_name(Status status) {
  const auto index = static_cast<std::size_t>(status);
  return index < status_names.size() ? status_names[index] : "unknown";
}

const char* job_state_name(JobState state) {
  const auto index = static_cast<std::size_t>(state);
  return index < job_state_names.size() ? job_state_names[index] : "unknown";
}

std::size_t request_body_bytes(Action action) {
  switch (action) {
    case Action::join:
      return JoinBody::bytes;
    case Action::rejoin:
      return RejoinBody::bytes;
    case Action::reset:
      return 4;
    case Action::set_threshold:
      return 2;
    case Action::force_broadcast:
    case Action::help:
      return SlotBody::bytes;
    case Action::leave:
    case Action::halt:
    case Action::resume:
    case Action::ping:
      break;
  }
  return 0;
}

std::optional<JoinBody> read_join(Bytes body) {
  const std::uint8_t* p = body.data();
  if (body.size() < JoinBody::bytes || p[0] > 1 || p[1] > 3 || p[2] > 1 || p[3] != 0)
    return std::nullopt;
  JoinBody join;
  join.kind = static_cast<MemberKind>(p[0]);
  join.data_type = static_cast<DataType>(p[1]);
  join.mode = static_cast<Mode>(p[2]);
  join.wanted_member = load_be16(p + 4);
  join.shards = load_be16(p + 6);
  join.max_segment_bytes = load_be32(p + 8);
  join.incarnation = load_be32(p + 12);
  // A worker has no shards; a switch without any could not be sent a result.
  if ((join.kind == MemberKind::worker) != (join.shards == 0)) return std::nullopt;
  return join;
}

std::optional<RejoinBody> read_rejoin(Bytes body) {
  if (body.size() < RejoinBody::bytes) return std::nullopt;
  const auto join = read_join(body);
  if (!join) return std::nullopt;
  const std::uint8_t* p = body.data() + JoinBody::bytes;
  RejoinBody rejoin;
  rejoin.join = *join;
  rejoin.origin = load_be32(p);
  rejoin.newest = load_be32(p + 4);
  rejoin.slots = load_be32(p + 8);
  rejoin.segment_bytes = load_be32(p + 12);
  rejoin.position = load_be64(p + 16);
  rejoin.end = load_be64(p + 24);
  rejoin.life = load_be32(p + 32);
  const bool stated = rejoin.position != 0 || rejoin.end != 0;
  if (rejoin.end < rejoin.position || (stated && join->mode == Mode::async)) return std::nullopt;
  return rejoin;
}

const char* fresh_reason_name(Resumed::Fresh reason) {
  const auto index = static_cast<std::size_t>(reason);
  return index < fresh_reason_names.size() ? fresh_reason_names[index] : "unknown";
}

std::uint64_t encode_resumed(const Resumed& resumed) {
  if (resumed.goes_on())
    return goes_on_bit | std::uint64_t{std::min(resumed.count, most_count)} << 32 | resumed.first;
  const std::uint64_t reason = std::uint64_t{static_cast<std::uint8_t>(resumed.fresh)} << 32;
  return resumed.origin ? origin_bit | reason | *resumed.origin : reason | resumed.count;
}

Resumed decode_resumed(std::uint64_t missing) {
  const auto low = static_cast<std::uint32_t>(missing);
  const auto high = static_cast<std::uint32_t>(missing >> 32);
  if ((missing & goes_on_bit) != 0) return {Resumed::Fresh::none, low, high & most_count, {}};
  const auto reason = static_cast<std::uint8_t>(high);
  const bool listed = reason != 0 && reason < fresh_reason_names.size();
  const auto fresh = listed ? static_cast<Resumed::Fresh>(reason) : Resumed::Fresh::stranger;
  if ((missing & origin_bit) != 0) return {fresh, 0, 0, low};
  return {fresh, 0, low, {}};
}

std::uint64_t encode_life(std::uint32_t life) { return life; }

std::optional<std::uint32_t> decode_life(std::uint64_t missing) {
  if (missing == 0 || missing >> 32 != 0) return std::nullopt;
  return static_cast<std::uint32_t>(missing);
}

std::optional<ReplyBody> read_reply(Bytes body) {
  const std::uint8_t* p = body.data();
  if (body.size() < ReplyBody::bytes || p[2] > 2 || p[3] > 1 || p[4] > 3 || p[5] != 0 ||
      load_be16(p + 30) != 0)
    return std::nullopt;
  ReplyBody reply;
  reply.status = static_cast<Status>(load_be16(p));
  reply.state = static_cast<JobState>(p[2]);
  reply.mode = static_cast<Mode>(p[3]);
  reply.data_type = static_cast<DataType>(p[4]);
  reply.member = load_be16(p + 6);
  reply.members_now = load_be16(p + 8);
  reply.members_expected = load_be16(p + 10);
  reply.threshold = load_be16(p + 12);
  reply.shards = load_be16(p + 14);
  reply.segment_bytes = load_be32(p + 16);
  reply.slots = load_be32(p + 20);
  reply.base_round = load_be32(p + 24);
  reply.history = load_be16(p + 28);
  reply.missing = load_be64(p + 32);
  return reply;
}

SlotBody read_slot(Bytes body) {
  if (body.size() < SlotBody::bytes) return {};
  return {load_be32(body.data()), load_be32(body.data() + 4)};
}

std::uint32_t read_reset(Bytes body) { return body.size() < 4 ? 0 : load_be32(body.data()); }

std::uint16_t read_set_threshold(Bytes body) {
  return body.size() < 2 ? std::uint16_t{0} : load_be16(body.data());
}

Tag control_tag(Key key, Bytes header_and_body, Ipv4 client, std::uint16_t client_port) {
  Tag tag{};
  if (key.empty()) return tag;
  std::array<std::uint8_t, 6> address;
  store_be32(address.data(), client.value);
  store_be16(address.data() + 4, client_port);
  crypto_auth_hmacsha256_state state;
  std::array<std::uint8_t, crypto_auth_hmacsha256_BYTES> whole;
  crypto_auth_hmacsha256_init(&state, key.data(), key.size());
  crypto_auth_hmacsha256_update(&state, header_and_body.data(), header_and_body.size());
  crypto_auth_hmacsha256_update(&state, address.data(), address.size());
  crypto_auth_hmacsha256_final(&state, whole.data());
  sodium_memzero(&state, sizeof state);
  std::copy_n(whole.begin(), tag.size(), tag.begin());
  return tag;
}

bool tag_is_right(Key key, Bytes datagram, Ipv4 client, std::uint16_t client_port) {
  if (datagram.size() < header_bytes + tag_bytes) return false;
  const std::size_t tagged = datagram.size() - tag_bytes;
  const Tag right = control_tag(key, datagram.first(tagged), client, client_port);
  return sodium_memcmp(right.data(), datagram.data() + tagged, tag_bytes) == 0;
}

ControlDatagram write_join(const ControlHeader& header, const JoinBody& body,
                           const Client& client) {
  return compose(Type::request, header, JoinBody::bytes, client,
                 [&](std::uint8_t* p) { write_join_body(body, p); });
}

ControlDatagram write_rejoin(const ControlHeader& header, const RejoinBody& body,
                             const Client& client) {
  return compose(Type::request, header, RejoinBody::bytes, client, [&](std::uint8_t* p) {
    write_join_body(body.join, p);
    p += JoinBody::bytes;
    store_be32(p, body.origin);
    store_be32(p + 4, body.newest);
    store_be32(p + 8, body.slots);
    store_be32(p + 12, body.segment_bytes);
    store_be64(p + 16, body.position);
    store_be64(p + 24, body.end);
    store_be32(p + 32, body.life);
  });
}

ControlDatagram write_plain_request(const ControlHeader& header, const Client& client) {
  return compose(Type::request, header, 0, client, [](std::uint8_t*) {});
}

ControlDatagram write_reset(const ControlHeader& header, std::uint32_t base_round,
                            const Client& client) {
  return compose(Type::request, header, 4, client,
                 [&](std::uint8_t* p) { store_be32(p, base_round); });
}

ControlDatagram write_set_threshold(const ControlHeader& header, std::uint16_t threshold,
                                    const Client& client) {
  return compose(Type::request, header, 2, client,
                 [&](std::uint8_t* p) { store_be16(p, threshold); });
}

ControlDatagram write_slot_request(const ControlHeader& header, const SlotBody& body,
                                   const Client& client) {
  return compose(Type::request, header, SlotBody::bytes, client, [&](std::uint8_t* p) {
    store_be32(p, body.segment);
    store_be32(p + 4, body.round);
  });
}

ControlDatagram write_reply(const ControlHeader& header, const ReplyBody& body,
                            const Client& client) {
  return compose(Type::reply, header, ReplyBody::bytes, client, [&](std::uint8_t* p) {
    store_be16(p, static_cast<std::uint16_t>(body.status));
    p[2] = static_cast<std::uint8_t>(body.state);
    p[3] = static_cast<std::uint8_t>(body.mode);
    p[4] = static_cast<std::uint8_t>(body.data_type);
    store_be16(p + 6, body.member);
    store_be16(p + 8, body.members_now);
    store_be16(p + 10, body.members_expected);
    store_be16(p + 12, body.threshold);
    store_be16(p + 14, body.shards);
    store_be32(p + 16, body.segment_bytes);
    store_be32(p + 20, body.slots);
    store_be32(p + 24, body.base_round);
    store_be16(p + 28, body.history);
    store_be64(p + 32, body.missing);
  });
}

std::uint32_t operation_tag(const Operation& operation) {
  std::array<std::uint8_t, 20> bytes{};
  bytes[0] = static_cast<std::uint8_t>(operation.kind);
  bytes[1] = static_cast<std::uint8_t>(operation.data_type);
  store_be32(bytes.data() + 4, operation.root);
  store_be64(bytes.data() + 8, operation.elements);
  store_be32(bytes.data() + 16, operation.user_tag);
  return crc32c(bytes);
}

}  // namespace iswitch::wire
