// Captures: frames recorded by the lcores, written as pcapng or pcap to the admin connections that
// asked.
// The control thread's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "switchd/admin/server.h"
#include "switchd/dataplane/capture_ring.h"
#include "switchd/dataplane/dataplane.h"

namespace iswitch::switchd {

struct CaptureOptions {
  datapath::PortMask ports = 0;
  std::uint32_t snap = 0;  ///< 0: whole frames
  bool received = true;
  bool transmitted = true;
  bool pcapng = true;  ///< false: classic pcap, without ports, directions and drops
};

class Captures {
 public:
  static constexpr std::size_t most = 4;
  /// How long a recorded frame may lie in a ring.
  static constexpr Time interval = 2 * millisecond;

  Captures(AdminServer& server, Dataplane& dataplane) : server_(server), dataplane_(dataplane) {}
  ~Captures();
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  bool full() const { return streams_.size() >= most; }
  std::size_t size() const { return streams_.size(); }
  bool active() const { return !rings_.empty(); }

  /// The client's reply has been sent; its connection is the stream from now on.
  void start(AdminServer::ClientId client, const CaptureOptions& options);
  /// Moves what was recorded to the streams.
  void pump(Time now);
  /// The end of the daemon: the rest, the statistics, and the connections are closed.
  void finish(Time now);

  /// Frames not recorded, by all captures since the start.
  std::uint64_t dropped() const;

 private:
  struct Stream {
    CaptureOptions options;
    Time statistics_at = 0;
    std::string pending;  ///< blocks of this pump
    std::array<std::uint64_t, datapath::max_ports> seen{};
    std::array<std::uint64_t, datapath::max_ports> dropped{};  ///< behind this slow reader
    std::array<std::uint64_t, datapath::max_ports> ring_dropped_before{};
  };
  void on_closed(AdminServer::ClientId client);
  void update_wishes();
  bool open_rings();
  void close_rings();
  std::uint64_t ring_dropped(datapath::PortId port) const;
  void deliver(const CapturedFrame& frame, std::uint64_t unix_time);
  void write_statistics(Stream& stream, Time now);
  void send_pending();
  void write_head(Stream& stream, std::string& head) const;

  AdminServer& server_;
  Dataplane& dataplane_;
  std::unordered_map<AdminServer::ClientId, Stream> streams_;
  std::vector<std::unique_ptr<CaptureRing>> rings_;  ///< by lcore; none while nobody captures
  std::uint64_t dropped_ = 0;                        ///< by rings that are gone and by slow readers
};

}  // namespace iswitch::switchd
