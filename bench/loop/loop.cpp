#include "bench/loop/loop.h"

#include <rte_ethdev.h>
#include <rte_launch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>
#include <vector>

#include "switchd/dataplane/machine.h"
#include "switchd/pipeline/kernels.h"
#include "switchd/text.h"

namespace iswitch::bench {
namespace {

using namespace switchd;

constexpr unsigned burst_size = pipeline::max_burst;

std::uint16_t on_receive(std::uint16_t /*port*/, std::uint16_t /*queue*/, rte_mbuf** burst,
                         std::uint16_t count, std::uint16_t /*most*/, void* feed) {
  static_cast<Feed*>(feed)->generate(burst, count);
  return count;
}

std::uint16_t on_transmit(std::uint16_t /*port*/, std::uint16_t /*queue*/, rte_mbuf** burst,
                          std::uint16_t count, void* feed) {
  static_cast<Feed*>(feed)->check(burst, count);
  return count;
}

FeedConfig feed_of(const Case& one, unsigned shard = 0) {
  FeedConfig config;
  config.address.mac = {{2, 0, 0, 0, 0, 0xFE}};
  config.address.rules.ip = {0x0A4D00FE};
  config.address.rules.ports = static_cast<std::uint16_t>(one.lcores);
  config.shard = static_cast<std::uint16_t>(shard);
  config.jobs = one.jobs;
  config.members = one.members;
  config.segment_bytes = one.segment_bytes;
  config.slots = one.slots;
  return config;
}

control::JobConfig job_of(const Case& one, unsigned number) {
  control::JobConfig job;
  job.id = static_cast<wire::JobId>(number);
  job.members = static_cast<std::uint16_t>(one.members);
  job.slots = one.slots;
  job.segment_bytes = one.segment_bytes;
  return job;
}

std::int64_t thread_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Work of some bursts at a time, timed on the lcore.
template <class Work>
struct TimedWork {
  Work& work;
  Time duration;
  Slice slice;

  static int entry(void* self) {
    auto& timed = *static_cast<TimedWork*>(self);
    for (int i = 0; i < 16; ++i) timed.work();  // warm
    const Time end = monotonic_now() + timed.duration;
    const std::int64_t start = thread_nanoseconds();
    do {
      for (int i = 0; i < 64; ++i) timed.slice.contributions += timed.work();
    } while (monotonic_now() < end);
    timed.slice.nanoseconds = static_cast<double>(thread_nanoseconds() - start);
    return 0;
  }
};

/// The order in which the feed gives out contributions: a block of segments of one member after the
/// other. A burst's frames and rows for the sums come from the pools of the loop itself.
class Order {
 public:
  Order(const Case& one, rte_mempool* frames, rte_mempool* rows)
      : case_(one), frames_(burst_size), rows_(one.slots) {
    ok_ = rte_pktmbuf_alloc_bulk(frames, frames_.data(), burst_size) == 0;
    if (ok_ && rte_pktmbuf_alloc_bulk(rows, rows_.data(), one.slots) != 0) {
      rte_pktmbuf_free_bulk(frames_.data(), burst_size);
      ok_ = false;
    }
  }
  ~Order() {
    if (!ok_) return;
    rte_pktmbuf_free_bulk(frames_.data(), burst_size);
    rte_pktmbuf_free_bulk(rows_.data(), case_.slots);
  }
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;
  bool ok() const { return ok_; }

  /// each(row, payload, is the first of its sum) for a burst.
  template <class Each>
  unsigned burst(Each&& each) {
    for (rte_mbuf* frame : frames_) {
      const std::uint8_t* payload =
          rte_pktmbuf_mtod(frame, const std::uint8_t*) + wire::payload_offset;
      each(rte_pktmbuf_mtod(rows_[first_ + segment_], std::uint8_t*), payload, member_ == 0);
      if (++segment_ < std::min(Feed::block, case_.slots - first_)) continue;
      segment_ = 0;
      if (++member_ < case_.members) continue;
      member_ = 0;
      first_ = first_ + Feed::block < case_.slots ? first_ + Feed::block : 0;
    }
    return burst_size;
  }

 private:
  Case case_;
  std::vector<rte_mbuf*> frames_;
  std::vector<rte_mbuf*> rows_;
  bool ok_ = false;
  unsigned member_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t segment_ = 0;
};

}  // namespace

MemoryPlan plan_of(const Case& one) {
  MemoryWish wish;
  wish.largest_frame = one.segment_bytes + 68;  // Ethernet header, VLAN tag, IPv4, UDP, iSwitch
  wish.largest_segment = one.segment_bytes;
  wish.ports.assign(one.lcores, {queue_depth, queue_depth});
  wish.lcores = one.lcores;
  std::vector<control::JobConfig> jobs;
  for (unsigned j = 1; j <= one.jobs; ++j) jobs.push_back(job_of(one, j));
  // And a row for each slot, for run_additions.
  wish.payload_buffers =
      static_cast<std::uint32_t>(payload_buffers_needed(jobs, false)) + one.slots;
  return plan_memory(wish, jobs);
}

std::unique_ptr<Eal> start_eal(const char* name, std::uint64_t largest_case, unsigned lcores,
                               bool& huge, std::string& error) {
  EalWish wish;
  // What one case leaves in pieces the next cannot use whole.
  wish.memory_bytes = 2 * largest_case + (32u << 20);
  const auto pages = huge_pages();
  huge = huge && !pages.empty() && pages.front().free_bytes() > wish.memory_bytes + (32u << 20);
  wish.huge_pages = huge;
  const std::vector<std::uint16_t> allowed = allowed_cpus();
  if (allowed.size() < lcores) {
    error = text(lcores, " lcores need as many CPUs, and there are ", allowed.size());
    return nullptr;
  }
  const CpuPlan cpus =
      plan_cpus(allowed, {allowed.end() - static_cast<std::ptrdiff_t>(lcores), allowed.end()});
  wish.control_cpus = cpus.control;
  wish.poller_cpus = cpus.pollers;
  wish.prefix = text("iswitch-", name, '-', getpid());
  return Eal::start(wish, error);
}

bool run_on(unsigned lcore, int (*work)(void*), void* argument) {
  if (rte_eal_remote_launch(work, argument, lcore) != 0) return false;
  // EAL's own waiting is busy, on a CPU that others want.
  while (rte_eal_get_lcore_state(lcore) != WAIT) usleep(500);
  rte_eal_wait_lcore(lcore);
  return true;
}

Loop::Loop(const Case& one) : case_(one) {
  for (unsigned shard = 0; shard < one.lcores; ++shard)
    units_.push_back(std::make_unique<Unit>(feed_of(one, shard)));
}

Loop::~Loop() {
  for (const auto& unit : units_) {
    if (unit->lcore) unit->lcore->stop();
  }
}

std::unique_ptr<Loop> Loop::create(const Case& one, unsigned number, std::string& error) {
  std::unique_ptr<Loop> loop(new Loop(one));
  error = loop->set_up(number);
  return error.empty() ? std::move(loop) : nullptr;
}

std::string Loop::set_up(unsigned number) {
  std::string error;
  const MemoryPlan plan = plan_of(case_);
  pools_ = Pools::create(plan, false, error);
  if (!error.empty()) return error;
  // Received frames keep their gradients only in a pool that nobody else takes buffers from.
  received_ = create_pool("feed", plan.frame_buffers, plan.frame_bytes, false);
  if (!received_) return "memory for the feed does not suffice; reserve more huge pages";
  units_.front()->feed.fill(received_.get());

  PortConfig config;
  config.name = "null";
  config.device = text("net_null", number, ",size=", case_.segment_bytes + wire::payload_offset);
  config.mtu = static_cast<std::uint16_t>(case_.segment_bytes + 50);
  config.transmit = case_.chained ? TransmitMode::chained : TransmitMode::copied;
  port_ =
      std::make_unique<Port>(config, *Device::parse(config.device), feed_of(case_).address.rules);
  error = port_->open(received_.get());
  if (!error.empty()) return error;

  for (unsigned shard = 0; shard < case_.lcores; ++shard) {
    error = set_up_lcore(shard);
    if (!error.empty()) return error;
  }
  if (!start_jobs()) return "the packet loop does not take the jobs";
  for (const auto& unit : units_) {
    unit->lcore->stop();
    unit->lcore->set_ports(1, 1);
  }
  return {};
}

std::string Loop::set_up_lcore(unsigned shard) {
  Unit& unit = *units_[shard];
  const auto queue = static_cast<std::uint16_t>(shard);
  LcoreConfig config;
  config.id = poller_lcore + shard;
  config.pipeline.address = feed_of(case_).address;
  config.pipeline.shard = queue;
  config.poll_busy = true;
  config.stage_clock = &unit.stages;
  std::string error;
  unit.lcore = Lcore::create(config, pools_, error);
  if (!unit.lcore) return error;
  unit.lcore->prepare_port(0, {port_->traits(), queue}, {queue});
  return unit.lcore->launch() ? std::string() : "DPDK refuses to start the packet loop";
}

bool Loop::order(const datapath::Order& what) {
  for (const auto& unit : units_) {
    if (!order(*unit->lcore, what)) return false;
  }
  return true;
}

bool Loop::order(Lcore& lcore, const datapath::Order& what) {
  datapath::Order order = what;
  order.number = ++orders_;
  if (!lcore.put_order(order)) return false;
  const Time deadline = monotonic_now() + 5 * second;
  datapath::Answer answer;
  while (!lcore.take_answer(answer)) {
    if (monotonic_now() > deadline) return false;
    usleep(100);
  }
  return answer.ok;
}

bool Loop::start_jobs() {
  for (unsigned j = 1; j <= case_.jobs; ++j) {
    const control::JobConfig job = job_of(case_, j);
    datapath::JobSpec spec;
    spec.id = job.id;
    spec.slots = job.slots;
    spec.segment_bytes = job.segment_bytes;
    spec.history = control::history_in_force(job);
    bool ok = order({0, job.id, datapath::Install{spec}});
    for (unsigned m = 0; ok && m < case_.members; ++m)
      ok = order({0, job.id, datapath::PutMember{units_.front()->feed.member(m)}});
    if (!ok || !order({0, job.id, datapath::Start{1}})) return false;
  }
  return true;
}

Slice Loop::run(double seconds) {
  const std::uint16_t ethdev = port_->traits().ethdev;
  std::vector<std::pair<const rte_eth_rxtx_callback*, const rte_eth_rxtx_callback*>> callbacks;
  const auto queues = static_cast<std::uint16_t>(units_.size());
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    Feed& feed = units_[queue]->feed;
    callbacks.emplace_back(rte_eth_add_rx_callback(ethdev, queue, on_receive, &feed),
                           rte_eth_add_tx_callback(ethdev, queue, on_transmit, &feed));
  }
  for (const auto& unit : units_) {
    unit->from = unit->feed.progress();
    unit->lcore->launch();
  }
  // The first samples are the loop getting warm.
  for (const auto& unit : units_) {
    const std::uint64_t warm =
        unit->from.generated + 5 * Feed::sample_interval * std::uint64_t{burst_size};
    const Time give_up = monotonic_now() + second;
    do {
      usleep(100);
      unit->from = unit->feed.progress();
    } while (unit->from.generated < warm && monotonic_now() < give_up);
  }
  usleep(static_cast<useconds_t>(seconds * 1e6));
  Slice slice;
  for (const auto& unit : units_) {
    const Feed::Progress to = unit->feed.progress();
    slice.contributions += static_cast<double>(to.generated - unit->from.generated);
    slice.nanoseconds += static_cast<double>(to.cpu_nanoseconds - unit->from.cpu_nanoseconds);
  }
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    units_[queue]->lcore->stop();
    rte_eth_remove_rx_callback(ethdev, queue, callbacks[queue].first);
    rte_eth_remove_tx_callback(ethdev, queue, callbacks[queue].second);
  }
  return slice;
}

template <class Work>
Slice Loop::run_work(double seconds, Work& work) {
  TimedWork<Work> timed{work, static_cast<Time>(seconds * second), {}};
  run_on(poller_lcore, &TimedWork<Work>::entry, &timed);
  return timed.slice;
}

std::vector<double> Loop::run_stages(double seconds) {
  Unit& unit = *units_.front();
  const std::uint64_t before = unit.feed.generated();
  unit.stages.start();
  run(seconds);
  unit.stages.on = false;
  std::vector<double> out;
  for (const std::uint64_t cycles : unit.stages.cycles)
    out.push_back(static_cast<double>(cycles) /
                  static_cast<double>(unit.feed.generated() - before));
  return out;
}

Slice Loop::run_receive(double seconds) {
  const std::uint16_t ethdev = port_->traits().ethdev;
  auto work = [ethdev] {
    std::array<rte_mbuf*, burst_size> burst;
    const unsigned count = rte_eth_rx_burst(ethdev, 0, burst.data(), burst_size);
    rte_pktmbuf_free_bulk(burst.data(), count);
    return count;
  };
  return run_work(seconds, work);
}

Slice Loop::run_feed(double seconds) {
  Feed feed(feed_of(case_));
  const std::uint16_t ethdev = port_->traits().ethdev;
  const auto* callback = rte_eth_add_rx_callback(ethdev, 0, on_receive, &feed);
  const Slice slice = run_receive(seconds);
  rte_eth_remove_rx_callback(ethdev, 0, callback);
  return slice;
}

Slice Loop::run_additions(double seconds) {
  Order order(case_, received_.get(), pools_.payloads.get());
  if (!order.ok()) return {};
  const pipeline::Kernels& kernels = pipeline::best_kernels();
  const std::size_t count = case_.segment_bytes / sizeof(float);
  auto work = [&] {
    return order.burst([&](std::uint8_t* row, const std::uint8_t* payload, bool first) {
      (first ? kernels.open : kernels.add)(row, payload, count);
    });
  };
  return run_work(seconds, work);
}

Slice Loop::run_checksums(double seconds) {
  Order order(case_, received_.get(), pools_.payloads.get());
  if (!order.ok()) return {};
  const auto sum = wire::checksum_variants().back().sum;
  volatile wire::PartialSum total = 0;
  auto work = [&] {
    return order.burst([&](std::uint8_t*, const std::uint8_t* payload, bool) {
      total = total + sum({payload, case_.segment_bytes});
    });
  };
  return run_work(seconds, work);
}

std::uint64_t Loop::results() const {
  std::uint64_t sum = 0;
  for (const auto& unit : units_) sum += unit->feed.results();
  return sum;
}

std::string Loop::verify() const {
  for (const auto& unit : units_) {
    const Feed& feed = unit->feed;
    if (feed.wrong() != 0) return text(feed.wrong(), " results were wrong");
    const pipeline::Counters& counters = unit->lcore->pipeline().counters();
    const std::uint64_t added = counters.get(pipeline::Counter::aggregate_added);
    if (feed.generated() != added)
      return text(feed.generated() - added, " of ", feed.generated(),
                  " contributions were not added");
    // The last block of each job may be half sent.
    const std::uint64_t most_open = std::uint64_t{Feed::block} * case_.jobs;
    const std::uint64_t sums = feed.generated() / case_.members;
    const std::uint64_t sent = unit->lcore->port_counters(0).tx_frames.get();
    if (feed.results() != sent || sent < (sums - std::min(sums, most_open)) * case_.members)
      return text(feed.results(), " results of ", sums, " sums came out");
    if (feed.results() > 0 && feed.checked_whole() == 0) return "no result was looked at whole";
  }
  return {};
}

}  // namespace iswitch::bench
