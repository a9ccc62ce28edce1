#include "switchd/dataplane/dataplane.h"

#include <unistd.h>

#include <algorithm>

#include "switchd/dataplane/machine.h"
#include "switchd/log.h"
#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

// What DPDK takes of huge pages beside the pools: queues, rings, allocator headers.
constexpr std::uint64_t huge_page_slack = 24ull << 20;
// Frames that wait for room towards an lcore; a second's worth of the protocol's rate limits.
constexpr std::size_t most_waiting_frames = 8192;

std::string list(const std::vector<std::uint16_t>& cpus) {
  std::string out;
  for (const std::uint16_t cpu : cpus) out += text(out.empty() ? "" : ", ", cpu);
  return out;
}

std::uint64_t mebibytes(std::uint64_t bytes) { return (bytes + (1u << 20) - 1) >> 20; }

/// Empty when decided.
std::string choose_huge_pages(const std::optional<bool>& wanted, std::uint64_t bytes,
                              bool& chosen) {
  const std::uint64_t needed = bytes + huge_page_slack;
  const std::vector<HugePages> sizes = huge_pages();
  const std::uint64_t free = sizes.empty() ? 0 : sizes.front().free_bytes();
  chosen = wanted.value_or(free >= needed);
  if (chosen && free < needed) {
    return text("huge pages: ", mebibytes(needed), " MiB are needed, ", mebibytes(free),
                " MiB are free; reserve more (sysctl vm.nr_hugepages), or leave \"huge_pages\" at "
                "\"auto\"");
  }
  if (!wanted && !chosen && !sizes.empty()) {
    log(LogLevel::info, "huge pages: ", mebibytes(needed), " MiB are needed, ", mebibytes(free),
        " MiB are free: running without");
  }
  return {};
}

}  // namespace

std::unique_ptr<Dataplane> Dataplane::start(const Config& config, std::string& error) {
  std::unique_ptr<Dataplane> out(new Dataplane);
  error = out->open_all(config);
  return error.empty() ? std::move(out) : nullptr;
}

Dataplane::~Dataplane() { stop(); }

std::string Dataplane::open_all(const Config& config) {
  for (const PortConfig& port : config.ports) {
    std::string error = check_interface(port);
    if (!error.empty()) return error;
  }
  const std::vector<std::uint16_t> allowed = allowed_cpus();
  if (config.poller_cpu &&
      !std::binary_search(allowed.begin(), allowed.end(), *config.poller_cpu)) {
    return text("lcores: CPU ", *config.poller_cpu, " is not among those this process may use (",
                list(allowed), ")");
  }
  const CpuPlan cpus = plan_cpus(allowed, config.poller_cpu ? *config.poller_cpu : -1);
  std::string error = complete_devices(config);
  if (error.empty()) error = plan(config);
  if (!error.empty()) return error;

  EalWish wish;
  bool dma = false;
  for (const Device& device : devices_) {
    if (device.is_pci()) wish.pci_devices.push_back(device.text());
    dma = dma || device.is_pci();
    wish.needs_shared_segments =
        wish.needs_shared_segments || device.is("net_memif") || device.is("net_virtio_user");
  }
  wish.memory_bytes = memory_.total_bytes();
  wish.huge_pages = huge_pages_;
  wish.control_cpus = cpus.control;
  wish.poller_cpu = cpus.poller;
  wish.prefix = text("iswitch-", config.name, '-', getpid());
  eal_ = Eal::start(wish, error);
  if (!eal_) return error;
  pools_ = Pools::create(memory_, dma, error);
  if (error.empty()) {
    for (std::size_t i = 0; i < config.ports.size(); ++i) {
      ports_.push_back(std::make_unique<Port>(config.ports[i], devices_[i]));
    }
    error = open_ports();
  }
  return error.empty() ? launch(config, cpus) : error;
}

std::string Dataplane::plan(const Config& config) {
  MemoryWish wish;
  for (std::size_t i = 0; i < config.ports.size(); ++i) {
    wish.largest_frame =
        std::max(wish.largest_frame, devices_[i].largest_frame(config.ports[i].mtu));
  }
  wish.largest_segment = largest_segment(config.ports);
  wish.ports.assign(config.ports.size(), {queue_depth, queue_depth});
  wish.frame_buffers = config.memory.frame_buffers.value_or(0);
  wish.payload_buffers = config.memory.payload_buffers.value_or(0);
  memory_ = plan_memory(wish, config.jobs, config.parent.has_value());
  return choose_huge_pages(config.memory.huge_pages, memory_.total_bytes(), huge_pages_);
}

std::string Dataplane::complete_devices(const Config& config) {
  std::uint64_t af_packet_ports = 0;
  for (const PortConfig& port : config.ports) {
    devices_.push_back(*Device::parse(port.device));
    if (devices_.back().is("net_af_packet")) ++af_packet_ports;
  }
  if (af_packet_ports == 0) return {};
  const std::uint64_t lockable = lockable_bytes();
  const std::uint64_t share = lockable / af_packet_ports;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (!devices_[i].is("net_af_packet")) continue;
    const std::uint32_t mtu = config.ports[i].mtu;
    const auto ring = af_packet_ring(mtu, share);
    if (!ring) {
      return text("port ", config.ports[i].name, ": its rings need ", af_packet_least_bytes(mtu),
                  " bytes of locked memory, the limit leaves ", share,
                  " a port; raise it (ulimit -l, LimitMEMLOCK=)");
    }
    complete_af_packet(devices_[i], *ring);
  }
  return {};
}

std::string Dataplane::open_ports() {
  for (const auto& port : ports_) {
    std::string error = port->open(pools_.frames.get());
    if (!error.empty()) return error;
  }
  complaints_.resize(ports_.size());
  for (const auto& port : ports_) {
    bool replaced = false;
    links_.push_back(port->probe_link(replaced));
    log(LogLevel::info, "port ", port->config().name, ": ", port->config().device, ", MTU ",
        port->config().mtu, ", link ", link_name(links_.back()), ", results ",
        port->traits().chained ? "chained" : "copied", ", checksums in ",
        port->traits().verifies_checksums ? "hardware" : "software");
  }
  return {};
}

std::string Dataplane::launch(const Config& config, const CpuPlan& cpus) {
  LcoreConfig lcore;
  lcore.id = poller_lcore;
  lcore.pipeline.address = config.address;
  lcore.pipeline.shard = 0;
  lcore.pipeline.mac_age = config.mac_age;
  if (config.parent) lcore.pipeline.parent = config.parent->ip;
  lcore.poll_busy = config.poll_busy;
  lcore.idle_after = config.idle_after;
  std::string error;
  auto made = Lcore::create(lcore, pools_, error);
  if (!made) return error;
  lcores_.push_back(std::move(made));
  lcore_cpus_.push_back(cpus.poller);
  waiting_orders_.resize(lcores_.size());
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    lcores_.back()->prepare_port(static_cast<datapath::PortId>(i), ports_[i]->traits());
  }
  if (!lcores_.back()->launch()) return "DPDK refuses to start the packet loop on its lcore";
  return {};
}

std::string Dataplane::open_to_traffic() {
  constexpr Time deadline = 10 * second;
  const Time start = monotonic_now();
  control::Effects nothing;
  while (!is_drained()) {
    if (monotonic_now() - start > deadline)
      return "the packet loop does not install the jobs in time";
    submit(nothing);
    usleep(200);
  }
  return set_ports() ? std::string() : "the packet loop does not take its ports in time";
}

datapath::PortMask Dataplane::open_mask() const {
  datapath::PortMask mask = 0;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (ports_[i]->is_open()) mask |= datapath::PortMask{1} << i;
  }
  return mask;
}

datapath::PortMask Dataplane::up_mask() const {
  datapath::PortMask mask = 0;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (ports_[i]->is_open() && links_[i] == Link::up) mask |= datapath::PortMask{1} << i;
  }
  return mask;
}

bool Dataplane::set_ports() {
  bool taken = true;
  for (const auto& lcore : lcores_) taken = lcore->set_ports(open_mask(), up_mask()) && taken;
  return taken;
}

void Dataplane::submit(control::Effects& effects) {
  bool orders_wait = false;
  for (std::size_t i = 0; i < lcores_.size(); ++i) {
    auto& waiting = waiting_orders_[i];
    waiting.insert(waiting.end(), effects.orders.begin(), effects.orders.end());
    while (!waiting.empty() && lcores_[i]->put_order(waiting.front())) waiting.pop_front();
    orders_wait = orders_wait || !waiting.empty();
  }
  for (control::OutFrame& frame : effects.frames) {
    if (waiting_frames_.size() < most_waiting_frames) {
      waiting_frames_.push_back(std::move(frame));
    } else {
      ++frames_lost_;
    }
  }
  effects.orders.clear();
  effects.frames.clear();
  // A frame may announce what an order does: it must not overtake it.
  if (orders_wait || lcores_.empty()) return;
  for (; !waiting_frames_.empty(); waiting_frames_.pop_front()) {
    if (!lcores_.front()->put_frame(waiting_frames_.front().port, waiting_frames_.front().bytes)) {
      ++frames_lost_;
    }
  }
}

bool Dataplane::is_drained() const {
  const bool orders_wait = std::any_of(waiting_orders_.begin(), waiting_orders_.end(),
                                       [](const auto& waiting) { return !waiting.empty(); });
  return !orders_wait && waiting_frames_.empty() &&
         std::all_of(lcores_.begin(), lcores_.end(),
                     [](const auto& lcore) { return lcore->is_drained(); });
}

void Dataplane::check_links() {
  bool changed = false;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    Port& port = *ports_[i];
    bool replaced = false;
    Link link = port.probe_link(replaced);
    const bool lost = link == Link::missing || replaced;
    if (lost && port.is_open()) {
      // Nobody may use the device while it is closed: out of service first.
      links_[i] = Link::missing;
      log(LogLevel::warning, "port ", port.config().name, ": interface ", port.interface(),
          " is gone; the port waits for it");
      const datapath::PortMask open = open_mask() & ~(datapath::PortMask{1} << i);
      const datapath::PortMask up = up_mask();
      const bool let_go = std::all_of(lcores_.begin(), lcores_.end(), [&](const auto& lcore) {
        return lcore->set_ports(open, up);
      });
      if (!let_go) continue;  // the lcore hangs in a driver; tried again
      port.close();
      changed = true;
    }
    if (!port.is_open()) {
      if (link != Link::missing) reopen(i);
      changed = changed || port.is_open();
      continue;
    }
    if (link == links_[i]) continue;
    log(LogLevel::warning, "port ", port.config().name, ": link ", link_name(link));
    links_[i] = link;
    changed = true;
  }
  if (changed) set_ports();
}

void Dataplane::reopen(std::size_t i) {
  Port& port = *ports_[i];
  std::string error = check_interface(port.config());
  if (error.empty()) error = port.open(pools_.frames.get());
  if (!error.empty()) {
    // Half made, down, or another MTU: said once, tried again.
    if (error != complaints_[i]) log(LogLevel::info, error, "; the port waits");
    complaints_[i] = error;
    return;
  }
  complaints_[i].clear();
  bool replaced = false;
  links_[i] = port.probe_link(replaced);
  for (const auto& lcore : lcores_) {
    lcore->prepare_port(static_cast<datapath::PortId>(i), port.traits());
  }
  log(LogLevel::warning, "port ", port.config().name, ": interface ", port.interface(),
      " is back, link ", link_name(links_[i]));
}

std::string Dataplane::stop() {
  for (const auto& lcore : lcores_) lcore->stop();
  lcores_.clear();
  ports_.clear();
  std::string leaks = pools_.leaks();
  pools_ = {};
  eal_.reset();
  if (leaks.empty()) return {};
  return text("packet buffers leaked:", leaks);
}

}  // namespace iswitch::switchd
