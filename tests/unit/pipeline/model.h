// Section 4 once more, as plainly as can be: maps of whole rounds, floats added in arrival order,
// no slots, no rings, no memory limits. Random streams are run through both and compared.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tests/unit/pipeline/rig.h"

namespace iswitch::testing {

// Outside of Model: clang 14 does not take a nested class with initialisers as complete in it.
struct ModelSum {
  MemberMask members = 0;
  std::uint32_t workers = 0;
  std::uint32_t tag = 0;
  std::vector<float> floats;
  bool partial = false;
};

class Model {
 public:
  using Sum = ModelSum;
  /// A result the switch must send.
  struct Expected {
    std::uint32_t segment = 0;
    std::uint64_t position = 0;  ///< rounds since the base
    MemberMask to = 0;
    Sum sum;
  };

  Model(unsigned members, unsigned history, unsigned threshold)
      : members_(members == 64 ? ~MemberMask{0} : (MemberMask{1} << members) - 1),
        history_(history),
        threshold_(threshold) {}

  /// `position`: how many rounds after the base; no wrap here.
  std::vector<Expected> contribute(std::uint32_t segment, std::int64_t position, MemberId member,
                                   std::uint32_t tag, const std::vector<float>& floats) {
    Line& line = lines_[segment];
    const std::int64_t next = static_cast<std::int64_t>(line.done.size());
    if (position > next) return {};
    const MemberMask bit = MemberMask{1} << member;
    if (position < next) {
      if (position < 0 || position < next - static_cast<std::int64_t>(history_)) return {};
      const Sum& kept = line.done[static_cast<std::size_t>(position)];
      if (kept.tag != tag) return {};
      return {{segment, static_cast<std::uint64_t>(position), bit, kept}};
    }
    if (line.open.has_value()) {
      Sum& open = *line.open;
      if ((open.members & bit) != 0) return {};
      const bool both = !open.floats.empty() && !floats.empty();
      if (open.tag != tag || (both && open.floats.size() != floats.size())) return {};
    } else {
      line.open.emplace();
      line.open->tag = tag;
    }
    Sum& open = *line.open;
    open.members |= bit;
    ++open.workers;
    if (!floats.empty() && open.floats.empty()) open.floats.assign(floats.size(), 0.0f);
    for (std::size_t i = 0; i < floats.size(); ++i) open.floats[i] += floats[i];
    const unsigned all = static_cast<unsigned>(std::popcount(members_));
    const unsigned needed = threshold_ == 0 ? all : std::min(threshold_, all);
    if (static_cast<unsigned>(std::popcount(open.members)) < needed) return {};
    return {finish(segment, line)};
  }

  std::vector<Expected> force(std::uint32_t segment, std::int64_t position) {
    Line& line = lines_[segment];
    if (!line.open.has_value() || position != static_cast<std::int64_t>(line.done.size()))
      return {};
    line.open->partial = true;
    return {finish(segment, line)};
  }

 private:
  struct Line {
    std::vector<Sum> done;  ///< by position
    std::optional<Sum> open;
  };

  Expected finish(std::uint32_t segment, Line& line) {
    for (float& value : line.open->floats) {
      if (std::isnan(value)) value = std::bit_cast<float>(0x7FC0'0000u);
    }
    line.done.push_back(*std::exchange(line.open, std::nullopt));
    return {segment, line.done.size() - 1, members_, line.done.back()};
  }

  MemberMask members_;
  unsigned history_;
  unsigned threshold_;
  std::map<std::uint32_t, Line> lines_;
};

}  // namespace iswitch::testing
