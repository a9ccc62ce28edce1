#include "switchd/dataplane/dataplane.h"

#include <unistd.h>

#include <algorithm>

#include "switchd/control/arp.h"
#include "switchd/dataplane/machine.h"
#include "switchd/log.h"
#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

// What DPDK takes of huge pages beside the pools: queues, rings, allocator headers.
constexpr std::uint64_t huge_page_slack = 24ull << 20;
// Frames that wait for room towards an lcore; a second's worth of the protocol's rate limits.
constexpr std::size_t most_waiting_frames = 8192;

/// Nothing to say where one lcore does all.
std::string queues_text(const Port& port) {
  const PortTraits& traits = port.traits();
  if (traits.receive_queues == 1 && traits.transmit_queues == 1 && !port.steered()) return {};
  return text(", ", traits.receive_queues, " receive and ", traits.transmit_queues,
              " transmit queues", port.steered() ? ", sorted by the device" : "");
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
  for (const std::uint16_t cpu : config.poller_cpus) {
    if (std::binary_search(allowed.begin(), allowed.end(), cpu)) continue;
    return text("lcores: CPU ", cpu, " is not among those this process may use (", numbers(allowed),
                ")");
  }
  const CpuPlan cpus = plan_cpus(allowed, config.poller_cpus);
  rules_ = config.address.rules;
  address_ = config.address;
  rules_.ports = static_cast<std::uint16_t>(cpus.pollers.size());
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
  wish.poller_cpus = cpus.pollers;
  wish.prefix = text("iswitch-", config.name, '-', getpid());
  eal_ = Eal::start(wish, error);
  if (!eal_) return error;
  pools_ = Pools::create(memory_, dma, error);
  if (error.empty()) {
    for (std::size_t i = 0; i < config.ports.size(); ++i) {
      ports_.push_back(std::make_unique<Port>(config.ports[i], devices_[i], rules_));
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
  for (const Device& device : devices_) {
    const std::uint32_t queues = device.queues(rules_.ports);
    wish.ports.push_back({(queue_depth + device.kept_buffers()) * queues, queue_depth * queues});
  }
  wish.lcores = rules_.ports;
  wish.frame_buffers = config.memory.frame_buffers.value_or(0);
  wish.payload_buffers = config.memory.payload_buffers.value_or(0);
  memory_ = plan_memory(wish, config.jobs, config.parent.has_value());
  return choose_huge_pages(config.memory.huge_pages, memory_.total_bytes(), huge_pages_);
}

std::string Dataplane::complete_devices(const Config& config) {
  std::uint64_t af_packet_queues = 0;
  for (const PortConfig& port : config.ports) {
    devices_.push_back(*Device::parse(port.device));
    if (devices_.back().is("net_af_packet")) af_packet_queues += devices_.back().queues(1);
  }
  if (af_packet_queues == 0) return {};
  const std::uint64_t lockable = lockable_bytes();
  const std::uint64_t share = lockable / af_packet_queues;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (!devices_[i].is("net_af_packet")) continue;
    const std::uint32_t mtu = config.ports[i].mtu;
    const auto ring = af_packet_ring(mtu, share);
    if (!ring) {
      return text("port ", config.ports[i].name, ": its rings need ", af_packet_least_bytes(mtu),
                  " bytes of locked memory, the limit leaves ", share,
                  " a queue; raise it (ulimit -l, LimitMEMLOCK=)");
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
        port->traits().verifies_checksums ? "hardware" : "software", queues_text(*port));
  }
  return {};
}

std::string Dataplane::launch(const Config& config, const CpuPlan& cpus) {
  LcoreConfig lcore;
  lcore.pipeline.address = config.address;
  lcore.pipeline.address.rules = rules_;
  lcore.pipeline.mac_age = config.mac_age;
  if (config.parent) lcore.pipeline.parent = config.parent->ip;
  lcore.poll_busy = config.poll_busy;
  lcore.idle_after = config.idle_after;
  for (std::uint16_t shard = 0; shard < rules_.ports; ++shard) {
    lcore.id = poller_lcore + shard;
    lcore.pipeline.shard = shard;
    std::string error;
    auto made = Lcore::create(lcore, pools_, error);
    if (!made) return error;
    lcores_.push_back(std::move(made));
  }
  lcore_cpus_ = cpus.pollers;
  waiting_orders_.resize(lcores_.size());
  if (!introduce()) return "memory for rings between lcores does not suffice; free memory";
  for (std::size_t i = 0; i < ports_.size(); ++i) prepare(i);
  for (const auto& each : lcores_) {
    if (!each->launch()) return "DPDK refuses to start the packet loop on its lcore";
  }
  return {};
}

/// A way from each lcore to each other one.
bool Dataplane::introduce() {
  const std::size_t count = lcores_.size();
  for (std::size_t from = 0; from < count; ++from) {
    for (std::size_t to = 0; to < count; ++to) {
      handovers_.push_back(from == to ? nullptr
                                      : std::make_unique<Handover>(text("rx", from, "to", to),
                                                                   text("tx", from, "to", to)));
      if (from != to && !handovers_.back()->ok()) return false;
    }
  }
  for (std::size_t one = 0; one < count; ++one) {
    for (std::size_t other = 0; other < count; ++other) {
      if (one == other) continue;
      lcores_[one]->meet(static_cast<std::uint16_t>(other), *handover(one, other),
                         *handover(other, one));
    }
  }
  return true;
}

void Dataplane::prepare(std::size_t i) {
  const Port& port = *ports_[i];
  const auto number = static_cast<datapath::PortId>(i);
  const bool shared = port.traits().transmit_queues < lcores_.size();
  const std::uint16_t owner = port.lcore_of_queue(number, 0);
  for (std::size_t shard = 0; shard < lcores_.size(); ++shard) {
    PortUse use;
    use.traits = port.traits();
    if (!shared) use.transmit_queue = static_cast<std::uint16_t>(shard);
    if (shared && shard != owner) use.transmit_by = &handover(shard, owner)->to_send;
    std::vector<std::uint16_t> queues;
    for (std::uint16_t queue = 0; queue < use.traits.receive_queues; ++queue) {
      if (port.lcore_of_queue(number, queue) == shard) queues.push_back(queue);
    }
    lcores_[shard]->prepare_port(number, use, std::move(queues));
  }
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

void Dataplane::say_address() {
  const datapath::PortMask up = up_mask();
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (((up & ~told_) >> i & 1) == 0) continue;
    const auto port = static_cast<datapath::PortId>(i);
    const control::OutFrame frame = control::arp_request(address_, address_.rules.ip, port);
    if (!lcores_.front()->put_frame(port, frame.bytes)) ++frames_lost_;
  }
  told_ = up;
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
  if (taken) say_address();
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
  orders_ += effects.orders.size();
  for (control::OutFrame& frame : effects.frames) {
    if (waiting_frames_.size() < most_waiting_frames) {
      waiting_frames_.push_back({std::move(frame), orders_});
    } else {
      ++frames_lost_;
    }
  }
  effects.orders.clear();
  effects.frames.clear();
  // A frame may announce what an order does: it must not overtake it, on any lcore.
  if (orders_wait || lcores_.empty()) return;
  for (; !waiting_frames_.empty(); waiting_frames_.pop_front()) {
    const WaitingFrame& next = waiting_frames_.front();
    if (!has_done(next.after)) return;
    if (!lcores_.front()->put_frame(next.frame.port, next.frame.bytes)) ++frames_lost_;
  }
}

/// The first one sends, and executes orders before frames: what it was given counts as done.
bool Dataplane::has_done(std::uint64_t orders) const {
  return std::all_of(lcores_.begin() + 1, lcores_.end(),
                     [orders](const auto& lcore) { return lcore->orders_done() >= orders; });
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
  prepare(i);
  log(LogLevel::warning, "port ", port.config().name, ": interface ", port.interface(),
      " is back, link ", link_name(links_[i]));
}

std::string Dataplane::stop() {
  for (const auto& lcore : lcores_) lcore->stop();
  lcores_.clear();
  handovers_.clear();
  ports_.clear();
  std::uint32_t kept = 0;
  for (const Device& device : devices_) kept += device.kept_buffers() * device.queues(rules_.ports);
  std::string leaks = pools_.leaks(kept);
  pools_ = {};
  eal_.reset();
  if (leaks.empty()) return {};
  return text("packet buffers leaked:", leaks);
}

}  // namespace iswitch::switchd
