// Engines and a model of the switch in virtual time, over links that lose, copy and delay by seed.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "agent/engine/engine.h"
#include "tests/unit/engine/model_switch.h"

namespace iswitch::agent {

struct Faults {
  double loss = 0;
  double copy = 0;
  Time delay = 50 * microsecond;
  Time jitter = 0;
  double congestion = 0;
};

class Network {
 public:
  Network(std::uint64_t seed, const model::Switch::Config& config, const Faults& link_faults,
          std::uint32_t receive_datagrams = 32)
      : faults(link_faults),
        cut(config.members, false),
        config_(config),
        receive_datagrams_(receive_datagrams),
        random_(seed),
        switch_(config) {
    for (std::size_t i = 0; i < config.members; ++i) agents.push_back(make_agent(i));
  }

  /// A new life of a member's process; it has to join.
  void restart(std::size_t i) {
    agents[i] = make_agent(i);
    agents[i]->join(now, never);
  }

  double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  std::uint64_t pick(std::uint64_t least, std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(least, most)(random_);
  }

  void join() {
    for (auto& agent : agents) agent->join(now, now + 60 * second);
    run([&] {
      return std::all_of(agents.begin(), agents.end(),
                         [](const auto& agent) { return agent->state() == EngineState::running; });
    });
  }

  /// Runs until `done`, at most for `limit` of virtual time.
  template <class Done>
  bool run(Done done, Time limit = 120 * second) {
    const Time end = now + limit;
    for (std::size_t i = 0; i < agents.size(); ++i) drive(i);
    while (!done()) {
      Time next = events_.empty() ? never : events_.top().at;
      std::size_t timer = agents.size();
      for (std::size_t i = 0; i < agents.size(); ++i) {
        if (agents[i]->next_deadline() < next) {
          next = agents[i]->next_deadline();
          timer = i;
        }
      }
      if (next > end) return false;
      now = std::max(now, next);
      if (timer < agents.size()) {
        drive(timer);
        continue;
      }
      const Event event = events_.top();
      events_.pop();
      if (event.to_switch) {
        std::vector<model::Datagram> out;
        switch_.receive(event.agent, event.bytes, event.shard, event.congested, out);
        deliver(out);
      } else {
        agents[event.agent]->receive(event.bytes, event.congested ? wire::Ecn::ce : wire::Ecn::ect0,
                                     now);
        drive(event.agent);
      }
    }
    return true;
  }

  /// Sends what an agent has to send.
  void drive(std::size_t index) {
    Engine& agent = *agents[index];
    agent.tick(now);
    std::array<Outgoing, 8> out;
    for (std::size_t count = out.size(); count == out.size();) {
      count = agent.transmit(out, now);
      for (std::size_t i = 0; i < count; ++i) {
        Event event;
        event.to_switch = true;
        event.agent = index;
        event.shard = out[i].shard;
        event.bytes.assign(out[i].head.begin(), out[i].head.begin() + out[i].head_size);
        event.bytes.insert(event.bytes.end(), out[i].payload.begin(), out[i].payload.end());
        send(std::move(event));
      }
    }
  }
  void deliver(std::vector<model::Datagram>& out) {
    for (model::Datagram& datagram : out) {
      Event event;
      event.agent = datagram.to;
      event.bytes = std::move(datagram.bytes);
      event.congested = datagram.congested;
      send(std::move(event));
    }
    out.clear();
  }
  model::Switch& the_switch() { return switch_; }

  Faults faults;
  std::vector<bool> cut;  ///< by agent: nothing gets through
  std::vector<std::unique_ptr<Engine>> agents;
  Time now = 0;

 private:
  struct Event {
    Time at = 0;
    std::uint64_t order = 0;
    std::size_t agent = 0;
    bool to_switch = false;
    std::uint16_t shard = 0;
    bool congested = false;
    std::vector<std::uint8_t> bytes;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  std::unique_ptr<Engine> make_agent(std::size_t i) {
    EngineOptions options;
    options.job = config_.job;
    options.wanted_member = static_cast<wire::MemberId>(i);
    options.own_ip = model::Switch::ip_of(i);
    options.own_port = model::Switch::port;
    options.incarnation = 100U * ++lives_ + static_cast<std::uint32_t>(i);
    options.start_unix_microseconds = 1'000'000 + static_cast<std::uint64_t>(now / microsecond);
    options.start_time = now;
    options.receive_datagrams = receive_datagrams_;
    options.mode = config_.mode;
    options.elements = config_.elements;
    return std::make_unique<Engine>(options);
  }
  void send(Event event) {
    if (cut[event.agent]) return;
    for (int copies = chance() < faults.copy ? 2 : 1; copies > 0; --copies) {
      if (chance() < faults.loss) continue;
      Event one = event;
      one.at = now + faults.delay +
               (faults.jitter == 0
                    ? 0
                    : static_cast<Time>(pick(0, static_cast<std::uint64_t>(faults.jitter))));
      one.order = ++order_;
      one.congested = one.congested || chance() < faults.congestion;
      events_.push(std::move(one));
    }
  }

  model::Switch::Config config_;
  std::uint32_t receive_datagrams_;
  std::uint32_t lives_ = 0;
  std::mt19937_64 random_;
  model::Switch switch_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
};

inline std::vector<std::uint64_t> seeds(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(first + i);
  return all;
}

}  // namespace iswitch::agent
