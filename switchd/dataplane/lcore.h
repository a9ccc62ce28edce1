// One lcore and its shard: receive > run > transmit, and between bursts orders, control frames to
// send, housekeeping. The class is also where the two threads meet: the control thread's side is in
// the first public part.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "switchd/dataplane/buffers.h"
#include "switchd/dataplane/handover.h"
#include "switchd/dataplane/idle.h"
#include "switchd/dataplane/pools.h"
#include "switchd/dataplane/refusal.h"
#include "switchd/dataplane/ring.h"
#include "switchd/dataplane/sink.h"
#include "switchd/pipeline/pipeline.h"

namespace iswitch::switchd {

enum class LcoreState : std::uint8_t { polling, pausing, yielding, sleeping };

struct LcoreConfig {
  unsigned id = 0;  ///< of EAL
  pipeline::PipelineConfig pipeline;
  bool poll_busy = false;
  Time idle_after = 100 * millisecond;
  StageClock* stage_clock = nullptr;  ///< the caller's; null: nobody wants to know
};

class Lcore {
 public:
  /// Null and a line in `error` when memory does not suffice.
  static std::unique_ptr<Lcore> create(const LcoreConfig& config, const Pools& pools,
                                       std::string& error);
  ~Lcore();
  Lcore(const Lcore&) = delete;
  Lcore& operator=(const Lcore&) = delete;

  // ---- the control thread's side

  /// Runs the loop on its EAL lcore until stop(). False when EAL refuses.
  bool launch();
  /// Asks the loop to send what waits and to return, and waits for that.
  void stop();
  bool running() const { return running_; }

  /// Readable when a control frame, notice or answer waits (eventfd).
  int wake_fd() const { return wake_fd_; }
  void clear_wake() const;

  /// False: full, try again later.
  bool put_order(const datapath::Order& order) { return orders_.put(order); }
  bool take_answer(datapath::Answer& answer);
  bool take_control_frame(datapath::ControlFrame& frame) { return control_frames_.take(frame); }
  bool take_notice(datapath::Notice& notice) { return notices_.take(notice); }
  bool take_refusal(Refusal& refusal) { return refusals_.take(refusal); }
  /// A frame to send after all orders put before it; false: no buffer or no room, nothing is kept.
  bool put_frame(datapath::PortId port, Bytes bytes);
  /// Nothing waits to be executed or sent.
  bool is_drained() const;

  /// Polls and sends on the ports in `open` from now on, forwards to those in `up`. Returns when
  /// the lcore has taken that over (and so has let go of the others), false if it did not in time.
  bool set_ports(datapath::PortMask open, datapath::PortMask up);
  /// How the lcore will use the port when it is next in the mask of set_ports; it must not be now.
  /// It polls these receive queues.
  void prepare_port(datapath::PortId port, const PortUse& use,
                    std::vector<std::uint16_t> receive_queues) {
    ports_[port] = {use, std::move(receive_queues)};
  }
  /// Before launch(), once with each of the other lcores. Both stay the caller's.
  void meet(std::uint16_t shard, Handover& to, Handover& from) {
    others_.push_back({shard, to, from});
  }
  /// Orders executed so far.
  std::uint64_t orders_done() const { return orders_done_.load(std::memory_order_acquire); }

  /// Null: none. The ring stays the caller's and must outlive set_capture(nullptr), which waits.
  bool set_capture(CaptureRing* ring);

  LcoreState state() const { return state_.load(std::memory_order_relaxed); }
  std::uint64_t polls() const { return polls_.get(); }
  std::uint64_t polls_with_frames() const { return busy_polls_.get(); }
  std::uint64_t notices_lost() const { return sink_.notices_lost().get(); }
  const PortCounters& port_counters(datapath::PortId port) const { return port_counters_[port]; }
  const pipeline::Pipeline<MbufBuffers>& pipeline() const { return pipeline_; }

 private:
  Lcore(const LcoreConfig& config, const Pools& pools);
  static int entry(void* self);
  void loop();
  /// True when frames came.
  bool receive(Time now);
  struct Queue {
    datapath::PortId port;
    std::uint16_t number;
  };
  bool receive_queue(Queue queue, Time now);
  unsigned hand_over(rte_mbuf** burst, unsigned count, datapath::PortId port);
  bool take_handed_over(Time now);
  void run_burst(rte_mbuf** burst, unsigned count, datapath::PortId port, Time now);
  void between_bursts(Time now);
  void execute_orders(Time now);
  void apply_changes();
  void wake_control();
  void rest(Rest rest);
  bool wait_for(std::uint64_t change) const;

  struct OutgoingFrame {
    rte_mbuf* frame;
    datapath::PortId port;
  };

  const LcoreConfig config_;
  rte_mempool* const frame_pool_;

  // Between the threads. Orders, outgoing frames: control writes, the lcore reads; the rest the
  // other way.
  Ring<datapath::Order> orders_;
  Ring<OutgoingFrame> outgoing_;
  Ring<datapath::Answer*> answers_;  // the taker owns
  Ring<datapath::ControlFrame> control_frames_;
  Ring<datapath::Notice> notices_;
  Ring<Refusal> refusals_;
  int wake_fd_ = -1;

  // Wishes of the control thread; a new change number publishes them, applied_ acknowledges it.
  struct PreparedPort {
    PortUse use;
    std::vector<std::uint16_t> receive_queues;
  };
  std::array<PreparedPort, datapath::max_ports> ports_{};
  datapath::PortMask wanted_open_ = 0;
  datapath::PortMask wanted_up_ = 0;
  CaptureRing* wanted_capture_ = nullptr;
  std::atomic<std::uint64_t> change_{0};
  std::atomic<std::uint64_t> applied_{0};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> orders_done_{0};
  bool running_ = false;  // control thread's

  // The lcore's own from launch() to stop(); counters and state may be read by anybody.
  MbufBuffers buffers_;
  pipeline::Pipeline<MbufBuffers> pipeline_;
  MbufSink sink_;
  IdleBackoff backoff_;
  CaptureRing* capture_ = nullptr;
  std::vector<Queue> polled_;
  struct Other {
    std::uint16_t shard;
    Handover& to;
    Handover& from;
  };
  std::vector<Other> others_;
  Time next_housekeeping_ = 0;
  std::array<PortCounters, datapath::max_ports> port_counters_{};
  pipeline::Tally polls_;
  pipeline::Tally busy_polls_;
  std::atomic<LcoreState> state_{LcoreState::polling};
};

}  // namespace iswitch::switchd
