// A host: the kernel's part of UDP (checksums, a bounded receive buffer), the real engine, and a
// program that uses it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "agent/engine/engine.h"
#include "tools/sim/link.h"
#include "tools/sim/world.h"

namespace iswitch::sim {

/// Planted bugs, each of which a checker must catch.
enum class HostBug : std::uint8_t {
  none,
  sleep_late,        ///< does not wake at the engine's deadlines
  wake_for_nothing,  ///< wakes again and again although the engine has nothing to do
  wrong_slot,        ///< a contribution goes to the next slot, which is another position's
};

struct HostSpec {
  std::string name;
  wire::Endpoint endpoint;
  wire::Endpoint switch_endpoint;  ///< udp_port is base
  std::uint32_t receive_datagrams = 64;
  Time wake_delay = 5 * microsecond;    ///< mean time from a datagram to the program's reading it
  std::uint64_t unix_microseconds = 0;  ///< wall clock at virtual time 0
  HostBug bug = HostBug::none;
};

struct HostTotals {
  std::uint64_t arrived = 0;     ///< from the link
  std::uint64_t while_down = 0;  ///< of these, while no program ran
  std::uint64_t not_mine = 0;    ///< of these, flooded frames for others
  std::uint64_t malformed = 0;   ///< of these, vanished in the kernel (checksums and the like)
  std::uint64_t foreign = 0;     ///< of these, not from the switch
  std::uint64_t overrun = 0;     ///< of these, the receive buffer was full
  std::uint64_t received = 0;    ///< of these, put into the receive buffer
};

/// What runs on a host besides the engine.
class Program {
 public:
  /// After datagrams and timers were handled; may use the engine.
  virtual void run(agent::Engine& engine, Time now) = 0;
  virtual void completed(const agent::Completion& completion, agent::Engine& engine, Time now) = 0;
  /// When run() should be called again without a datagram.
  virtual Time next_run() const = 0;

 protected:
  Program() = default;
  Program(const Program&) = default;
  Program& operator=(const Program&) = default;
  ~Program() = default;
};

class HostNode final : public EventHandler {
 public:
  HostNode(World& world, HostSpec spec, std::uint16_t number, Random random);
  HostNode(const HostNode&) = delete;
  HostNode& operator=(const HostNode&) = delete;

  void connect(Link& out) { out_ = &out; }
  void set_program(Program& program) { program_ = &program; }

  /// Makes an engine; addresses, clocks and the receive buffer's size are filled in here.
  void start(agent::EngineOptions options);
  /// The engine vanishes, and what lay in the receive buffer.
  void crash();
  bool up() const { return engine_.has_value(); }
  /// Nothing is read or sent for so long.
  void pause(Time duration) { paused_until_ = std::max(paused_until_, world_.now() + duration); }
  /// From now on; a restarted worker may have another port.
  void set_udp_port(std::uint16_t port) { spec_.endpoint.udp_port = port; }

  /// The engine, then run() as soon as the program would get the processor.
  agent::Engine* engine() { return engine_ ? &*engine_ : nullptr; }
  void wake_at(Time at);

  void handle(const Event& event) override;

  const HostSpec& spec() const { return spec_; }
  const HostTotals& totals() const { return totals_; }
  std::uint16_t number() const { return number_; }
  /// Longest time from when the program should run to its running, pauses included.
  Time slack() const { return 2 * spec_.wake_delay; }
  Time paused_until() const { return paused_until_; }

 private:
  enum Kind : std::uint32_t { wake_kind = first_own_event };
  struct Datagram {
    FrameRef frame;
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
    wire::Ecn ecn = wire::Ecn::not_ect;
  };
  void receive(FrameRef frame);
  void wake();
  void plant(std::span<std::uint8_t> frame);
  void take_completions(Time now);
  void transmit(Time now);

  World& world_;
  HostSpec spec_;
  std::uint16_t number_;
  Random random_;
  Link* out_ = nullptr;
  Program* program_ = nullptr;
  std::optional<agent::Engine> engine_;
  agent::EngineState last_state_ = agent::EngineState::idle;
  Fifo<Datagram> buffer_;
  Time wake_time_ = never;
  Time paused_until_ = 0;
  unsigned idle_wakes_ = 0;  // in a row, at next to no time, without anything received or sent
  Time last_wake_ = -1;
  std::uint64_t planted_ = 0;
  HostTotals totals_;
};

}  // namespace iswitch::sim
