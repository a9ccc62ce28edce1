#include "switchd/admin/capture.h"

#include <algorithm>
#include <ctime>

#include "switchd/admin/pcap.h"
#include "switchd/admin/pcapng.h"
#include "switchd/dataplane/machine.h"

namespace iswitch::switchd {
namespace {

constexpr std::size_t ring_bytes = 8u << 20;
constexpr std::uint32_t whole_frame = 65535;
constexpr unsigned frames_at_once = 16384;
// Below the server's limit, so that the blocks of one pump always fit.
constexpr std::size_t most_behind = AdminServer::most_waiting_bytes - (1u << 20);

std::uint64_t unix_nanoseconds(Time monotonic) {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const Time now = Time{wall.tv_sec} * second + wall.tv_nsec;
  return static_cast<std::uint64_t>(now - (monotonic_now() - monotonic));
}

bool wants(const CaptureOptions& options, datapath::PortId port) {
  return (options.ports >> port & 1) != 0;
}

}  // namespace

Captures::~Captures() { close_rings(); }

void Captures::start(AdminServer::ClientId client, const CaptureOptions& options) {
  if (rings_.empty() && !open_rings()) {
    server_.close_stream(client);
    return;
  }
  Stream stream;
  stream.options = options;
  stream.statistics_at = monotonic_now() + second;
  std::string head;
  write_head(stream, head);
  streams_.emplace(client, stream);
  server_.make_stream(client, [this, client] { on_closed(client); });
  if (server_.stream(client, head)) update_wishes();
}

void Captures::write_head(Stream& stream, std::string& head) const {
  const std::uint32_t snap = stream.options.snap == 0 ? whole_frame : stream.options.snap;
  if (stream.options.pcapng) {
    pcapng::section_header(head, "iswitch switchd");
  } else {
    pcap::file_header(head, snap);
  }
  for (std::size_t i = 0; i < dataplane_.ports().size(); ++i) {
    if (stream.options.pcapng) pcapng::interface(head, dataplane_.ports()[i]->config().name, snap);
    stream.ring_dropped_before[i] = ring_dropped(static_cast<datapath::PortId>(i));
  }
}

void Captures::on_closed(AdminServer::ClientId client) {
  streams_.erase(client);
  update_wishes();
}

bool Captures::open_rings() {
  for (const auto& lcore : dataplane_.lcores()) {
    rings_.push_back(std::make_unique<CaptureRing>(ring_bytes));
    if (!lcore->set_capture(rings_.back().get())) {
      close_rings();
      return false;
    }
  }
  return true;
}

void Captures::close_rings() {
  for (std::size_t i = 0; i < rings_.size() && i < dataplane_.lcores().size(); ++i) {
    // An lcore that does not let go within two seconds hangs in a driver and may still write there.
    if (!dataplane_.lcores()[i]->set_capture(nullptr)) {
      static_cast<void>(rings_[i].release());  // NOLINT(bugprone-unused-return-value)
    }
  }
  for (std::size_t port = 0; port < datapath::max_ports; ++port) {
    dropped_ += ring_dropped(static_cast<datapath::PortId>(port));
  }
  rings_.clear();
}

void Captures::update_wishes() {
  datapath::PortMask ports = 0;
  std::uint32_t snap = 0;
  for (const auto& [client, stream] : streams_) {
    ports |= stream.options.ports;
    snap = std::max(snap, stream.options.snap == 0 ? whole_frame : stream.options.snap);
  }
  for (const auto& ring : rings_) ring->want(ports, snap);
}

std::uint64_t Captures::ring_dropped(datapath::PortId port) const {
  std::uint64_t sum = 0;
  for (const auto& ring : rings_) sum += ring ? ring->dropped(port) : 0;
  return sum;
}

std::uint64_t Captures::dropped() const {
  std::uint64_t sum = dropped_;
  for (std::size_t port = 0; port < datapath::max_ports; ++port) {
    sum += ring_dropped(static_cast<datapath::PortId>(port));
  }
  return sum;
}

void Captures::deliver(const CapturedFrame& frame, std::uint64_t unix_time) {
  const bool received = frame.direction == Direction::received;
  pcapng::Packet packet;
  packet.interface = frame.port;
  packet.unix_nanoseconds = unix_time;
  packet.direction =
      received ? pcapng::PacketDirection::inbound : pcapng::PacketDirection::outbound;
  packet.original_bytes = frame.original_bytes;
  for (auto& [client, stream] : streams_) {
    const CaptureOptions& options = stream.options;
    if (!wants(options, frame.port) || !(received ? options.received : options.transmitted))
      continue;
    ++stream.seen[frame.port];
    packet.bytes = options.snap == 0
                       ? frame.bytes
                       : frame.bytes.first(std::min<std::size_t>(frame.bytes.size(), options.snap));
    if (server_.waiting(client) + stream.pending.size() + packet.bytes.size() > most_behind) {
      ++stream.dropped[frame.port];
      ++dropped_;
      continue;
    }
    if (options.pcapng) {
      pcapng::packet(stream.pending, packet);
    } else {
      pcap::packet(stream.pending, unix_time, packet.original_bytes, packet.bytes);
    }
  }
}

void Captures::pump(Time now) {
  const std::uint64_t origin = unix_nanoseconds(0);
  CapturedFrame frame;
  for (const auto& ring : rings_) {
    for (unsigned i = 0; ring && i < frames_at_once && ring->take(frame); ++i) {
      deliver(frame, origin + static_cast<std::uint64_t>(frame.at));
    }
  }
  for (auto& [client, stream] : streams_) {
    if (now >= stream.statistics_at) write_statistics(stream, now);
  }
  send_pending();
  if (streams_.empty() && !rings_.empty()) close_rings();
}

void Captures::send_pending() {
  std::vector<AdminServer::ClientId> clients;  // a stream that fails takes itself out of the map
  clients.reserve(streams_.size());
  for (const auto& entry : streams_) clients.push_back(entry.first);
  for (const AdminServer::ClientId client : clients) {
    const auto found = streams_.find(client);
    if (found == streams_.end() || found->second.pending.empty()) continue;
    std::string bytes;
    bytes.swap(found->second.pending);
    server_.stream(client, bytes);
  }
}

void Captures::write_statistics(Stream& stream, Time now) {
  stream.statistics_at = now + second;
  if (!stream.options.pcapng) return;
  for (std::size_t i = 0; i < dataplane_.ports().size(); ++i) {
    const auto port = static_cast<datapath::PortId>(i);
    if (!wants(stream.options, port)) continue;
    const std::uint64_t lost = ring_dropped(port) - stream.ring_dropped_before[i];
    pcapng::statistics(stream.pending, {port, unix_nanoseconds(now), stream.seen[i] + lost,
                                        stream.dropped[i] + lost});
  }
}

void Captures::finish(Time now) {
  for (auto& [client, stream] : streams_) stream.statistics_at = now;  // the last word
  pump(now);
  server_.flush_all(second);
  while (!streams_.empty()) server_.close_stream(streams_.begin()->first);
  close_rings();
}

}  // namespace iswitch::switchd
