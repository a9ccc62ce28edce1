#include "tools/load/link.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <variant>

namespace iswitch::load {

namespace {

/// Devices are polled for so long without a pause once nothing comes.
constexpr Time spin_time = 30 * microsecond;

/// A socket a worker.
class UdpLink final : public Link {
 public:
  explicit UdpLink(std::vector<std::unique_ptr<agent::UdpTransport>> sockets)
      : sockets_(std::move(sockets)) {
    for (const auto& socket : sockets_) polled_.push_back({socket->fd(), POLLIN, POLLIN});
  }

  Address address(std::uint16_t worker) const override {
    return {sockets_[worker]->local_ip(), sockets_[worker]->local_port()};
  }
  std::uint32_t mtu() const override { return sockets_.front()->path_mtu(); }
  std::uint32_t receive_datagrams(std::uint32_t segment_bytes) const override {
    return sockets_.front()->receive_datagrams(segment_bytes);
  }
  bool has_room(std::uint16_t worker) override {
    agent::UdpTransport& socket = *sockets_[worker];
    if (socket.blocked()) socket.flush();
    return !socket.blocked();
  }
  void send(std::uint16_t worker, std::span<const agent::Outgoing> datagrams) override {
    sockets_[worker]->send(datagrams);
  }
  void wait(Time time, Time /*quiet*/) override {
    const timespec bounded{time / second, time % second};
    if (ppoll(polled_.data(), polled_.size(), &bounded, nullptr) < 0) {
      for (pollfd& one : polled_) one.revents = POLLIN;
    }
  }
  std::string trouble_text() const override {
    for (const auto& socket : sockets_) {
      if (std::string text = socket->trouble_text(); !text.empty()) return text;
    }
    return {};
  }

 protected:
  std::size_t sources() const override { return sockets_.size(); }
  bool is_ready(std::size_t source) const override { return polled_[source].revents != 0; }
  std::span<const agent::Received> receive_from(std::size_t source) override {
    const auto received = sockets_[source]->receive();
    if (sockets_[source]->drained()) polled_[source].revents = 0;
    return received;
  }
  std::uint16_t worker_of(std::size_t source, const agent::Received&) const override {
    return static_cast<std::uint16_t>(source);
  }

 private:
  std::vector<std::unique_ptr<agent::UdpTransport>> sockets_;
  std::vector<pollfd> polled_;
};

/// Worker w is user w / devices of device w % devices.
class DeviceLink final : public Link {
 public:
  explicit DeviceLink(std::vector<std::unique_ptr<agent::FramePort>> ports, std::uint16_t workers)
      : ports_(std::move(ports)),
        users_(static_cast<std::uint16_t>((workers + ports_.size() - 1) / ports_.size())) {
    for (const auto& port : ports_) polled_.push_back({port->device().fd(), POLLIN, 0});
    // Where one has to be asked again and again, all are.
    const bool wake = std::all_of(polled_.begin(), polled_.end(),
                                  [](const pollfd& polled) { return polled.fd >= 0; });
    if (!wake) polled_.clear();
  }

  Address address(std::uint16_t worker) const override {
    const agent::FramePort& port = *ports_[worker % ports_.size()];
    return {port.local_ip(), port.local_port(user_of(worker))};
  }
  std::uint32_t mtu() const override {
    std::uint32_t least = ports_.front()->device().mtu();
    for (const auto& port : ports_) least = std::min(least, port->device().mtu());
    return least;
  }
  std::uint32_t receive_datagrams(std::uint32_t /*segment_bytes*/) const override {
    return std::max(1u, ports_.front()->device().receive_depth() / 4 * 3 / users_);
  }
  bool has_room(std::uint16_t worker) override {
    agent::FramePort& port = *ports_[worker % ports_.size()];
    if (!port.has_room()) port.flush();
    return port.has_room();
  }
  void send(std::uint16_t worker, std::span<const agent::Outgoing> datagrams) override {
    ports_[worker % ports_.size()]->send(datagrams, user_of(worker));
  }
  void wait(Time time, Time quiet) override {
    if (time <= 0 || quiet <= spin_time) return;
    if (polled_.empty()) {
      sched_yield();
      return;
    }
    for (const auto& port : ports_) {
      if (!port->arm()) return;
    }
    const timespec bounded{time / second, time % second};
    ppoll(polled_.data(), polled_.size(), &bounded, nullptr);
  }
  std::string trouble_text() const override {
    for (const auto& port : ports_) {
      if (std::string text = port->trouble_text(); !text.empty()) return text;
    }
    return {};
  }

 protected:
  std::size_t sources() const override { return ports_.size(); }
  bool is_ready(std::size_t) const override { return true; }
  std::span<const agent::Received> receive_from(std::size_t source) override {
    return ports_[source]->receive();
  }
  std::uint16_t worker_of(std::size_t source, const agent::Received& received) const override {
    return static_cast<std::uint16_t>(received.user * ports_.size() + source);
  }

 private:
  std::uint16_t user_of(std::uint16_t worker) const {
    return static_cast<std::uint16_t>(worker / ports_.size());
  }

  std::vector<std::unique_ptr<agent::FramePort>> ports_;
  std::uint16_t users_;
  std::vector<pollfd> polled_;  // empty: nothing wakes
};

std::unique_ptr<Link> open_sockets(const LinkOptions& options, std::string& problem) {
  std::vector<std::unique_ptr<agent::UdpTransport>> sockets;
  for (unsigned worker = 0; worker < options.workers; ++worker) {
    agent::UdpOptions udp;
    udp.switch_ip = options.switch_ip;
    udp.base_port = options.switch_port;
    udp.local_ip = options.local_ip;
    auto opened = agent::UdpTransport::open(udp);
    if (const auto* error = std::get_if<agent::Error>(&opened)) {
      problem = error->text;
      return nullptr;
    }
    sockets.push_back(std::get<std::unique_ptr<agent::UdpTransport>>(std::move(opened)));
  }
  return std::make_unique<UdpLink>(std::move(sockets));
}

std::unique_ptr<Link> open_devices(const LinkOptions& options, std::string& problem) {
  std::vector<std::unique_ptr<agent::FramePort>> ports;
  const std::size_t count = std::min<std::size_t>(options.devices.size(), options.workers);
  for (std::size_t i = 0; i < count; ++i) {
    agent::FramePortOptions port;
    port.device = {options.devices[i], options.patience};
    port.switch_ip = options.switch_ip;
    port.switch_port = options.switch_port;
    port.local_ip = {options.local_ip.value + static_cast<std::uint32_t>(i)};
    port.users = static_cast<std::uint16_t>((options.workers - i + count - 1) / count);
    auto opened = agent::FramePort::open(port);
    if (const auto* error = std::get_if<agent::Error>(&opened)) {
      problem = error->text;
      return nullptr;
    }
    ports.push_back(std::get<std::unique_ptr<agent::FramePort>>(std::move(opened)));
  }
  return std::make_unique<DeviceLink>(std::move(ports), options.workers);
}

}  // namespace

std::unique_ptr<Link> Link::open(const LinkOptions& options, std::string& problem) {
  return options.devices.empty() ? open_sockets(options, problem) : open_devices(options, problem);
}

}  // namespace iswitch::load
