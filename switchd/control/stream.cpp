#include "switchd/control/stream.h"

#include <algorithm>

#include "switchd/control/members.h"
#include "wire/serial.h"

namespace iswitch::control {

using Fresh = wire::Resumed::Fresh;

Stream stream_of(const wire::RejoinBody& body) {
  return {body.origin, body.newest, body.slots, body.segment_bytes, body.position, body.end};
}

Gathered gather(const MemberTable& members) {
  std::optional<Stream> all;
  Fresh fresh = members.empty() ? Fresh::stranger : Fresh::none;
  const auto because = [&](Fresh reason) {  // the reasons are in the order of what is looked at
    if (fresh == Fresh::none || reason < fresh) fresh = reason;
  };
  members.for_each([&](const Member& member) {
    if (!member.stream) return because(Fresh::stranger);
    const Stream& one = *member.stream;
    if (!all) {
      all = one;
      return;
    }
    if (one.origin != all->origin) because(Fresh::other_origin);
    if (one.slots != all->slots || one.segment_bytes != all->segment_bytes)
      because(Fresh::other_shape);
    all->newest = wire::serial_latest(all->newest, one.newest);
    all->position = std::min(all->position, one.position);
    all->end = std::max(all->end, one.end);
  });
  return {fresh, all.value_or(Stream{})};
}

std::optional<std::uint32_t> newest_of(const MemberTable& members) {
  std::optional<std::uint32_t> newest;
  members.for_each([&](const Member& member) {
    if (!member.stream) return;
    newest = wire::serial_latest(newest.value_or(member.stream->newest), member.stream->newest);
  });
  return newest;
}

wire::Resumed judge(const Gathered& gathered, std::uint32_t slots, std::uint32_t segment_bytes) {
  const Stream& stream = gathered.stream;
  if (gathered.fresh != Fresh::none) return {gathered.fresh, 0, 0, {}};
  if (stream.slots != slots || stream.segment_bytes != segment_bytes)
    return {Fresh::other_shape, 0, 0, {}};
  const std::uint64_t apart = stream.end - stream.position;
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(apart, UINT32_MAX));
  if (apart > slots) return {Fresh::too_far_apart, 0, count, {}};
  return {Fresh::none, static_cast<std::uint32_t>(stream.position), count, {}};
}

std::uint64_t first_position(const Stream& stream, const wire::Resumed& resumed) {
  return stream.position - (static_cast<std::uint32_t>(stream.position) - resumed.first);
}

}  // namespace iswitch::control
