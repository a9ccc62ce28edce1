// switchd's own packet loop over net_null, fed with prepared contributions: how many a core sums,
// with every result looked at. One row a case; `--json` gives the same for programs. Needs no
// rights; huge pages are used where enough are free.
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/line-rate/feed.h"
#include "switchd/dataplane/eal.h"
#include "switchd/dataplane/lcore.h"
#include "switchd/dataplane/machine.h"
#include "switchd/dataplane/pools.h"
#include "switchd/dataplane/port.h"
#include "switchd/log.h"
#include "switchd/memory_plan.h"

namespace {

using namespace iswitch;
using namespace iswitch::switchd;
using bench::Feed;
using bench::FeedConfig;

struct Case {
  unsigned members = 4;
  std::uint32_t segment_bytes = 1440;
  std::uint32_t slots = 1024;
  bool chained = true;
};

struct Figures {
  double mpps = 0;           ///< contributions a second, millions
  double gradient_gbps = 0;  ///< their payload
  double cpu_share = 0;      ///< of a core, that the machine gave the lcore
  double cycles = 0;       ///< of the lcore's own time for a contribution, feed and check included
  double feed_cycles = 0;  ///< of these the feed's own: receive, headers, free
  std::uint64_t results = 0;
  std::uint64_t wrong = 0;
  bool complete = false;  ///< every contribution was summed, every result came out
  /// What a core of its own would have carried.
  double mpps_of_a_core() const { return cpu_share > 0 ? mpps / cpu_share : 0; }
};

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

datapath::SwitchAddress switch_address() {
  datapath::SwitchAddress address;
  address.mac = {{2, 0, 0, 0, 0, 0xFE}};
  address.rules.ip = {0x0A4D00FE};
  return address;
}

control::JobConfig job_of(const Case& one) {
  control::JobConfig job;
  job.id = 1;
  job.members = static_cast<std::uint16_t>(one.members);
  job.slots = one.slots;
  job.segment_bytes = one.segment_bytes;
  return job;
}

MemoryPlan plan_of(const Case& one) {
  MemoryWish wish;
  wish.largest_frame = one.segment_bytes + 68;  // Ethernet header, VLAN tag, IPv4, UDP, iSwitch
  wish.largest_segment = one.segment_bytes;
  wish.ports = {{queue_depth, queue_depth}};
  return plan_memory(wish, {job_of(one)});
}

double cycles_between(const Feed::Progress& from, const Feed::Progress& to) {
  if (to.generated <= from.generated) return 0;
  return static_cast<double>(to.cpu_nanoseconds - from.cpu_nanoseconds) *
         static_cast<double>(rte_get_tsc_hz()) / 1e9 /
         static_cast<double>(to.generated - from.generated);
}

/// Receive, headers, free: what the feed costs on this machine by itself.
double measure_feed(const FeedConfig& config, std::uint16_t ethdev, double seconds) {
  Feed feed(config);
  const auto* callback = rte_eth_add_rx_callback(ethdev, 0, on_receive, &feed);
  std::array<rte_mbuf*, pipeline::max_burst> burst;
  const Time end = monotonic_now() + static_cast<Time>(seconds * second);
  Feed::Progress start{};
  while (monotonic_now() < end) {
    for (int i = 0; i < 64; ++i) {
      const unsigned count = rte_eth_rx_burst(ethdev, 0, burst.data(), burst.size());
      rte_pktmbuf_free_bulk(burst.data(), count);
    }
    if (start.generated == 0) start = feed.progress();
  }
  rte_eth_remove_rx_callback(ethdev, 0, callback);
  return cycles_between(start, feed.progress());
}

bool order(Lcore& lcore, datapath::Order what, std::uint64_t& number) {
  what.number = ++number;
  what.job = 1;
  if (!lcore.put_order(what)) return false;
  const Time deadline = monotonic_now() + 5 * second;
  datapath::Answer answer;
  while (!lcore.take_answer(answer)) {
    if (monotonic_now() > deadline) return false;
    usleep(100);
  }
  return answer.ok;
}

bool set_up_job(Lcore& lcore, const Case& one, const Feed& feed) {
  const control::JobConfig job = job_of(one);
  datapath::JobSpec spec;
  spec.id = job.id;
  spec.slots = job.slots;
  spec.segment_bytes = job.segment_bytes;
  std::uint64_t number = 0;
  bool ok = order(lcore, {0, 1, datapath::Install{spec}}, number);
  for (unsigned m = 0; ok && m < one.members; ++m) {
    ok = order(lcore, {0, 1, datapath::PutMember{feed.member(m)}}, number);
  }
  return ok && order(lcore, {0, 1, datapath::Start{1}}, number);
}

/// One case; `error` is one line.
Figures run(const Case& one, double seconds, unsigned number, std::string& error) {
  Figures out;
  FeedConfig wish;
  wish.address = switch_address();
  wish.members = one.members;
  wish.segment_bytes = one.segment_bytes;
  wish.slots = one.slots;
  const Pools pools = Pools::create(plan_of(one), false, error);
  if (!error.empty()) return out;
  Feed feed(wish);
  // Received frames keep their gradients only in a pool that nobody else takes buffers from.
  const MemoryPlan plan = plan_of(one);
  const Pool received_frames = create_pool("feed", plan.frame_buffers, plan.frame_bytes, false);
  if (!received_frames) {
    error = "memory for the feed does not suffice; reserve more huge pages";
    return out;
  }
  feed.fill(received_frames.get());

  PortConfig config;
  config.name = "null";
  config.device = text("net_null", number, ",size=", one.segment_bytes + wire::payload_offset);
  config.mtu = static_cast<std::uint16_t>(one.segment_bytes + 50);
  config.transmit = one.chained ? TransmitMode::chained : TransmitMode::copied;
  Port port(config, *Device::parse(config.device), wish.address.rules);
  error = port.open(received_frames.get());
  if (!error.empty()) return out;
  const std::uint16_t ethdev = port.traits().ethdev;
  out.feed_cycles = measure_feed(wish, ethdev, seconds / 4);

  LcoreConfig lcore_config;
  lcore_config.id = poller_lcore;
  lcore_config.pipeline.address = wish.address;
  lcore_config.poll_busy = true;
  const auto lcore = Lcore::create(lcore_config, pools, error);
  if (!lcore) return out;
  lcore->prepare_port(0, {port.traits()}, {0});
  const bool started = lcore->launch() && set_up_job(*lcore, one, feed);
  if (!started) {
    error = "the packet loop does not take the job";
    return out;
  }
  // From here on the callbacks belong to the lcore.
  const auto* received = rte_eth_add_rx_callback(ethdev, 0, on_receive, &feed);
  const auto* sent = rte_eth_add_tx_callback(ethdev, 0, on_transmit, &feed);
  lcore->set_ports(1, 1);
  usleep(100'000);  // caches and branch predictors warm
  const Feed::Progress from = feed.progress();
  const Time begin = monotonic_now();
  usleep(static_cast<useconds_t>(seconds * 1e6));
  const Feed::Progress to = feed.progress();
  const double elapsed = static_cast<double>(monotonic_now() - begin) / second;
  lcore->stop();
  rte_eth_remove_rx_callback(ethdev, 0, received);
  rte_eth_remove_tx_callback(ethdev, 0, sent);

  out.mpps = static_cast<double>(to.generated - from.generated) / elapsed / 1e6;
  out.gradient_gbps = out.mpps * one.segment_bytes * 8 / 1e3;
  out.cpu_share = static_cast<double>(to.cpu_nanoseconds - from.cpu_nanoseconds) / 1e9 / elapsed;
  out.cycles = cycles_between(from, to);
  const pipeline::Counters& counters = lcore->pipeline().counters();
  out.results = feed.results();
  out.wrong = feed.wrong();
  const std::uint64_t sums =
      feed.generated() / one.members / 16 * 16;  // the last block may be half sent
  out.complete = feed.generated() == counters.get(pipeline::Counter::aggregate_added) &&
                 feed.results() == lcore->port_counters(0).tx_frames.get() &&
                 feed.results() >= (sums - 16) * one.members && feed.checked_whole() > 0;
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("switchd's packet loop over net_null, sums verified", "line-rate");
  double seconds = 2;
  bool as_json = false;
  app.add_option("--seconds", seconds, "for each case")->check(CLI::Range(0.1, 60.0));
  app.add_flag("--json", as_json, "for programs");
  CLI11_PARSE(app, argc, argv);

  start_log(LogLevel::warning);
  std::vector<Case> cases;
  for (const unsigned members : {2u, 4u, 8u, 32u}) cases.push_back({members, 1440, 1024, true});
  cases.push_back({4, 1440, 1024, false});
  cases.push_back({4, 8928, 256, true});

  EalWish wish;
  for (const Case& one : cases)
    wish.memory_bytes = std::max(wish.memory_bytes, 2 * plan_of(one).total_bytes());
  wish.memory_bytes += 32u << 20;  // what one case leaves in pieces the next cannot use whole
  const auto pages = huge_pages();
  wish.huge_pages = !pages.empty() && pages.front().free_bytes() > wish.memory_bytes + (32u << 20);
  const CpuPlan cpus = plan_cpus(allowed_cpus());
  wish.control_cpus = cpus.control;
  wish.poller_cpus = cpus.pollers;
  wish.prefix = text("iswitch-line-rate-", getpid());
  std::string error;
  const auto eal = Eal::start(wish, error);
  if (!eal) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  if (!as_json) {
    std::printf(
        "one lcore, net_null, UDP checksums verified and made in software, %s huge pages\n"
        "members  segment  transmit    Mpps  gradient Gb/s  CPU share  Mpps a core  Gb/s a core  "
        "cycles  "
        "of these feed  results\n",
        wish.huge_pages ? "with" : "without");
  }
  nlohmann::json all = nlohmann::json::array();
  bool right = true;
  unsigned number = 0;
  for (const Case& one : cases) {
    const Figures figures = run(one, seconds, number++, error);
    if (!error.empty()) {
      std::fprintf(stderr, "%s\n", error.c_str());
      return 1;
    }
    const bool verified = figures.wrong == 0 && figures.complete;
    right = right && verified;
    if (as_json) {
      all.push_back({{"members", one.members},
                     {"segment_bytes", one.segment_bytes},
                     {"slots", one.slots},
                     {"transmit", one.chained ? "chained" : "copied"},
                     {"mpps", figures.mpps},
                     {"gradient_gbps", figures.gradient_gbps},
                     {"cpu_share", figures.cpu_share},
                     {"mpps_of_a_core", figures.mpps_of_a_core()},
                     {"cycles_per_contribution", figures.cycles},
                     {"feed_cycles_per_contribution", figures.feed_cycles},
                     {"results", figures.results},
                     {"wrong_results", figures.wrong},
                     {"complete", figures.complete},
                     {"huge_pages", wish.huge_pages}});
    } else {
      const double core = figures.mpps_of_a_core();
      std::printf("%7u %8u  %-8s %7.2f %14.1f %9.0f%% %12.2f %12.1f %7.0f %14.0f  %s\n",
                  one.members, one.segment_bytes, one.chained ? "chained" : "copied", figures.mpps,
                  figures.gradient_gbps, figures.cpu_share * 100, core,
                  core * one.segment_bytes * 8 / 1e3, figures.cycles, figures.feed_cycles,
                  verified ? "right" : "WRONG");
    }
  }
  if (as_json) std::printf("%s\n", all.dump(2).c_str());
  return right ? 0 : 1;
}
