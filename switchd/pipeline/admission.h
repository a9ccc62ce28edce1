// Who may contribute to a job, and in what shape: what classify asks of a job, and where its
// results go. Orders write it, the stages read it; one lcore does both.
#pragma once

#include <array>
#include <cstdint>

#include "switchd/pipeline/frame.h"
#include "switchd/pipeline/job_stats.h"

namespace iswitch::pipeline {

/// Longer ago than any time that is compared with it.
inline constexpr Time long_ago = INT64_MIN / 4;

/// What a contribution's source must be, or a parent's result's.
struct MemberRow {
  std::uint32_t ip = 0;
  std::uint16_t udp_port = 0;
  PortId ingress = 0;
  bool present = false;
  wire::MemberKind kind = wire::MemberKind::worker;
  std::uint32_t incarnation = 0;

  bool matches(const wire::Endpoint& source, PortId port) const {
    return present && ip == source.ip.value && udp_port == source.udp_port && ingress == port;
  }
};

struct Admission {
  datapath::JobSpec spec;
  std::uint32_t place = 0;         ///< of the job in its pipeline
  bool running = false;            ///< between Start and Stop
  bool halted = false;             ///< between Halt and Resume
  bool resumed = false;            ///< started to go on with a stream: members hand results back
  MemberMask joined_since = 0;     ///< places filled (again) since the last Start
  MemberMask ids_in_doubt = 0;     ///< rows that may have had other ids before the last Start
  std::uint16_t threshold = 0;     ///< of sums opened from now on; 0 follows the members
  std::uint16_t member_count = 0;  ///< rows present
  MemberMask members = 0;          ///< rows present, bit i = member i
  JobStats* stats = nullptr;
  std::array<MemberRow, wire::max_members> rows{};
  MemberRow parent;  ///< present in a child job that has one
  std::array<Destination, wire::max_members> destinations{};  ///< by member id
  /// When a notice about a member was last given, by kind; not_a_member has no member.
  std::array<std::array<Time, wire::max_members>, 4> told{};

  void put(const datapath::MemberSpec& member, const datapath::SwitchAddress& self);
  void drop(wire::MemberId member);
  /// Whose row a source matches; no_member where it is nobody's.
  wire::MemberId member_at(const wire::Endpoint& source, PortId ingress) const;
  /// Headers of this job's data for somebody.
  Destination destination(const datapath::SwitchAddress& self, const wire::Endpoint& to,
                          PortId port, std::uint16_t shards) const;
};

}  // namespace iswitch::pipeline
