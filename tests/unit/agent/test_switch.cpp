#include "tests/unit/agent/test_switch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace iswitch::test {

namespace {

// Not 127.0.0.1, which the agents get: a switch is never its own member.
constexpr wire::Ipv4 switch_ip{0x7F000002};
constexpr wire::Mac switch_mac{{2, 0, 0, 0, 0, 0xFE}};
constexpr wire::Mac member_mac{{2, 0, 0, 0, 0, 0x01}};
constexpr std::size_t payload_at = wire::encapsulation_bytes;
constexpr std::size_t tos_at = wire::ethernet_bytes + 1;
constexpr std::size_t ip_at = wire::ethernet_bytes + 16;                      // IPv4 destination
constexpr std::size_t port_at = wire::ethernet_bytes + wire::ipv4_bytes + 2;  // UDP destination

Time now_time() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::uint64_t unix_microseconds() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

sockaddr_in switch_address(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(switch_ip.value);
  address.sin_port = htons(port);
  return address;
}

int bound_socket(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_in address = switch_address(port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return -1;
  }
  const int on = 1, buffer = 4 << 20;
  setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  }
  return fd;
}

std::uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

/// Sockets on base, base + 1, ...; base 0: where all are free.
std::vector<int> bind_shards(std::uint16_t base, std::uint16_t shards) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::vector<int> sockets;
    for (std::uint16_t shard = 0; shard < shards; ++shard) {
      const std::uint16_t first = sockets.empty() ? base : port_of(sockets[0]);
      const int fd =
          bound_socket(static_cast<std::uint16_t>(first + (base == 0 && shard == 0 ? 0 : shard)));
      if (fd < 0) break;
      sockets.push_back(fd);
    }
    if (sockets.size() == shards) return sockets;
    for (const int fd : sockets) close(fd);
  }
  throw std::runtime_error("no free UDP ports for the test switch");
}

}  // namespace

// ---- HeapPool

HeapPool::~HeapPool() {
  if (in_use() != 0) std::terminate();  // a leak; the pipelines are gone by now
}

HeapPool::Handle HeapPool::acquire() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Block>());
    free_.push_back(all_.back().get());
  }
  Block* block = free_.back();
  free_.pop_back();
  block->owners = 1;
  return block;
}

void HeapPool::release(Handle handle) {
  if (--handle->owners == 0) free_.push_back(handle);
}

// ---- what the pipeline gives

struct TestSwitch::Sink {
  TestSwitch& owner;
  std::vector<datapath::ControlFrame> controls;
  std::vector<datapath::Notice> notices;

  void forward(unsigned, datapath::PortMask) {}
  void transmit(datapath::PortId, Bytes) {}
  bool control(const datapath::ControlFrame& frame) {
    controls.push_back(frame);
    return true;
  }
  void notice(const datapath::Notice& notice) { notices.push_back(notice); }
  void result(const pipeline::Delivery<HeapPool::Handle>& delivery) {
    for (unsigned member = 0; member < wire::max_members; ++member) {
      if ((delivery.to >> member & 1) == 0) continue;
      std::vector<std::uint8_t> frame(wire::payload_offset + delivery.fields.payload_bytes);
      delivery.destinations[member].header.write(delivery.fields, frame.data());
      if (delivery.fields.payload_bytes != 0) {
        std::memcpy(frame.data() + wire::payload_offset, owner.pool_.data(delivery.payload),
                    delivery.fields.payload_bytes);
      }
      owner.travel(std::move(frame), false);
    }
  }
};

// ---- life

TestSwitch::TestSwitch(Options options) : options_(std::move(options)), random_(options_.seed) {
  sockets_ = bind_shards(options_.port, options_.shards);
  options_.port = port_of(sockets_[0]);
  event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  start_life(now_time());
  thread_ = std::thread([this] { run(); });
}

TestSwitch::~TestSwitch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
  shards_.clear();
  for (const int fd : sockets_) close(fd);
  close(event_fd_);
}

void TestSwitch::start_life(Time now) {
  silent_ = false;
  control_.reset();
  shards_.clear();
  late_.clear();
  datapath::SwitchAddress address;
  address.mac = switch_mac;
  address.rules.ip = switch_ip;
  address.rules.udp_port = options_.port;
  address.rules.ports = options_.shards;
  for (std::uint16_t shard = 0; shard < options_.shards; ++shard) {
    pipeline::PipelineConfig config;
    config.address = address;
    config.shard = shard;
    config.ports = 1;
    shards_.push_back(std::make_unique<Pipeline>(config, pool_));
  }
  control::SwitchConfig config;
  config.address = address;
  config.shards = options_.shards;
  config.start_unix_microseconds = unix_microseconds();
  config.start_time = now;
  control::Effects effects;
  control_ = std::make_unique<control::Control>(config, options_.jobs, now, effects);
  carry_out(effects);
}

void TestSwitch::restart() {
  const std::lock_guard<std::mutex> lock(mutex_);
  start_life(now_time());
  wake();
}

void TestSwitch::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  control::Effects effects;
  control_->leave_all(now_time(), effects);
  carry_out(effects);
  silent_ = true;
}

void TestSwitch::wake() const {
  const std::uint64_t one = 1;
  static_cast<void>(!write(event_fd_, &one, sizeof one));
}

std::string TestSwitch::address() const {
  return wire::to_string(switch_ip) + ":" + std::to_string(options_.port);
}

void TestSwitch::operate(
    const std::function<void(control::Control&, Time, control::Effects&)>& act) {
  const std::lock_guard<std::mutex> lock(mutex_);
  control::Effects effects;
  act(*control_, now_time(), effects);
  carry_out(effects);
  wake();
}

control::JobView TestSwitch::job(wire::JobId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const control::JobView& view : control_->jobs()) {
    if (view.config.id == id) return view;
  }
  return {};
}

control::Counters TestSwitch::control_counters() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return control_->counters();
}

std::uint64_t TestSwitch::pipeline_counter(pipeline::Counter counter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& shard : shards_) sum += shard->counters().get(counter);
  return sum;
}

std::size_t TestSwitch::buffers_in_use() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return pool_.in_use();
}

void TestSwitch::set_faults(const PathFaults& to_switch, const PathFaults& to_members) {
  const std::lock_guard<std::mutex> lock(mutex_);
  options_.to_switch = to_switch;
  options_.to_members = to_members;
}

PathCounts TestSwitch::counts_to_switch() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return to_switch_;
}

PathCounts TestSwitch::counts_to_members() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return to_members_;
}

void TestSwitch::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    Time wake_at = std::min(control_->next_deadline(), now_time() + 20 * millisecond);
    if (!late_.empty()) wake_at = std::min(wake_at, late_.begin()->first);
    lock.unlock();
    std::vector<pollfd> polled;
    for (const int fd : sockets_) polled.push_back({fd, POLLIN, 0});
    polled.push_back({event_fd_, POLLIN, 0});
    const Time wait = std::max<Time>(wake_at - now_time(), 0);
    const timespec time{wait / second, wait % second};
    ppoll(polled.data(), polled.size(), &time, nullptr);
    std::uint64_t wakes = 0;
    static_cast<void>(!read(event_fd_, &wakes, sizeof wakes));
    lock.lock();
    for (unsigned shard = 0; shard < sockets_.size(); ++shard) {
      for (int burst = 0; burst < 64 && receive(shard); ++burst) {
      }
    }
    timers(now_time());
  }
}

void TestSwitch::timers(Time now) {
  if (silent_) return;
  while (!late_.empty() && late_.begin()->first <= now) {
    const Late late = std::move(late_.extract(late_.begin()).mapped());
    deliver(late.frame, late.to_switch);
  }
  if (now - housekept_ >= millisecond) {
    housekept_ = now;
    Sink sink{*this, {}, {}};
    for (const auto& shard : shards_) {
      shard->housekeep(now, sink);
      shard->job_stats().for_each([&](wire::JobId job, const pipeline::JobStats& stats) {
        for (wire::MemberId member = 0; member < wire::max_members; ++member) {
          if (const Time when = stats.last_heard(member); when != 0)
            control_->heard(job, member, when);
        }
      });
    }
    work_off(sink);
  }
  if (control_->next_deadline() <= now) {
    control::Effects effects;
    control_->tick(now, effects);
    carry_out(effects);
  }
}

// ---- frames

bool TestSwitch::receive(unsigned shard) {
  std::array<std::uint8_t, 9216> bytes{};
  sockaddr_in from{};
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, 64> ancillary{};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  const ssize_t size = recvmsg(sockets_[shard], &message, MSG_DONTWAIT);
  if (size < 0) return false;
  if (silent_) return true;
  wire::Route route;
  route.from = {member_mac, wire::Ipv4{ntohl(from.sin_addr.s_addr)}, ntohs(from.sin_port)};
  route.to = {switch_mac, switch_ip, static_cast<std::uint16_t>(options_.port + shard)};
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) route.tos = *CMSG_DATA(c);
  }
  const auto length = static_cast<std::size_t>(size);
  std::vector<std::uint8_t> frame(payload_at + length);
  wire::write_encapsulation(route, length, frame.data());
  std::memcpy(frame.data() + payload_at, bytes.data(), length);
  wire::set_udp_checksum(frame);
  travel(std::move(frame), true);
  return true;
}

bool TestSwitch::chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

void TestSwitch::travel(std::vector<std::uint8_t> frame, bool to_switch) {
  const PathFaults& faults = to_switch ? options_.to_switch : options_.to_members;
  PathCounts& counts = to_switch ? to_switch_ : to_members_;
  ++counts.frames;
  if (chance(faults.loss)) {
    ++counts.lost;
    return;
  }
  if (chance(faults.mark) && (frame[tos_at] & 3) == static_cast<int>(wire::Ecn::ect0)) {
    ++counts.marked;
    wire::Route route;  // the same headers again but for ECN
    const std::uint8_t* ip = frame.data() + wire::ethernet_bytes;
    const auto be32 = [](const std::uint8_t* p) {
      std::uint32_t value = 0;
      std::memcpy(&value, p, sizeof value);
      return ntohl(value);
    };
    const auto be16 = [](const std::uint8_t* p) {
      std::uint16_t value = 0;
      std::memcpy(&value, p, sizeof value);
      return ntohs(value);
    };
    route.from = {to_switch ? member_mac : switch_mac, wire::Ipv4{be32(ip + 12)}, be16(ip + 20)};
    route.to = {to_switch ? switch_mac : member_mac, wire::Ipv4{be32(ip + 16)}, be16(ip + 22)};
    route.tos = frame[tos_at] | 3;
    wire::write_encapsulation(route, frame.size() - payload_at, frame.data());
    wire::set_udp_checksum(frame);
  }
  if (chance(faults.corrupt)) {
    ++counts.corrupted;
    const std::size_t bit = random_() % ((frame.size() - wire::ethernet_bytes) * 8);
    frame[wire::ethernet_bytes + bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
  }
  const auto late_by = [this] { return static_cast<Time>(random_() % (2 * millisecond)); };
  if (chance(faults.duplicate)) {
    ++counts.duplicated;
    late_.emplace(now_time() + late_by(), Late{frame, to_switch});
  }
  if (chance(faults.reorder)) {
    ++counts.reordered;
    late_.emplace(now_time() + late_by(), Late{std::move(frame), to_switch});
    return;
  }
  deliver(frame, to_switch);
}

void TestSwitch::deliver(const std::vector<std::uint8_t>& frame, bool to_switch) {
  to_switch ? arrive(frame) : depart(frame);
}

void TestSwitch::arrive(const std::vector<std::uint8_t>& frame) {
  // A NIC steers by destination port; what fits no shard is shard 0's to drop.
  std::uint16_t port = 0;
  std::memcpy(&port, frame.data() + port_at, sizeof port);
  const unsigned shard = static_cast<unsigned>(ntohs(port)) - options_.port;
  Sink sink{*this, {}, {}};
  pipeline::Frame received;
  received.bytes = frame.data();
  received.size = static_cast<std::uint32_t>(frame.size());
  shards_[shard < shards_.size() ? shard : 0]->run({&received, 1}, now_time(), sink);
  work_off(sink);
}

/// Out of the switch, to the member's socket. What is corrupted stops here, as in a kernel.
void TestSwitch::depart(const std::vector<std::uint8_t>& frame) {
  std::uint16_t port = 0;
  std::memcpy(&port, frame.data() + port_at, sizeof port);
  std::uint32_t ip = 0;
  std::memcpy(&ip, frame.data() + ip_at, sizeof ip);
  wire::FrameRules member;
  member.ip = wire::Ipv4{ntohl(ip)};
  member.udp_port = ntohs(port);
  wire::Packet packet;
  const wire::ParsedFrame parsed = wire::parse_frame(member, frame, {}, packet);
  if (parsed.origin != wire::Origin::ours || parsed.fault != wire::Fault::none) return;

  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = ip;
  to.sin_port = port;
  iovec piece{const_cast<std::uint8_t*>(frame.data() + payload_at), frame.size() - payload_at};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> ancillary{};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = sizeof to;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = IPPROTO_IP;
  c->cmsg_type = IP_TOS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  const int tos = frame[tos_at];
  std::memcpy(CMSG_DATA(c), &tos, sizeof tos);
  sendmsg(sockets_[0], &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void TestSwitch::work_off(Sink& sink) {
  for (const datapath::ControlFrame& frame : sink.controls) {
    control::Effects effects;
    control_->on_frame(frame, now_time(), effects);
    carry_out(effects);
  }
  for (const datapath::Notice& notice : sink.notices) {
    control::Effects effects;
    control_->on_notice(notice, now_time(), effects);
    carry_out(effects);
  }
}

void TestSwitch::carry_out(control::Effects& effects) {
  Sink sink{*this, {}, {}};
  for (control::OutFrame& frame : effects.frames) travel(std::move(frame.bytes), false);
  for (const datapath::Order& order : effects.orders) {
    for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
      datapath::Answer answer = shards_[shard]->execute(order, now_time(), sink);
      answer.shard = static_cast<std::uint16_t>(shard);
      control::Effects more;
      control_->on_answer(answer, now_time(), more);
      carry_out(more);
    }
  }
  work_off(sink);
}

}  // namespace iswitch::test
