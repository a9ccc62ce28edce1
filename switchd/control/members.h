// The membership table of one job: who is where, and which place a joiner gets.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "switchd/control/place.h"
#include "switchd/control/stream.h"
#include "switchd/datapath/datapath.h"
#include "wire/control.h"
#include "wire/units.h"

namespace iswitch::control {

/// What a member knows of its job, and the request that is to tell it more. One request is
/// outstanding to a member at a time, so a newer one never replaces an older one of another
/// meaning.
struct Told {
  bool answered = false;  ///< it has had a reply, and knows the job's state of then
  std::uint32_t base_round = 0;
  std::optional<bool> halted;  ///< none: it was told otherwise and has not acknowledged it

  /// The state in any reply is authoritative: one that says otherwise than what it acknowledged
  /// leaves open what it now believes.
  void hears(wire::JobState state) {
    if (state != wire::JobState::forming && halted != (state == wire::JobState::halted))
      halted.reset();
  }

  struct Outstanding {
    wire::Action action = wire::Action::reset;  ///< Reset, Halt or Resume
    std::uint32_t base_round = 0;               ///< of a Reset
    std::uint32_t request_id = 0;
    std::uint64_t nonce = 0;
    Time next_send = 0;
    Time interval = 0;
  };
  std::optional<Outstanding> outstanding;
};

struct Member {
  datapath::MemberSpec spec;
  std::uint32_t incarnation = 0;
  Time joined_at = 0;
  Time last_heard = 0;
  Told told;
  std::uint64_t put = 0;         ///< counts PutMember orders; the last one of this row
  bool placed = false;           ///< the datapath has done that one
  std::optional<Stream> stream;  ///< it came back (Rejoin) and said so
  bool late = false;             ///< it came back to a job that had gone on without it
  bool any_id = false;           ///< it did not ask for this id
};

class MemberTable {
 public:
  /// Ids run from 0 to expected - 1.
  explicit MemberTable(std::uint16_t expected);

  Member* find(datapath::MemberId id);
  Member* find(const Place& place);
  const Member* find(const Place& place) const;
  /// The member at `place` if that is its id.
  Member* find(const Place& place, datapath::MemberId id);

  /// `member` takes the row of its id, whoever had it before.
  void put(const Member& member);
  void erase(datapath::MemberId id);
  void clear();

  std::uint16_t size() const { return size_; }
  std::uint16_t expected() const { return expected_; }
  bool complete() const { return size_ == expected_; }
  bool empty() const { return size_ == 0; }

  /// The row that a Join gets (protocol.md section 6).
  struct Seat {
    enum class Kind : std::uint8_t {
      full,   ///< none
      same,   ///< the row it has already
      taken,  ///< a free row, its own as a restarted process, or that of a silent member
    };
    Kind kind = Kind::full;
    datapath::MemberId id = 0;
    bool replaces = false;  ///< taken: somebody had it until now
    std::optional<datapath::MemberId>
        leaves;  ///< taken: the joiner's own row, given up for this one
  };
  std::optional<datapath::MemberId> last_free_id() const;
  Seat seat_for(const Place& place, std::uint32_t incarnation, datapath::MemberId wanted, Time now,
                Time timeout) const;

  /// Calls f(member) by ascending id.
  template <class F>
  void for_each(F f) {
    for (auto& row : rows_)
      if (row) f(*row);
  }
  template <class F>
  void for_each(F f) const {
    for (const auto& row : rows_)
      if (row) f(*row);
  }

 private:
  bool silent(const Member& member, Time now, Time timeout) const {
    return now - member.last_heard > timeout;
  }
  /// The row `wanted`, or any.
  Seat seat_for_stranger(datapath::MemberId wanted, Time now, Time timeout) const;

  std::array<std::optional<Member>, wire::max_members> rows_;
  std::uint16_t expected_;
  std::uint16_t size_ = 0;
};

}  // namespace iswitch::control
