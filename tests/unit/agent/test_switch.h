// A switch in the test's process: the real pipeline and the real control behind UDP sockets on
// 127.0.0.2, so that the agent is tested without root and without DPDK. Only the wrapping is here:
// a datagram gets the Ethernet, IPv4 and UDP headers that it would have had, and loses them again.
// Both directions lead through a seeded faulty path.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "switchd/control/control.h"
#include "switchd/pipeline/pipeline.h"
#include "wire/frame.h"

namespace iswitch::test {

/// Chances per frame.
struct PathFaults {
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;  ///< late by up to 2 ms
  double corrupt = 0;  ///< a flipped bit behind the Ethernet header
  double mark = 0;     ///< Congestion Experienced
};

struct PathCounts {
  std::uint64_t frames = 0, lost = 0, duplicated = 0, reordered = 0, corrupted = 0, marked = 0;
};

/// Payload memory on the heap, counted.
class HeapPool {
 public:
  struct Block {
    alignas(64) std::array<std::uint8_t, 8960> bytes;
    unsigned owners = 0;
  };
  using Handle = Block*;

  ~HeapPool();
  Handle acquire();
  void share(Handle handle, unsigned n) { handle->owners += n; }
  void release(Handle handle);
  std::uint8_t* data(Handle handle) { return handle->bytes.data(); }
  std::size_t in_use() const { return all_.size() - free_.size(); }

 private:
  std::vector<std::unique_ptr<Block>> all_;
  std::vector<Block*> free_;
};

class TestSwitch {
 public:
  struct Options {
    std::vector<control::JobConfig> jobs{};
    std::uint16_t shards = 1;
    std::uint16_t port = 0;  ///< 0: any
    PathFaults to_switch{}, to_members{};
    std::uint64_t seed = 1;
  };

  explicit TestSwitch(Options options);
  /// Stops without a word, as kill -9 would.
  ~TestSwitch();
  TestSwitch(const TestSwitch&) = delete;
  TestSwitch& operator=(const TestSwitch&) = delete;

  /// "127.0.0.2:port"
  std::string address() const;
  std::uint16_t port() const { return options_.port; }

  /// The operator's requests and questions.
  void operate(const std::function<void(control::Control&, Time, control::Effects&)>& act);
  control::JobView job(wire::JobId id);
  control::Counters control_counters();
  std::uint64_t pipeline_counter(pipeline::Counter counter);
  std::size_t buffers_in_use();
  /// SIGTERM: members are told, then the switch is silent.
  void leave();
  /// A new life behind the same port, as after kill -9 and a start.
  void restart();
  void set_faults(const PathFaults& to_switch, const PathFaults& to_members);
  /// From now on nothing gets in or out.
  void cut() { set_faults({.loss = 1}, {.loss = 1}); }
  PathCounts counts_to_switch();
  PathCounts counts_to_members();

 private:
  using Pipeline = pipeline::Pipeline<HeapPool>;
  struct Sink;
  struct Late {
    std::vector<std::uint8_t> frame;
    bool to_switch = false;
  };

  void start_life(Time now);
  void run();
  bool receive(unsigned shard);
  /// A frame on the path; `arrive` or `leave_switch` come out of it, now, late, twice or not at
  /// all.
  void travel(std::vector<std::uint8_t> frame, bool to_switch);
  void deliver(const std::vector<std::uint8_t>& frame, bool to_switch);
  void arrive(const std::vector<std::uint8_t>& frame);
  void depart(const std::vector<std::uint8_t>& frame);
  void carry_out(control::Effects& effects);
  void work_off(Sink& sink);
  void timers(Time now);
  bool chance(double probability);
  void wake() const;

  Options options_;
  std::mutex mutex_;  // guards everything below but the sockets' numbers
  std::mt19937_64 random_;
  HeapPool pool_;
  std::vector<std::unique_ptr<Pipeline>> shards_;
  std::unique_ptr<control::Control> control_;
  bool silent_ = false;
  bool stopping_ = false;
  std::multimap<Time, Late> late_;
  PathCounts to_switch_, to_members_;
  Time housekept_ = 0;
  std::vector<int> sockets_;
  int event_fd_ = -1;
  std::thread thread_;
};

}  // namespace iswitch::test
