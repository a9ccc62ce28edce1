#include "switchd/dataplane/lcore.h"

#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_pause.h>
#include <rte_prefetch.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <bit>
#include <ctime>

#include "switchd/dataplane/machine.h"
#include "switchd/dataplane/turns.h"
#include "switchd/dataplane/verified.h"
#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

constexpr unsigned burst_size = pipeline::max_burst;
constexpr unsigned orders_at_once = 32;
// A full ring is a loss that the protocol repairs; these hold what comes between two wake-ups.
constexpr unsigned order_ring = 1024;
constexpr unsigned frame_ring = 2048;
constexpr unsigned control_ring = 1024;
constexpr unsigned notice_ring = 1024;
constexpr unsigned refusal_ring = 255;  // more than there are reasons
constexpr Time housekeeping_interval = 100 * microsecond;
constexpr Time change_deadline = 2 * second;

void sleep_for(Time nanoseconds) {
  const timespec time{static_cast<time_t>(nanoseconds / second),
                      static_cast<long>(nanoseconds % second)};
  nanosleep(&time, nullptr);
}

pipeline::Frame to_frame(const rte_mbuf* mbuf, datapath::PortId port, bool verifies) {
  pipeline::Frame frame;
  frame.bytes = rte_pktmbuf_mtod(mbuf, const std::uint8_t*);
  frame.size = mbuf->data_len;
  frame.port = port;
  if (verifies) frame.offload = verified(mbuf);
  return frame;
}

}  // namespace

std::unique_ptr<Lcore> Lcore::create(const LcoreConfig& config, const Pools& pools,
                                     std::string& error) {
  std::unique_ptr<Lcore> lcore(new Lcore(config, pools));
  if (!lcore->orders_.ok() || !lcore->outgoing_.ok() || !lcore->answers_.ok() ||
      !lcore->control_frames_.ok() || !lcore->notices_.ok() || !lcore->refusals_.ok()) {
    error = "memory for rings does not suffice; free memory or reserve more huge pages";
    return nullptr;
  }
  lcore->wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (lcore->wake_fd_ < 0) {
    error = "no eventfd; raise the limit of open files";
    return nullptr;
  }
  return lcore;
}

Lcore::Lcore(const LcoreConfig& config, const Pools& pools)
    : config_(config),
      frame_pool_(pools.frames.get()),
      orders_(text("orders", config.pipeline.shard), order_ring),
      outgoing_(text("outgoing", config.pipeline.shard), frame_ring),
      answers_(text("answers", config.pipeline.shard), order_ring),
      control_frames_(text("control", config.pipeline.shard), control_ring),
      notices_(text("notices", config.pipeline.shard), notice_ring),
      refusals_(text("refusals", config.pipeline.shard), refusal_ring),
      buffers_(pools.payloads.get()),
      pipeline_(config.pipeline, buffers_),
      sink_(pools.frames.get(), pools.headers.get(), {control_frames_, notices_, refusals_},
            config.stage_clock),
      backoff_(config.poll_busy, config.idle_after) {
  polled_.reserve(datapath::max_ports);
}

Lcore::~Lcore() {
  stop();
  OutgoingFrame out{};
  while (outgoing_.ok() && outgoing_.take(out)) rte_pktmbuf_free(out.frame);
  datapath::Answer answer;
  while (answers_.ok() && take_answer(answer)) {
  }
  if (wake_fd_ >= 0) close(wake_fd_);
}

// ---- the control thread's side

bool Lcore::launch() {
  stop_.store(false, std::memory_order_relaxed);
  running_ = rte_eal_remote_launch(&Lcore::entry, this, config_.id) == 0;
  return running_;
}

void Lcore::stop() {
  if (!running_) return;
  stop_.store(true, std::memory_order_release);
  rte_eal_wait_lcore(config_.id);
  (void)state_.load(std::memory_order_acquire);  // what the loop did last
  running_ = false;
}

void Lcore::clear_wake() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(wake_fd_, &count, sizeof count);
}

bool Lcore::take_answer(datapath::Answer& answer) {
  datapath::Answer* taken = nullptr;
  if (!answers_.take(taken)) return false;
  const std::unique_ptr<datapath::Answer> owner(taken);
  answer = std::move(*owner);
  return true;
}

bool Lcore::put_frame(datapath::PortId port, Bytes bytes) {
  rte_mbuf* frame = rte_pktmbuf_alloc(frame_pool_);
  if (frame == nullptr) return false;
  char* data = bytes.size() > UINT16_MAX
                   ? nullptr
                   : rte_pktmbuf_append(frame, static_cast<std::uint16_t>(bytes.size()));
  if (data != nullptr) std::memcpy(data, bytes.data(), bytes.size());
  if (data == nullptr || !outgoing_.put({frame, port})) {
    rte_pktmbuf_free(frame);
    return false;
  }
  return true;
}

bool Lcore::is_drained() const { return orders_.empty() && outgoing_.empty(); }

bool Lcore::set_ports(datapath::PortMask open, datapath::PortMask up) {
  wanted_open_ = open;
  wanted_up_ = up;
  return wait_for(change_.fetch_add(1, std::memory_order_release) + 1);
}

bool Lcore::set_capture(CaptureRing* ring) {
  wanted_capture_ = ring;
  return wait_for(change_.fetch_add(1, std::memory_order_release) + 1);
}

bool Lcore::wait_for(std::uint64_t change) const {
  if (!running_) return true;  // launch() brings it
  const Time deadline = monotonic_now() + change_deadline;
  while (applied_.load(std::memory_order_acquire) < change) {
    if (monotonic_now() > deadline) return false;
    sleep_for(50 * microsecond);
  }
  return true;
}

// ---- the lcore's side

int Lcore::entry(void* self) {
  static_cast<Lcore*>(self)->loop();
  return 0;
}

void Lcore::loop() {
  bool stopping = false;
  for (std::uint64_t turn = 1; !stopping; ++turn) {
    begin_turn_of(config_.id, turn);
    stopping = stop_.load(std::memory_order_acquire);
    const Time now = monotonic_now();
    apply_changes();
    sink_.begin_turn(capture_, now);
    const bool frames = receive(now);
    between_bursts(now);
    sink_.flush();
    sink_.stage(LoopStage::transmit);
    if (sink_.take_wake()) wake_control();
    polls_.add(1);
    if (frames) busy_polls_.add(1);
    rest(backoff_.after_poll(frames, now));
  }
  begin_turn_of(config_.id, 0);
  state_.store(LcoreState::sleeping, std::memory_order_release);
}

void Lcore::rest(Rest how) {
  const auto state = static_cast<LcoreState>(how);
  if (state_.load(std::memory_order_relaxed) != state)
    state_.store(state, std::memory_order_relaxed);
  switch (how) {
    case Rest::none:
      break;
    case Rest::pause:
      rte_pause();
      break;
    case Rest::yield:
      sched_yield();
      break;
    case Rest::sleep:
      sleep_for(IdleBackoff::sleep_time);
      break;
  }
}

bool Lcore::receive(Time now) {
  bool frames = false;
  for (const Queue queue : polled_) frames = receive_queue(queue, now) || frames;
  if (!others_.empty()) frames = take_handed_over(now) || frames;
  return frames;
}

bool Lcore::receive_queue(Queue queue, Time now) {
  std::array<rte_mbuf*, burst_size> burst;
  const PortTraits& traits = sink_.queue(queue.port).traits();
  unsigned count = rte_eth_rx_burst(traits.ethdev, queue.number, burst.data(), burst_size);
  if (count == 0) return false;
  sink_.stage(LoopStage::receive);
  if (capture_ != nullptr)
    capture_->record(burst.data(), count, queue.port, Direction::received, now);
  PortCounters& counters = port_counters_[queue.port];
  counters.rx_frames.add(count);
  std::uint64_t bytes = 0;
  unsigned usable = 0;
  for (unsigned i = 0; i < count; ++i) {
    rte_mbuf* mbuf = burst[i];
    bytes += mbuf->pkt_len;
    if (mbuf->nb_segs > 1 || mbuf->pkt_len > traits.longest_frame) [[unlikely]] {
      counters.rx_unusable.add(1);
      rte_pktmbuf_free(mbuf);
      continue;
    }
    burst[usable++] = mbuf;
    rte_prefetch0(rte_pktmbuf_mtod(mbuf, const std::uint8_t*));
  }
  counters.rx_bytes.add(bytes);
  if (!others_.empty()) usable = hand_over(burst.data(), usable, queue.port);
  if (usable > 0) run_burst(burst.data(), usable, queue.port, now);
  return true;
}

/// Other shards' frames go to their lcores; gives how many are this one's, now the first.
unsigned Lcore::hand_over(rte_mbuf** burst, unsigned count, datapath::PortId port) {
  const wire::FrameRules& rules = config_.pipeline.address.rules;
  std::array<std::uint16_t, burst_size> shards;
  unsigned own = 0;
  for (unsigned i = 0; i < count; ++i) {
    shards[i] = wire::shard_of(
        rules, {rte_pktmbuf_mtod(burst[i], const std::uint8_t*), burst[i]->data_len});
    if (shards[i] == config_.pipeline.shard) ++own;
  }
  if (own == count) return own;
  for (const Other& other : others_) {
    std::array<rte_mbuf*, burst_size> theirs;
    unsigned size = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (shards[i] != other.shard) continue;
      burst[i]->port = port;
      theirs[size++] = burst[i];
    }
    const unsigned taken = size == 0 ? 0 : other.to.received.put(theirs.data(), size);
    if (taken < size) {
      port_counters_[port].rx_handover_full.add(size - taken);
      rte_pktmbuf_free_bulk(theirs.data() + taken, size - taken);
    }
  }
  unsigned left = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (shards[i] == config_.pipeline.shard) burst[left++] = burst[i];
  }
  return left;
}

bool Lcore::take_handed_over(Time now) {
  bool any = false;
  std::array<rte_mbuf*, burst_size> burst;
  for (const Other& other : others_) {
    const unsigned count = other.from.received.take(burst.data(), burst_size);
    any = any || count > 0;
    for (unsigned begin = 0, end = 0; begin < count; begin = end) {
      const std::uint16_t port = burst[begin]->port;
      for (end = begin; end < count && burst[end]->port == port; ++end)
        rte_prefetch0(rte_pktmbuf_mtod(burst[end], const std::uint8_t*));
      run_burst(burst.data() + begin, end - begin, static_cast<datapath::PortId>(port), now);
    }
    const unsigned to_send = other.from.to_send.take(burst.data(), burst_size);
    any = any || to_send > 0;
    for (unsigned i = 0; i < to_send; ++i)
      sink_.send(static_cast<datapath::PortId>(burst[i]->port), burst[i]);
  }
  return any;
}

void Lcore::run_burst(rte_mbuf** burst, unsigned count, datapath::PortId port, Time now) {
  const bool verifies = sink_.queue(port).traits().verifies_checksums;
  std::array<pipeline::Frame, burst_size> frames;
  for (unsigned i = 0; i < count; ++i) frames[i] = to_frame(burst[i], port, verifies);

  sink_.begin_burst(burst, port);
  pipeline_.run({frames.data(), count}, now, sink_);

  // What was not forwarded goes back to its pool.
  const std::uint64_t forwarded = sink_.forwarded();
  if (forwarded != 0) {
    unsigned left = 0;
    for (unsigned i = 0; i < count; ++i) {
      if ((forwarded >> i & 1) == 0) burst[left++] = burst[i];
    }
    count = left;
  }
  rte_pktmbuf_free_bulk(burst, count);
  sink_.stage(LoopStage::release);
}

void Lcore::between_bursts(Time now) {
  execute_orders(now);
  if (now < next_housekeeping_) return;
  next_housekeeping_ = now + housekeeping_interval;
  pipeline_.housekeep(now, sink_);
}

void Lcore::execute_orders(Time now) {
  // Frames that wait now were put after the orders that wait now: those come first.
  const unsigned frames = outgoing_.size();
  datapath::Order order;
  bool all = true;
  bool answered = false;
  for (unsigned i = 0; i < orders_at_once; ++i) {
    // An order is taken only when its answer has room.
    if (answers_.room() == 0) {
      all = orders_.empty();
      break;
    }
    if (!orders_.take(order)) break;
    auto answer = std::make_unique<datapath::Answer>(pipeline_.execute(order, now, sink_));
    if (answers_.put(answer.get())) answer.release();  // NOLINT(bugprone-unused-return-value)
    orders_done_.fetch_add(1, std::memory_order_release);
    answered = true;
    all = i + 1 < orders_at_once || orders_.empty();
  }
  if (answered) wake_control();
  if (!all) return;
  OutgoingFrame out{};
  for (unsigned i = 0; i < frames && outgoing_.take(out); ++i) sink_.send(out.port, out.frame);
}

void Lcore::apply_changes() {
  const std::uint64_t change = change_.load(std::memory_order_acquire);
  if (change == applied_.load(std::memory_order_relaxed)) return;
  const datapath::PortMask before = sink_.open_ports();
  for (datapath::PortMask left = before & ~wanted_open_; left != 0; left &= left - 1) {
    sink_.close_port(static_cast<datapath::PortId>(std::countr_zero(left)));
  }
  for (datapath::PortMask left = wanted_open_ & ~before; left != 0; left &= left - 1) {
    const auto port = static_cast<datapath::PortId>(std::countr_zero(left));
    sink_.open_port(port, ports_[port].use, port_counters_[port]);
  }
  sink_.set_up(wanted_up_);
  polled_.clear();
  for (datapath::PortMask left = wanted_open_; left != 0; left &= left - 1) {
    const auto port = static_cast<datapath::PortId>(std::countr_zero(left));
    for (const std::uint16_t queue : ports_[port].receive_queues) polled_.push_back({port, queue});
  }
  pipeline_.set_ports(wanted_up_);
  capture_ = wanted_capture_;
  applied_.store(change, std::memory_order_release);
}

void Lcore::wake_control() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_fd_, &one, sizeof one);
}

}  // namespace iswitch::switchd
