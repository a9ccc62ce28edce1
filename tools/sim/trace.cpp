#include "tools/sim/trace.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "tools/sim/random.h"
#include "wire/bytes.h"
#include "wire/control.h"
#include "wire/frame.h"

namespace iswitch::sim {

const char* what_name(What what) {
  switch (what) {
    case What::arrive:
      return "arrive";
    case What::lost:
      return "lost";
    case What::overflow:
      return "overflow";
    case What::corrupted:
      return "corrupted";
    case What::duplicated:
      return "duplicated";
    case What::reordered:
      return "reordered";
    case What::spike:
      return "spike";
    case What::marked:
      return "marked";
    case What::order:
      return "order";
    case What::submit:
      return "submit";
    case What::complete:
      return "complete";
    case What::update:
      return "update";
    case What::state:
      return "state";
    case What::crash:
      return "crash";
    case What::start:
      return "start";
    case What::fault:
      return "fault";
  }
  return "?";
}

void Trace::add(Time at, What what, std::uint16_t node, std::uint32_t a, std::uint32_t b) {
  Record record;
  record.at = at;
  record.what = what;
  record.node = node;
  record.a = a;
  record.b = b;
  keep(record);
}

void Trace::arrival(Time at, std::uint16_t node, std::uint32_t port, Bytes frame) {
  Record record;
  record.at = at;
  record.node = node;
  record.a = port;
  record.b = static_cast<std::uint32_t>(frame.size());
  if (frame.size() >= wire::payload_offset) {
    std::memcpy(record.detail.data(), frame.data() + wire::encapsulation_bytes,
                std::min(record.detail.size(), frame.size() - wire::encapsulation_bytes));
  }
  keep(record);
}

void Trace::keep(const Record& record) {
  std::uint64_t words[3];
  std::memcpy(words, record.detail.data(), sizeof words);
  std::uint64_t h = hash_;
  h = mix(h ^ static_cast<std::uint64_t>(record.at));
  h = mix(h ^ (std::uint64_t{record.node} << 8 | static_cast<std::uint64_t>(record.what)));
  h = mix(h ^ (std::uint64_t{record.a} << 32 | record.b));
  for (const auto word : words) h = (h ^ word) * 0x9E37'79B9'7F4A'7C15;
  hash_ = mix(h);
  if (!ring_.empty()) ring_[count_ % ring_.size()] = record;
  ++count_;
}

namespace {

void describe(const Record& r, char* out, std::size_t room) {
  const std::uint8_t* h = r.detail.data();
  const unsigned type = h[0] & 15U;
  const unsigned job = wire::load_be16(h + 2);
  const unsigned member = wire::load_be16(h + 4);
  const std::uint32_t round = wire::load_be32(h + 6);
  const std::uint32_t segment = wire::load_be32(h + 10);
  const std::uint64_t set = wire::load_be64(h + 14);
  if (r.what != What::arrive || h[0] >> 4 != wire::protocol_version) {
    std::snprintf(out, room, "%" PRIu32 " %" PRIu32, r.a, r.b);
  } else if (type <= 1) {
    std::snprintf(out, room,
                  "port %" PRIu32 " %" PRIu32 " B %s job %u member %u round %" PRIu32
                  " segment %" PRIu32 " flags %02x set %016" PRIx64,
                  r.a, r.b, type == 0 ? "contribution" : "result", job, member, round, segment,
                  h[1], set);
  } else {
    std::snprintf(
        out, room,
        "port %" PRIu32 " %" PRIu32 " B %s %s job %u member %u id %" PRIu32 " nonce %" PRIu64 " %s",
        r.a, r.b, wire::action_name(static_cast<wire::Action>(h[1])),
        type == 2 ? "request" : "reply", job, member, round, set,
        type == 2 ? "" : wire::status_name(static_cast<wire::Status>(wire::load_be16(h + 22))));
  }
}

}  // namespace

std::string Trace::text(std::size_t limit, const std::vector<std::string>& names) const {
  const std::uint64_t kept = std::min<std::uint64_t>({count_, ring_.size(), limit});
  std::string out;
  for (std::uint64_t i = count_ - kept; i < count_; ++i) {
    const Record& r = ring_[i % ring_.size()];
    char detail[160];
    describe(r, detail, sizeof detail);
    char line[256];
    std::snprintf(line, sizeof line, "%12.3f us  %-10s %-10s %s\n", static_cast<double>(r.at) / 1e3,
                  r.node < names.size() ? names[r.node].c_str() : "?", what_name(r.what), detail);
    out += line;
  }
  return out;
}

}  // namespace iswitch::sim
