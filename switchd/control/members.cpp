#include "switchd/control/members.h"

#include <algorithm>

namespace iswitch::control {

MemberTable::MemberTable(std::uint16_t expected)
    : expected_(std::min<std::uint16_t>(expected, wire::max_members)) {}

Member* MemberTable::find(datapath::MemberId id) {
  return id < expected_ && rows_.at(id) ? &*rows_.at(id) : nullptr;
}

const Member* MemberTable::find(const Place& place) const {
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const auto& candidate) {
    return candidate && place_of(candidate->spec) == place;
  });
  return row == rows_.end() ? nullptr : &**row;
}

Member* MemberTable::find(const Place& place) {
  return const_cast<Member*>(static_cast<const MemberTable*>(this)->find(place));
}

Member* MemberTable::find(const Place& place, datapath::MemberId id) {
  Member* const member = find(id);
  return member != nullptr && place_of(member->spec) == place ? member : nullptr;
}

void MemberTable::put(const Member& member) {
  auto& row = rows_.at(member.spec.id);
  if (!row) ++size_;
  row = member;
}

void MemberTable::erase(datapath::MemberId id) {
  auto& row = rows_.at(id);
  if (row) --size_;
  row.reset();
}

void MemberTable::clear() {
  for (auto& row : rows_) row.reset();
  size_ = 0;
}

std::optional<datapath::MemberId> MemberTable::last_free_id() const {
  for (datapath::MemberId id = expected_; id-- > 0;)
    if (!rows_.at(id)) return id;
  return std::nullopt;
}

MemberTable::Seat MemberTable::seat_for(const Place& place, std::uint32_t incarnation,
                                        datapath::MemberId wanted, Time now, Time timeout) const {
  const Member* const own = find(place);
  if (own == nullptr) return seat_for_stranger(wanted, now, timeout);
  const datapath::MemberId id = own->spec.id;
  if (own->incarnation == incarnation) return {Seat::Kind::same, id, false, {}};
  // The process restarted. Its old row is its own to use or to give up for the one it now wants.
  if (wanted == wire::no_member || wanted == id) return {Seat::Kind::taken, id, true, {}};
  Seat other = seat_for_stranger(wanted, now, timeout);
  if (other.kind == Seat::Kind::taken) other.leaves = id;
  return other;
}

MemberTable::Seat MemberTable::seat_for_stranger(datapath::MemberId wanted, Time now,
                                                 Time timeout) const {
  if (wanted != wire::no_member) {
    if (wanted >= expected_) return {};
    const auto& row = rows_.at(wanted);
    if (!row) return {Seat::Kind::taken, wanted, false, {}};
    if (silent(*row, now, timeout)) return {Seat::Kind::taken, wanted, true, {}};
    return {};
  }
  const Member* longest_silent = nullptr;
  for (datapath::MemberId id = 0; id < expected_; ++id) {
    const auto& row = rows_.at(id);
    if (!row) return {Seat::Kind::taken, id, false, {}};
    if (silent(*row, now, timeout) &&
        (longest_silent == nullptr || row->last_heard < longest_silent->last_heard))
      longest_silent = &*row;
  }
  if (longest_silent == nullptr) return {};
  return {Seat::Kind::taken, longest_silent->spec.id, true, {}};
}

}  // namespace iswitch::control
