// A pipeline on a bench: hand-made frames in, everything that comes out recorded.
#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "switchd/pipeline/pipeline.h"
#include "tests/unit/pipeline/block_pool.h"

namespace iswitch::testing {

using datapath::Notice;
using datapath::SlotState;
using pipeline::Counter;
using pipeline::JobCounter;
using pipeline::PortId;
using pipeline::PortMask;
using wire::JobId;
using wire::MemberId;
using wire::MemberMask;
using FrameBytes = std::vector<std::uint8_t>;

inline constexpr wire::Mac switch_mac{{2, 0, 0, 0, 0, 0xFE}};
inline constexpr wire::Ipv4 switch_ip{0x0A4D00FE};

wire::Endpoint endpoint_of(MemberId member);
inline PortId port_of(MemberId member) { return member; }

/// A contribution before it is a frame. The defaults are a right one.
struct Part {
  MemberId member = 0;
  std::uint32_t round = 0;
  std::uint32_t segment = 0;
  std::vector<float> floats{};
  JobId job = 1;
  std::uint32_t tag = 7;
  std::uint8_t flags = 0;
  std::uint32_t workers = 1;
  wire::Ecn ecn = wire::Ecn::ect0;
  wire::Type type = wire::Type::contribution;
  std::optional<wire::Endpoint> source{};
  std::optional<PortId> ingress{};
  std::optional<std::uint16_t> udp_port{};  ///< else base + segment mod shards
};
FrameBytes make_frame(const Part& part, std::uint16_t shards = 1);

/// Of child jobs here: where the parent is, unless a test says otherwise.
inline constexpr PortId parent_port = 50;
inline constexpr MemberId id_at_parent = 5;
inline constexpr MemberMask bit_at_parent = MemberMask{1} << id_at_parent;
wire::Endpoint parent_endpoint();
datapath::ParentSpec parent_spec();

/// A result of the parent before it is a frame. The defaults are a right one.
struct Down {
  std::uint32_t round = 0;
  std::uint32_t segment = 0;
  std::vector<float> floats{};
  MemberMask members = bit_at_parent;
  std::uint16_t workers = 9;
  std::uint8_t flags = 0;
  wire::Ecn ecn = wire::Ecn::ect0;
  JobId job = 1;
  std::optional<wire::Endpoint> source{};
  std::optional<PortId> ingress{};
  std::optional<std::uint16_t> udp_port{};  ///< else base + segment mod shards
};
FrameBytes make_frame(const Down& down, std::uint16_t shards = 1);

/// A result as the sink got it.
struct Result {
  wire::ResultFields fields;
  MemberMask to = 0;
  std::vector<float> floats;
  std::map<MemberId, FrameBytes> frames;  ///< the copies, byte for byte
};

/// A sum on its way to the parent, as the sink got it.
struct Up {
  wire::ResultFields fields;
  std::vector<float> floats;
  FrameBytes frame;
  wire::Header header;  ///< as parsed from the frame
};

/// Records; and, on demand, keeps shares of payloads as a transmit queue does.
class Recorder {
 public:
  explicit Recorder(BlockPool& pool) : pool_(pool) {}
  ~Recorder() { drain(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void forward(unsigned index, PortMask ports) { forwarded.emplace_back(index, ports); }
  void transmit(PortId port, Bytes frame) {
    transmitted.emplace_back(port, FrameBytes(frame.begin(), frame.end()));
  }
  bool control(const datapath::ControlFrame& frame) {
    if (control_room == 0) return false;
    --control_room;
    controls.push_back(frame);
    return true;
  }
  void notice(const Notice& notice) { notices.push_back(notice); }
  void result(const pipeline::Delivery<BlockPool::Handle>& delivery);

  /// The transmit queue has sent everything: gives the shares back.
  void drain();

  std::vector<std::pair<unsigned, PortMask>> forwarded;
  std::vector<std::pair<PortId, FrameBytes>> transmitted;
  std::vector<datapath::ControlFrame> controls;
  std::vector<Notice> notices;
  std::vector<Result> results;
  std::vector<Up> ups;
  std::vector<PortId> up_ports;
  std::size_t control_room = 1000;
  bool queueing = false;  ///< keep a share for every copy until drain()

 private:
  struct Queued {
    BlockPool::Handle payload;
    unsigned copies;
    std::vector<float> floats;  ///< what it held when it was queued
  };
  void queue(const pipeline::Delivery<BlockPool::Handle>& delivery, unsigned copies,
             const std::vector<float>& floats);

  BlockPool& pool_;
  std::vector<Queued> queue_;
};

struct RigConfig {
  std::uint16_t shards = 1;
  std::uint16_t shard = 0;
  std::size_t buffers = 1000;
  wire::Ipv4 parent{};  ///< whose ARP replies are looked for
};

class Rig {
 public:
  explicit Rig(const RigConfig& config = {});
  /// Checks that counters add up and that, with the pipeline gone, every buffer is back.
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  using Sent = std::pair<FrameBytes, PortId>;
  /// One burst.
  void run(const std::vector<Sent>& frames);
  void send(const std::vector<Part>& parts);
  void send(const Part& part) { send(std::vector<Part>{part}); }
  void send(const Down& down);

  template <class What>
  datapath::Answer order(const What& what, JobId job = 1) {
    return execute({.number = ++orders_, .job = job, .what = what});
  }
  datapath::Answer execute(const datapath::Order& order);
  /// Installs and starts a job with members 0 .. members - 1.
  void make_job(datapath::JobSpec spec, unsigned members, std::uint32_t base_round = 0);
  void put(MemberId member, JobId job = 1, wire::MemberKind kind = wire::MemberKind::worker,
           std::uint16_t shards = 1, std::uint32_t incarnation = 7);
  /// The same for a job below a parent.
  void make_child(datapath::JobSpec spec, unsigned members, std::uint32_t base_round = 0,
                  const datapath::ParentSpec& parent = parent_spec());
  void housekeep() { pipeline().housekeep(now, sink); }

  std::uint64_t count(Counter counter) const { return pipeline_->counters().get(counter); }
  std::uint64_t job_count(JobCounter counter, JobId job = 1) const;
  Time last_heard(MemberId member, JobId job = 1) const;
  /// Results recorded since the last call.
  std::vector<Result> take_results();
  std::vector<Up> take_ups();
  std::vector<Notice> take_notices();
  /// Empty when every received frame stands in exactly one terminal counter.
  std::string counters_add_up() const;

  pipeline::Pipeline<BlockPool>& pipeline() { return *pipeline_; }
  void end_pipeline() { pipeline_.reset(); }

  Time now = 0;
  BlockPool pool;
  Recorder sink;

 private:
  RigConfig config_;
  std::uint64_t orders_ = 0;
  std::uint64_t removed_ = 0;  // contributions to jobs that are gone
  std::optional<pipeline::Pipeline<BlockPool>> pipeline_;
};

/// A job of one 32-byte segment type, small enough to look at.
datapath::JobSpec small_job();
/// Mostly 11 of them, at times none or another number; any bits at times.
std::vector<float> random_floats(std::mt19937& random);
std::vector<std::uint32_t> bits(const std::vector<float>& floats);
/// Terminal counters against frames received, by what the counters say; empty when they add up.
std::string check_partition(const pipeline::Counters& counters);

}  // namespace iswitch::testing
