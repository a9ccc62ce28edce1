// Membership, admission, threshold, FBcast, Help, Halt, Reset, and the link to a parent switch:
// protocol.md section 6. Pure: frames, notices, answers, operator requests and time come in as
// values; orders for the datapath and frames for ports come out as values. One thread owns a
// Control.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "switchd/datapath/datapath.h"
#include "wire/control.h"
#include "wire/units.h"

namespace iswitch::control {

using datapath::JobId;
using datapath::MemberId;
using datapath::MemberMask;
using datapath::PortId;

/// A job as the config or an operator gives it.
struct JobConfig {
  JobId id = 0;
  std::uint16_t members = 0;  ///< expected, 1..64
  wire::Mode mode = wire::Mode::sync;
  std::uint32_t slots = 1024;
  std::uint32_t segment_bytes = 1440;
  std::uint16_t threshold = 0;  ///< 0 follows the number of members
  std::optional<std::uint16_t>
      history;  ///< none: 1, or 8 where sums may complete without everybody
  std::optional<std::uint32_t> base_round;
  bool udp_checksum = true;
  std::vector<std::uint8_t> key;  ///< empty: none
  Time force_after = 0;           ///< 0: never
  bool evict_silent = false;
  Time member_timeout = 5 * second;
};
/// The history that `config` asks for or implies (protocol.md section 4).
std::uint16_t history_in_force(const JobConfig& config);
/// What is wrong with `config`, one line each that names the field, the value and what is allowed;
/// empty when nothing is.
std::vector<std::string> job_config_errors(const JobConfig& config);

/// The switch above this one. All jobs of a switch that has one are child jobs.
struct ParentConfig {
  wire::Ipv4 ip;
  std::uint16_t udp_port = wire::default_udp_port;  ///< its base port
  PortId port = 0;                                  ///< the way there
  std::optional<wire::Mac> mac;                     ///< none: asked for by ARP
};

struct SwitchConfig {
  datapath::SwitchAddress address;
  std::uint16_t shards = 1;
  std::uint64_t start_unix_microseconds = 0;  ///< wall clock when monotonic time was start_time
  Time start_time = 0;
  std::optional<ParentConfig> parent;
  std::uint32_t incarnation = 0;  ///< random at each start of the switch; a parent tells by it
};

/// A whole Ethernet frame for one port.
struct OutFrame {
  PortId port = 0;
  std::vector<std::uint8_t> bytes;
};

/// What a call wants done, in order. The driver carries it out and empties it.
struct Effects {
  std::vector<datapath::Order> orders;
  std::vector<OutFrame> frames;
};

// ---- state, for people

struct MemberView {
  datapath::MemberSpec spec;
  std::uint32_t incarnation = 0;
  Time joined_at = 0;
  Time last_heard = 0;
};

/// How a child job stands with its parent.
struct ParentView {
  enum class State : std::uint8_t {
    idle,       ///< its own members have not all joined, so it has not asked to join
    resolving,  ///< the parent's MAC is not known yet
    joining,    ///< its Join has not been answered, or was refused (fault)
    forming,    ///< it is a member; the parent does not run the job yet
    running,    ///< the parent runs or has halted the job: this switch may run it too
    silent,     ///< it was a member; the parent does not answer or has said Leave
    refused,    ///< what the parent's job is like does not fit here (fault)
  };
  ParentConfig config;
  std::optional<wire::Mac> mac;
  State state = State::idle;
  Time since = 0;  ///< when it came into this state; silent: when it last answered
  MemberId member = wire::no_member;  ///< this switch's id there; no_member where it has none
  std::string fault;  ///< one line that says what to do; empty where nothing is wrong
};
const char* parent_state_name(ParentView::State state);
/// "parent 10.0.0.1 does not answer since 12 s", for people.
std::string parent_text(const ParentView& parent, Time now);

/// Of a job some of whose members came back to it after a restart (protocol.md section 9).
struct StreamView {
  wire::Resumed resumed;                   ///< whether it goes on, or why not
  std::uint32_t origin = 0;                ///< base_round of the stream's start
  std::optional<datapath::Resumption> at;  ///< where it went on
};

struct JobView {
  JobConfig config;        ///< as it was given; key removed
  datapath::JobSpec spec;  ///< in force: a child takes slots and others from its parent
  wire::JobState state = wire::JobState::forming;
  std::uint32_t base_round = 0;
  std::uint16_t threshold = 0;         ///< in force
  std::uint16_t threshold_wanted = 0;  ///< 0 follows the number of members
  std::uint16_t history = 0;
  std::vector<MemberView> members;   ///< by id
  std::string fault;                 ///< why it cannot run (one line); empty: it can
  std::optional<ParentView> parent;  ///< of a child job
  std::optional<StreamView> stream;  ///< where members came back
};

/// Counted per switch; names are "control_..." in the admin API.
struct Counters {
  std::uint64_t requests = 0;  ///< well-formed requests received
  std::uint64_t replies_sent = 0;
  std::uint64_t replies_received = 0;
  std::uint64_t refused[16] = {};     ///< by wire::Status
  std::uint64_t notices_sent = 0;     ///< unasked-for replies
  std::uint64_t notices_limited = 0;  ///< not sent because of the rate limit
  std::uint64_t requests_sent = 0;    ///< Reset, Halt, Resume, Help, Leave to members
  std::uint64_t joins = 0, leaves = 0, evictions = 0, replacements = 0, resets = 0;
  std::uint64_t ignored = 0;  ///< nothing waits for it, or it came from nobody known
};

/// Outcome of an operator's request; `error` is one line, empty when it was done.
struct OperatorReply {
  std::string error;
  std::vector<datapath::OpenSlot> open;  ///< list_slots
};
using OperatorDone = std::function<void(const OperatorReply&)>;

class Control {
 public:
  /// Orders that install the configured jobs are in `effects` at once.
  Control(const SwitchConfig& config, const std::vector<JobConfig>& jobs, Time now,
          Effects& effects);
  ~Control();
  Control(Control&&) noexcept;
  Control& operator=(Control&&) noexcept;

  void on_frame(const datapath::ControlFrame& frame, Time now, Effects& effects);
  void on_notice(const datapath::Notice& notice, Time now, Effects& effects);
  void on_answer(const datapath::Answer& answer, Time now, Effects& effects);
  /// The datapath last saw a contribution of this member at `when`; the driver reports it now and
  /// then.
  void heard(JobId job, MemberId member, Time when);
  /// Repeats requests, evicts the silent. Call at next_deadline() or later.
  void tick(Time now, Effects& effects);
  Time next_deadline() const;

  /// SIGTERM: a Leave notice to every member of every job, and to the parent. Nothing follows.
  void leave_all(Time now, Effects& effects);
  /// The same, but this switch comes back, or another one in its place (protocol.md section 9): it
  /// keeps its place at the parent, so that nobody goes on without its members.
  void pause_all(Time now, Effects& effects);

  // The operator's acts. `done` is called once, at once or when the datapath has answered.
  void add_job(const JobConfig& config, Time now, Effects& effects, OperatorDone done);
  void remove_job(JobId job, Time now, Effects& effects, OperatorDone done);
  void set_threshold(JobId job, std::uint16_t threshold, Time now, Effects& effects,
                     OperatorDone done);
  void force(JobId job, std::uint32_t segment, std::uint32_t round, Time now, Effects& effects,
             OperatorDone done);
  void reset(JobId job, Time now, Effects& effects, OperatorDone done);
  void halt(JobId job, bool halted, Time now, Effects& effects, OperatorDone done);
  void remove_member(JobId job, MemberId member, Time now, Effects& effects, OperatorDone done);
  void list_slots(JobId job, std::uint32_t limit, Time now, Effects& effects, OperatorDone done);

  std::vector<JobView> jobs() const;
  const Counters& counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace iswitch::control
