// Reader of wire.json: named frames and what is known of them. For tests alone: it throws
// std::runtime_error where the file is missing or is not what README.md describes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/control.h"
#include "wire/frame.h"

namespace iswitch::golden {

/// What wire.json states of a frame; a field it leaves out is empty here.
struct Frame {
  std::string name;
  std::string note;
  std::vector<std::uint8_t> bytes;
  /// To be dropped with a counter (some only by who knows the job and the sender, see README.md).
  bool malformed = false;

  std::optional<wire::Type> type;
  std::optional<wire::JobId> job;
  std::optional<std::uint16_t> member;
  std::optional<std::uint32_t> round;
  std::optional<std::uint32_t> segment;
  std::optional<std::uint8_t> flags;
  std::optional<wire::Ecn> ecn;
  std::optional<std::uint16_t> udp_destination;
  std::optional<std::uint16_t> udp_checksum;

  // contributions and results
  std::optional<std::uint32_t> operation_tag;
  std::optional<std::uint32_t> workers;
  std::optional<wire::MemberMask> members_bitmap;
  std::optional<std::vector<std::uint32_t>> float_bits;  ///< one a float, IEEE-754 binary32

  // control
  std::optional<wire::Action> action;
  std::optional<std::uint32_t> request_id;
  std::optional<std::uint64_t> nonce;
  std::vector<std::uint8_t> key;  ///< empty: the job has none
  std::optional<wire::Ipv4> client;
  std::optional<std::uint16_t> client_port;
  std::optional<wire::Tag> tag;

  // replies
  std::optional<wire::Status> status;
  std::optional<wire::JobState> state;
  std::optional<std::uint16_t> members_now;
  std::optional<std::uint16_t> members_expected;
  std::optional<std::uint16_t> threshold;
  std::optional<std::uint16_t> shards;
  std::optional<std::uint32_t> segment_bytes;
  std::optional<std::uint32_t> slots;
  std::optional<std::uint32_t> base_round;
  std::optional<std::uint16_t> history;
  std::optional<std::uint64_t> missing;

  Bytes view() const { return bytes; }
};

struct OperationTag {
  wire::Operation operation;
  std::uint32_t tag = 0;
};

struct Set {
  wire::Endpoint switch_endpoint;
  std::vector<wire::Endpoint> workers;
  std::uint32_t segment_bytes = 0;  ///< of the job that the frames belong to
  std::vector<OperationTag> operation_tags;
  std::vector<Frame> frames;

  const Frame& frame(std::string_view name) const;
  /// Rules of the receiver that the frame is addressed to: the switch (with `shards` ports), else
  /// the worker whose address it bears.
  wire::FrameRules rules_for(const Frame& frame, std::uint16_t shards = 4) const;
};

/// The set in the source tree, read once.
const Set& wire_set();

}  // namespace iswitch::golden
