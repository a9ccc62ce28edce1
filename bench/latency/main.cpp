// How long the switch takes: from handing over the contribution that completes a sum to the first
// result out of the port, through rings (net_ring), both ways and both cores' caches included. One
// lcore polls as in switchd; another sends and looks. Unloaded: nothing else is on its way. At half
// load: contributions to another job at half of the rate that the two carry. JSON.
#include <fcntl.h>
#include <rte_cycles.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_pause.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/loop/loop.h"
#include "switchd/dataplane/machine.h"
#include "switchd/log.h"
#include "switchd/text.h"

namespace {

using namespace iswitch;
using namespace iswitch::bench;
using namespace iswitch::switchd;

constexpr unsigned burst_size = 32;
constexpr unsigned ring_size = 1024;
constexpr std::uint32_t background_slots = 256;
constexpr wire::JobId probe_job = 1;
constexpr wire::JobId background_job = 2;
constexpr unsigned prober_lcore = poller_lcore + 1;
constexpr double patience = 0.1;  // seconds for a result
constexpr unsigned most_lost = 50;

struct Wish {
  unsigned members = 4;
  std::uint32_t segment_bytes = 1440;
  std::uint32_t samples = 100'000;
};

FeedConfig feed_config(const Wish& wish, wire::JobId job, std::uint32_t slots) {
  FeedConfig config;
  config.address.mac = {{2, 0, 0, 0, 0, 0xFE}};
  config.address.rules.ip = {0x0A4D00FE};
  config.first_job = job;
  config.members = wish.members;
  config.segment_bytes = wish.segment_bytes;
  config.slots = slots;
  return config;
}

/// How often the two threads have been put onto a processor, as the kernel counts it: a probe
/// during which that changed has measured the machine's other work too.
class Switches {
 public:
  Switches() {
    for (const char* name : {"rte-worker-1", "rte-worker-2"}) add(name);
  }
  ~Switches() {
    for (const int file : files_) close(file);
  }
  Switches(const Switches&) = delete;
  Switches& operator=(const Switches&) = delete;

  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const int file : files_) {
      std::array<char, 128> line{};
      if (pread(file, line.data(), line.size() - 1, 0) <= 0) continue;
      // Time on a processor, time waited for one, times put onto one.
      char* at = line.data();
      std::strtoull(at, &at, 10);
      std::strtoull(at, &at, 10);
      sum += std::strtoull(at, &at, 10);
    }
    return sum;
  }

 private:
  void add(const std::string& wanted) {
    std::error_code error;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
      std::ifstream comm(task.path() / "comm");
      std::string name;
      if (!std::getline(comm, name) || name != wanted) continue;
      const int file = open((task.path() / "schedstat").c_str(), O_RDONLY | O_CLOEXEC);
      if (file >= 0) files_.push_back(file);
    }
  }
  std::vector<int> files_;
};

/// Nanoseconds.
struct Latencies {
  std::vector<double> all;
  std::vector<double> undisturbed;  ///< both threads stayed on their processors
};

/// The far end of the port's two rings. Everything runs on one thread.
class Prober {
 public:
  Prober(const Wish& wish, rte_ring* in, rte_ring* out, rte_mempool* frames)
      : wish_(wish),
        in_(in),
        out_(out),
        frames_(frames),
        probe_(feed_config(wish, probe_job, 1)),
        background_(feed_config(wish, background_job, background_slots)) {
    probe_.fill(frames);
  }

  const Feed& feed(wire::JobId job) const { return job == probe_job ? probe_ : background_; }

  bool unloaded() {
    for (std::uint32_t i = 0; i < wish_.samples; ++i) {
      send(probe_, wish_.members - 1);
      while (rte_ring_count(in_) > 0) rte_pause();
      rest(2'000);
      if (!probe()) return false;
    }
    return true;
  }

  /// Contributions a second that the two carry when the ring is never empty.
  double capacity(double seconds) {
    const std::uint64_t begin = rte_rdtsc();
    const auto end = begin + static_cast<std::uint64_t>(seconds * hertz_);
    const std::uint64_t before = background_.generated();
    while (rte_rdtsc() < end) {
      if (rte_ring_free_count(in_) >= ring_size / 2) send(background_, burst_size);
      drain();
    }
    const double rate = static_cast<double>(background_.generated() - before) / seconds;
    while (drain() > 0 || rte_ring_count(in_) > 0) {
    }
    return rate;
  }

  /// Bursts of another job at `rate` contributions a second, a probe after every few.
  bool loaded(double rate) {
    const auto gap = static_cast<std::uint64_t>(burst_size / rate * hertz_);
    std::uint64_t next = rte_rdtsc();
    for (std::uint64_t bursts = 1; latencies_.all.size() < wish_.samples; ++bursts) {
      while (rte_rdtsc() < next) drain();
      // What the machine kept us from sending is not caught up with: that would be a burst.
      next = std::max(next + gap, rte_rdtsc());
      send(background_, burst_size);
      if (bursts % 4 == 0) send(probe_, wish_.members - 1);
      if (bursts % 4 != 2 || bursts < 4) continue;
      // Somewhere between two bursts.
      const std::uint64_t when = rte_rdtsc() + gap * (bursts * 7 % 16) / 16;
      while (rte_rdtsc() < when) drain();
      if (!probe()) return false;
    }
    return true;
  }

  unsigned lost() const { return lost_; }
  Latencies take_latencies() { return std::exchange(latencies_, {}); }

 private:
  /// The contribution that completes the sum, and the time to the first of its results.
  bool probe() {
    rte_mbuf* frame = rte_pktmbuf_alloc(frames_);
    if (frame == nullptr) return false;
    make(probe_, &frame, 1);
    const std::uint64_t results = probe_.results();
    const std::uint64_t switches = switches_.count();
    const std::uint64_t sent = rte_rdtsc();
    if (rte_ring_sp_enqueue(in_, frame) != 0) return false;
    std::uint64_t seen = 0;
    while (seen == 0 && waited(sent) < patience) seen = first_result();
    if (seen == 0) {
      ++lost_;
      return lost_ < most_lost;
    }
    latencies_.all.push_back(static_cast<double>(seen - sent) / hertz_ * 1e9);
    if (switches_.count() == switches) latencies_.undisturbed.push_back(latencies_.all.back());
    while (probe_.results() < results + wish_.members && waited(sent) < patience) drain();
    return true;
  }

  double waited(std::uint64_t since) const {
    return static_cast<double>(rte_rdtsc() - since) / hertz_;
  }

  /// When the first probe's result was in hand; 0: there was none.
  std::uint64_t first_result() {
    std::array<rte_mbuf*, burst_size> burst;
    const unsigned count = take(burst);
    std::uint64_t seen = 0;
    for (unsigned i = 0; i < count && seen == 0; ++i) {
      if (job_of(burst[i]) == probe_job) seen = rte_rdtsc();
    }
    look_at(burst, count);
    return seen;
  }

  unsigned drain() {
    std::array<rte_mbuf*, burst_size> burst;
    const unsigned count = take(burst);
    look_at(burst, count);
    return count;
  }

  unsigned take(std::array<rte_mbuf*, burst_size>& burst) {
    return rte_ring_sc_dequeue_burst(out_, reinterpret_cast<void**>(burst.data()), burst_size,
                                     nullptr);
  }

  static wire::JobId job_of(const rte_mbuf* frame) {
    return wire::load_be16(rte_pktmbuf_mtod(frame, const std::uint8_t*) +
                           wire::encapsulation_bytes + 2);
  }

  void look_at(std::array<rte_mbuf*, burst_size>& burst, unsigned count) {
    for (unsigned i = 0; i < count; ++i)
      (job_of(burst[i]) == probe_job ? probe_ : background_).check(&burst[i], 1);
    rte_pktmbuf_free_bulk(burst.data(), count);
  }

  void make(Feed& feed, rte_mbuf** frames, unsigned count) const {
    for (unsigned i = 0; i < count; ++i) {
      frames[i]->data_len = static_cast<std::uint16_t>(wire::payload_offset + wish_.segment_bytes);
      frames[i]->pkt_len = frames[i]->data_len;
    }
    feed.generate(frames, count);
  }

  void send(Feed& feed, unsigned count) {
    std::array<rte_mbuf*, burst_size> burst;
    while (count > 0) {
      const unsigned now = std::min(count, burst_size);
      while (rte_ring_free_count(in_) < now) drain();
      while (rte_pktmbuf_alloc_bulk(frames_, burst.data(), now) != 0) drain();
      make(feed, burst.data(), now);
      rte_ring_sp_enqueue_bulk(in_, reinterpret_cast<void**>(burst.data()), now, nullptr);
      count -= now;
    }
  }

  void rest(double nanoseconds) const {
    const auto end = rte_rdtsc() + static_cast<std::uint64_t>(nanoseconds * hertz_ / 1e9);
    while (rte_rdtsc() < end) rte_pause();
  }

  const Wish wish_;
  rte_ring* in_;
  rte_ring* out_;
  rte_mempool* frames_;
  Feed probe_;
  Feed background_;
  const double hertz_ = static_cast<double>(rte_get_tsc_hz());
  const Switches switches_;
  Latencies latencies_;
  unsigned lost_ = 0;  // results pushed out of a full ring while this thread did not run
};

struct Run {
  Prober& prober;
  Latencies unloaded{};
  Latencies loaded{};
  double capacity = 0;
  std::string error{};

  static int entry(void* self) {
    auto& run = *static_cast<Run*>(self);
    if (!run.prober.unloaded()) run.error = "no result came back";
    run.unloaded = run.prober.take_latencies();
    run.capacity = run.prober.capacity(0.5);
    if (run.error.empty() && !run.prober.loaded(run.capacity / 2))
      run.error = "no result came back under load";
    run.loaded = run.prober.take_latencies();
    return 0;
  }
};

nlohmann::json summary(std::vector<double>& latencies) {
  if (latencies.empty()) return {{"samples", 0}};
  std::sort(latencies.begin(), latencies.end());
  const auto at = [&](double share) {
    const auto place = static_cast<std::size_t>(share * static_cast<double>(latencies.size()));
    return latencies[std::min(place, latencies.size() - 1)];
  };
  nlohmann::json out{{"samples", latencies.size()}, {"p50_ns", at(0.5)},     {"p90_ns", at(0.9)},
                     {"p99_ns", at(0.99)},          {"p99_9_ns", at(0.999)}, {"max_ns", at(1)}};
  for (double share = 0.001; share < 1; share += 0.001) out["curve_ns"].push_back(at(share));
  return out;
}

nlohmann::json summary(Latencies& latencies) {
  return {{"all", summary(latencies.all)}, {"undisturbed", summary(latencies.undisturbed)}};
}

std::string start_port(std::uint16_t ethdev, rte_mempool* frames) {
  const rte_eth_conf conf{};
  const bool up =
      rte_eth_dev_configure(ethdev, 1, 1, &conf) == 0 &&
      rte_eth_rx_queue_setup(ethdev, 0, ring_size, SOCKET_ID_ANY, nullptr, frames) == 0 &&
      rte_eth_tx_queue_setup(ethdev, 0, ring_size, SOCKET_ID_ANY, nullptr) == 0 &&
      rte_eth_dev_start(ethdev) == 0;
  return up ? std::string() : "the port over rings does not start";
}

bool order(Lcore& lcore, wire::JobId job, datapath::Order what) {
  what.job = job;
  if (!lcore.put_order(what)) return false;
  datapath::Answer answer;
  const Time deadline = monotonic_now() + 5 * second;
  while (!lcore.take_answer(answer)) {
    if (monotonic_now() > deadline) return false;
    usleep(100);
  }
  return answer.ok;
}

bool start_job(Lcore& lcore, const Feed& feed, const Wish& wish, wire::JobId job,
               std::uint32_t slots) {
  datapath::JobSpec spec;
  spec.id = job;
  spec.slots = slots;
  spec.segment_bytes = wish.segment_bytes;
  bool ok = order(lcore, job, {0, 0, datapath::Install{spec}});
  for (unsigned m = 0; ok && m < wish.members; ++m)
    ok = order(lcore, job, {0, 0, datapath::PutMember{feed.member(m)}});
  return ok && order(lcore, job, {0, 0, datapath::Start{1}});
}

std::string measure(const Wish& wish, bool busy, nlohmann::json& out) {
  const Case size{.members = wish.members,
                  .segment_bytes = wish.segment_bytes,
                  .slots = 2 * background_slots,
                  .chained = false};
  const MemoryPlan plan = plan_of(size);
  std::string error;
  const Pools pools = Pools::create(plan, false, error);
  if (!error.empty()) return error;
  const Pool feed =
      create_pool("feed", 2 * ring_size + plan.frame_buffers, plan.frame_bytes, false);
  rte_ring* in = rte_ring_create("in", ring_size, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
  rte_ring* back = rte_ring_create("back", ring_size, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
  if (!feed || in == nullptr || back == nullptr) return "memory for the rings does not suffice";
  const int ethdev = rte_eth_from_rings(busy ? "busy" : "adaptive", &in, 1, &back, 1, 0);
  if (ethdev < 0) return "DPDK makes no port of the rings";
  error = start_port(static_cast<std::uint16_t>(ethdev), feed.get());

  Prober prober(wish, in, back, feed.get());
  LcoreConfig config;
  config.id = poller_lcore;
  config.pipeline.address = feed_config(wish, probe_job, 1).address;
  config.poll_busy = busy;
  auto lcore = error.empty() ? Lcore::create(config, pools, error) : nullptr;
  if (!error.empty()) return error;
  PortTraits traits;
  traits.ethdev = static_cast<std::uint16_t>(ethdev);
  traits.may_share = false;
  traits.longest_frame = wish.segment_bytes + 68;
  lcore->prepare_port(0, {traits}, {0});
  if (!lcore->launch() || !lcore->set_ports(1, 1) ||
      !start_job(*lcore, prober.feed(probe_job), wish, probe_job, 1) ||
      !start_job(*lcore, prober.feed(background_job), wish, background_job, background_slots))
    return "the packet loop does not take the jobs";

  Run run{prober};
  run_on(prober_lcore, &Run::entry, &run);
  lcore->stop();
  const std::uint64_t full = lcore->port_counters(0).tx_full.get();
  lcore.reset();
  rte_eth_dev_stop(traits.ethdev);
  rte_eth_dev_close(traits.ethdev);
  for (rte_ring* ring : {in, back}) {
    void* frame = nullptr;
    while (rte_ring_sc_dequeue(ring, &frame) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame));
    rte_ring_free(ring);
  }
  if (!run.error.empty()) return run.error;
  for (const wire::JobId job : {probe_job, background_job}) {
    if (prober.feed(job).wrong() != 0) return text(prober.feed(job).wrong(), " results were wrong");
    if (prober.feed(job).checked_whole() == 0) return "no result was looked at whole";
  }
  out.push_back({{"poll", busy ? "busy" : "adaptive"},
                 {"members", wish.members},
                 {"segment_bytes", wish.segment_bytes},
                 {"unloaded", summary(run.unloaded)},
                 {"half_load", summary(run.loaded)},
                 {"full_load_mpps", run.capacity / 1e6},
                 {"results_lost", full},
                 {"probes_lost", prober.lost()}});
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("the switch's latency over rings, unloaded and at half load; JSON", "latency");
  Wish wish;
  app.add_option("--samples", wish.samples, "of each kind")->check(CLI::Range(100, 100'000'000));
  app.add_option("--members", wish.members, "of the job")->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);

  start_log(LogLevel::warning);
  wish.segment_bytes = 1440;
  const Case largest{.members = wish.members,
                     .segment_bytes = 8928,
                     .slots = 2 * background_slots,
                     .chained = false};
  bool huge_pages = true;
  std::string error;
  const auto eal = start_eal("latency", 2 * plan_of(largest).total_bytes(), 2, huge_pages, error);
  nlohmann::json out = nlohmann::json::array();
  for (const bool busy : {true, false}) {
    if (eal && error.empty()) error = measure(wish, busy, out);
  }
  if (!error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  std::printf("%s\n", nlohmann::json{{"huge_pages", huge_pages}, {"cases", out}}.dump().c_str());
  return 0;
}
