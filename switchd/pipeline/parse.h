// First stage: which frames are ours and well-formed, and what they say.
#pragma once

#include <array>
#include <span>

#include "switchd/pipeline/counters.h"
#include "switchd/pipeline/frame.h"
#include "wire/contribution_pattern.h"

namespace iswitch::pipeline {

/// Places of frames in a burst, in order of arrival.
struct FrameList {
  std::array<std::uint8_t, max_burst> index{};
  std::uint8_t count = 0;

  void clear() { count = 0; }
  void push(std::size_t i) { index[count++] = static_cast<std::uint8_t>(i); }
  const std::uint8_t* begin() const { return index.data(); }
  const std::uint8_t* end() const { return index.data() + count; }
};

/// Frames that nobody had a right to send, with the counter they ended in: for the sink to tell
/// somebody.
struct RefusedList {
  std::array<std::uint8_t, max_burst> index{};
  std::array<Counter, max_burst> reason{};
  std::uint8_t count = 0;

  void clear() { count = 0; }
  void push(std::size_t i, Counter counter) {
    index[count] = static_cast<std::uint8_t>(i);
    reason[count++] = counter;
  }
};

struct Parsed {
  std::array<wire::Packet, max_burst> packets{};  ///< by place in the burst, for those in `ours`
  FrameList ours;
  FrameList ordinary;
  RefusedList refused;
};

/// What makes a frame ours, prepared for comparing.
struct FrameParser {
  wire::FrameRules rules;
  wire::ContributionPattern contribution{rules};
};

/// Malformed frames are counted and dropped here, but for contributions with a wrong checksum:
/// their payload is left unread, and whoever does anything because of one looks at the checksum
/// first.
void parse(const FrameParser& parser, std::span<const Frame> burst, Parsed& parsed,
           Counters& counters);

}  // namespace iswitch::pipeline
