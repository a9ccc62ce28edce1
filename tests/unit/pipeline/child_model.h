// Section 4 at a child, and section 5 at root and child, once more and as plainly as can be: maps
// by position, no rings, no memory limits. Positions count from the base round and do not wrap.
#pragma once

#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tests/unit/pipeline/rig.h"

namespace iswitch::testing {

/// A sum, or a result, or what is sent of either.
struct Figures {
  MemberMask members = 0;
  unsigned parts = 0;  ///< distinct members that count towards the threshold
  std::uint32_t workers = 0;
  std::uint32_t tag = 0;
  bool tag_known = true;
  std::uint8_t flags = 0;
  std::vector<float> floats;
};

/// What must come out, in order.
struct Expected {
  struct Down {
    std::uint32_t segment;
    std::int64_t position;
    MemberMask to;
    Figures what;
  };
  struct Up {
    std::uint32_t segment;
    std::int64_t position;
    Figures what;
  };
  std::vector<Down> down;
  std::vector<Up> up;
};

/// One contribution.
struct Offer {
  std::uint32_t segment = 0;
  std::int64_t position = 0;
  MemberId member = 0;
  std::uint32_t tag = 0;
  std::uint8_t flags = 0;
  bool marked = false;  ///< Congestion Experienced
  std::vector<float> floats;
};

inline void add_floats(Figures& sum, const std::vector<float>& floats) {
  if (!floats.empty() && sum.floats.empty()) sum.floats.assign(floats.size(), 0.0f);
  for (std::size_t i = 0; i < floats.size(); ++i) sum.floats[i] += floats[i];
}
inline void make_canonical(Figures& sum) {
  for (float& value : sum.floats) {
    if (std::isnan(value)) value = std::bit_cast<float>(0x7FC0'0000u);
  }
}
inline std::uint8_t echo_of(const Offer& offer) {
  return offer.marked || (offer.flags & wire::flag::ecn_echo) != 0 ? wire::flag::ecn_echo
                                                                   : std::uint8_t{0};
}

/// What both models know: members, a history, a threshold, an echo on its way up.
struct ModelBase {
  MemberMask members = 0;
  unsigned history = 1;
  unsigned threshold = 0;
  bool echo = false;

  unsigned count() const { return static_cast<unsigned>(std::popcount(members)); }
  std::uint8_t take_echo() {
    return std::exchange(echo, false) ? wire::flag::ecn_echo : std::uint8_t{0};
  }
  bool in_history(std::int64_t position, std::int64_t last) const {
    return position <= last && position > last - static_cast<std::int64_t>(history);
  }
};

class SyncChildModel : public ModelBase {
 public:
  Expected contribute(const Offer& offer) {
    Line& line = lines_[offer.segment];
    const MemberMask bit = MemberMask{1} << offer.member;
    Expected expected;
    if (offer.position <= line.last) {
      const auto found = line.results.find(offer.position);
      if (!in_history(offer.position, line.last) || found == line.results.end()) return {};
      if (!found->second.tag_known) {
        line.asked[offer.position] |= bit;
        Figures part;
        part.tag = offer.tag;
        part.workers = 1;
        part.flags = wire::flag::retransmit;
        expected.up.push_back({offer.segment, offer.position, part});
      } else if (found->second.tag == offer.tag) {
        expected.down.push_back({offer.segment, offer.position, bit, found->second});
      }
      return expected;
    }
    if (offer.position != line.last + 1) return {};
    if (line.waiting) {
      if ((offer.flags & wire::flag::retransmit) == 0) return {};
      Figures again = *line.own;
      again.flags |= wire::flag::retransmit;
      expected.up.push_back({offer.segment, offer.position, again});
      return expected;
    }
    if (line.own.has_value()) {
      if ((line.own->members & bit) != 0 || line.own->tag != offer.tag) return {};
      if (!offer.floats.empty() && !line.own->floats.empty() &&
          offer.floats.size() != line.own->floats.size())
        return {};
    } else {
      line.own.emplace();
      line.own->tag = offer.tag;
    }
    Figures& own = *line.own;
    own.members |= bit;
    own.workers += 1;
    own.flags |= echo_of(offer);
    add_floats(own, offer.floats);
    const auto inside = static_cast<unsigned>(std::popcount(own.members));
    if (inside >= (threshold == 0 ? count() : std::min(threshold, count())))
      go_up(offer.segment, line, expected);
    return expected;
  }

  Expected force(std::uint32_t segment, std::int64_t position) {
    Line& line = lines_[segment];
    Expected expected;
    if (!line.own.has_value() || line.waiting || position != line.last + 1) return {};
    line.own->flags |= wire::flag::partial;
    go_up(segment, line, expected);
    return expected;
  }

  bool waits(std::uint32_t segment, std::int64_t position) {
    const Line& line = lines_[segment];
    return line.waiting && position == line.last + 1;
  }

  /// `result.members` is the parent's bitmap.
  Expected take(std::uint32_t segment, std::int64_t position, Figures result, bool marked) {
    Line& line = lines_[segment];
    Expected expected;
    if (marked) {
      echo = true;
      result.flags |= wire::flag::ecn_echo;
    }
    const bool in_it = (result.members & bit_at_parent) != 0;
    result.members = 0;
    result.tag_known = false;
    if (position <= line.last) {
      if (position < 0 || !in_history(position, line.last)) return {};
      const auto found = line.results.find(position);
      if (found != line.results.end()) {
        const MemberMask asked = std::exchange(line.asked[position], MemberMask{0});
        if (asked != 0) expected.down.push_back({segment, position, asked, found->second});
        return expected;
      }
    } else {
      if (in_it && line.waiting && position == line.last + 1) {
        result.members = line.own->members;
        result.tag = line.own->tag;
        result.tag_known = true;
      }
      line.own.reset();
      line.waiting = false;
      line.last = position;
    }
    line.results[position] = result;
    expected.down.push_back({segment, position, members, result});
    return expected;
  }

 private:
  struct Line {
    std::int64_t last = -1;
    std::map<std::int64_t, Figures> results;
    std::map<std::int64_t, MemberMask> asked;
    std::optional<Figures> own;
    bool waiting = false;
  };

  void go_up(std::uint32_t segment, Line& line, Expected& expected) {
    make_canonical(*line.own);
    line.own->flags |= take_echo();
    line.waiting = true;
    expected.up.push_back({segment, line.last + 1, *line.own});
  }

  std::map<std::uint32_t, Line> lines_;
};

class AsyncModel : public ModelBase {
 public:
  bool child = false;
  std::map<MemberId, std::uint32_t> incarnations;

  Expected contribute(const Offer& offer) {
    if (offer.tag != incarnations.at(offer.member)) return {};
    Line& line = lines_[offer.segment];
    const MemberMask bit = MemberMask{1} << offer.member;
    Expected expected;
    std::int64_t& accepted = line.accepted[offer.member];
    if (offer.position <= 0) return {};
    if (offer.position <= accepted) {
      if (line.waiting.has_value()) {
        Figures again = *line.waiting;
        again.flags |= wire::flag::retransmit;
        expected.up.push_back({offer.segment, line.pushes, again});
      }
      const MemberMask pending = (line.open.has_value() ? line.open->members : 0) |
                                 (line.waiting.has_value() ? line.waiting->members : 0);
      if (offer.position != accepted || (pending & bit) != 0) return expected;
      for (auto it = line.results.rbegin(); it != line.results.rend(); ++it) {
        if (!in_history(it->first, line.last) || (it->second.members & bit) == 0) continue;
        expected.down.push_back({offer.segment, it->first, bit, it->second});
        return expected;
      }
      return expected;  // its member is told that updates are gone
    }
    if (line.open.has_value() && !offer.floats.empty() && !line.open->floats.empty() &&
        offer.floats.size() != line.open->floats.size())
      return {};
    accepted = offer.position;
    if (!line.open.has_value()) {
      line.open.emplace();
      line.needed = threshold;
    }
    Figures& open = *line.open;
    if ((open.members & bit) == 0) ++open.parts;
    open.members |= bit;
    open.workers += 1;
    open.flags |= echo_of(offer);
    add_floats(open, offer.floats);
    leave_if_met(offer.segment, line, expected);
    return expected;
  }

  Expected force(std::uint32_t segment) {
    Line& line = lines_[segment];
    Expected expected;
    if (!line.open.has_value() || (line.waiting.has_value() && is_met(line))) return {};
    line.open->flags |= wire::flag::partial;
    line.forced = true;
    leave_if_met(segment, line, expected);
    return expected;
  }

  Expected take(std::uint32_t segment, std::int64_t position, Figures result, bool marked) {
    Line& line = lines_[segment];
    Expected expected;
    if (marked) {
      echo = true;
      result.flags |= wire::flag::ecn_echo;
    }
    const bool in_it = (result.members & bit_at_parent) != 0;
    result.members = 0;
    if (position <= line.last) {
      if (position <= 0 || !in_history(position, line.last) || line.results.count(position) != 0)
        return {};
    }
    line.last = std::max(line.last, position);
    const bool acknowledged = in_it && line.waiting.has_value();
    if (acknowledged) {
      result.members = line.waiting->members;
      line.waiting.reset();
    }
    line.results[position] = result;
    if (members != 0) expected.down.push_back({segment, position, members, result});
    if (acknowledged) leave_if_met(segment, line, expected);
    return expected;
  }

  /// Another incarnation at a place.
  void refill(MemberId member, std::uint32_t incarnation) {
    incarnations[member] = incarnation;
    const MemberMask bit = MemberMask{1} << member;
    members |= bit;
    for (auto& [segment, line] : lines_) {
      line.accepted[member] = 0;
      if (line.open.has_value()) line.open->members &= ~bit;
      if (line.waiting.has_value()) line.waiting->members &= ~bit;
      for (auto& [position, result] : line.results) result.members &= ~bit;
    }
  }

  Expected drop(MemberId member, std::uint32_t slots) {
    members &= ~(MemberMask{1} << member);
    Expected expected;
    for (std::uint32_t s = 0; s < slots; ++s) leave_if_met(s, lines_[s], expected);
    return expected;
  }

  std::optional<Figures> kept(std::uint32_t segment, std::int64_t position) {
    const Line& line = lines_[segment];
    const auto found = line.results.find(position);
    if (!in_history(position, line.last) || found == line.results.end()) return std::nullopt;
    return found->second;
  }
  /// That push is in an update which the parent does not keep any more.
  Expected give_up(std::uint32_t segment, std::int64_t push) {
    Expected expected;
    Line& line = lines_[segment];
    if (!line.waiting.has_value() || push != line.pushes) return expected;
    line.waiting.reset();
    leave_if_met(segment, line, expected);
    return expected;
  }
  std::int64_t pushes(std::uint32_t segment) { return lines_[segment].pushes; }
  std::int64_t last(std::uint32_t segment) { return lines_[segment].last; }
  std::int64_t accepted(std::uint32_t segment, MemberId member) {
    return lines_[segment].accepted[member];
  }

 private:
  struct Line {
    std::int64_t last = 0;
    std::map<std::int64_t, Figures> results;
    std::map<MemberId, std::int64_t> accepted;
    std::optional<Figures> open;
    unsigned needed = 0;  // the threshold when it was opened
    bool forced = false;
    std::optional<Figures> waiting;
    std::int64_t pushes = 0;  // own ones, at a child
  };

  bool is_met(const Line& line) const {
    const Figures& open = *line.open;
    if (line.forced) return true;
    if (line.needed != 0) return open.parts >= std::min(line.needed, count());
    // Everybody is in it, or a part of an earlier life stands for him.
    const auto missing = static_cast<unsigned>(std::popcount(members & ~open.members));
    const auto cleared = open.parts - static_cast<unsigned>(std::popcount(open.members));
    return missing <= cleared;
  }

  void leave_if_met(std::uint32_t segment, Line& line, Expected& expected) {
    if (!line.open.has_value() || line.waiting.has_value() || !is_met(line)) return;
    Figures sum = *std::exchange(line.open, std::nullopt);
    line.forced = false;
    make_canonical(sum);
    if (child) {
      sum.flags |= take_echo();
      sum.tag = parent_spec().incarnation;
      line.waiting = sum;
      expected.up.push_back({segment, ++line.pushes, sum});
      return;
    }
    line.results[++line.last] = sum;
    if (members != 0) expected.down.push_back({segment, line.last, members, sum});
  }

  std::map<std::uint32_t, Line> lines_;
};

}  // namespace iswitch::testing
