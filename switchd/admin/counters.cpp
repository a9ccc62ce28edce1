#include "switchd/admin/counters.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "wire/control.h"

namespace iswitch::switchd {
namespace {

struct PortCounterInfo {
  const char* name;
  pipeline::Tally PortCounters::*counter;
  bool terminal;
};

constexpr std::array<PortCounterInfo, 10> port_counters{{
    {"rx_frames", &PortCounters::rx_frames, false},
    {"rx_bytes", &PortCounters::rx_bytes, false},
    {"rx_drop_unusable", &PortCounters::rx_unusable, true},
    {"rx_drop_handover_full", &PortCounters::rx_handover_full, true},
    {"tx_frames", &PortCounters::tx_frames, false},
    {"tx_bytes", &PortCounters::tx_bytes, false},
    {"tx_drop_full", &PortCounters::tx_full, false},
    {"tx_drop_link_down", &PortCounters::tx_link_down, false},
    {"tx_drop_oversized", &PortCounters::tx_oversized, false},
    {"tx_drop_no_buffer", &PortCounters::tx_no_buffer, false},
}};

/// "replayed nonce" as part of a name.
std::string name_part(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return text;
}

void add_control(const control::Counters& control, std::vector<CounterValue>& out) {
  const auto add = [&](const char* name, std::uint64_t value) {
    out.push_back({std::string("control_") + name, value, false, {}});
  };
  add("requests", control.requests);
  add("replies_sent", control.replies_sent);
  add("replies_received", control.replies_received);
  for (unsigned status = 1; status <= static_cast<unsigned>(wire::Status::mismatch); ++status) {
    const std::string name = wire::status_name(static_cast<wire::Status>(status));
    add(("refused_" + name_part(name)).c_str(), control.refused[status]);
  }
  add("notices_sent", control.notices_sent);
  add("notices_limited", control.notices_limited);
  add("requests_sent", control.requests_sent);
  add("joins", control.joins);
  add("leaves", control.leaves);
  add("evictions", control.evictions);
  add("replacements", control.replacements);
  add("resets", control.resets);
  add("ignored", control.ignored);
}

}  // namespace

std::uint64_t port_sum(const Dataplane& dataplane, std::size_t port,
                       pipeline::Tally PortCounters::*counter) {
  std::uint64_t sum = 0;
  for (const auto& lcore : dataplane.lcores()) {
    sum += (lcore->port_counters(static_cast<datapath::PortId>(port)).*counter).get();
  }
  return sum;
}

std::vector<CounterValue> all_counters(const Dataplane& dataplane, const control::Counters& control,
                                       const Captures& captures) {
  std::vector<CounterValue> out;
  const auto per_lcore = [&](std::string name, bool terminal, const auto& value_of) {
    CounterValue counter{std::move(name), 0, terminal, {}};
    for (const auto& lcore : dataplane.lcores()) counter.lcores.push_back(value_of(*lcore));
    counter.value = std::accumulate(counter.lcores.begin(), counter.lcores.end(), std::uint64_t{0});
    out.push_back(std::move(counter));
  };
  for (const PortCounterInfo& info : port_counters) {
    per_lcore(info.name, info.terminal, [&](const Lcore& lcore) {
      std::uint64_t sum = 0;
      for (std::size_t port = 0; port < dataplane.ports().size(); ++port) {
        sum += (lcore.port_counters(static_cast<datapath::PortId>(port)).*info.counter).get();
      }
      return sum;
    });
  }
  for (std::size_t i = 0; i < pipeline::counter_count; ++i) {
    const auto counter = static_cast<pipeline::Counter>(i);
    per_lcore(pipeline::counter_name(counter), pipeline::counter_is_terminal(counter),
              [&](const Lcore& lcore) { return lcore.pipeline().counters().get(counter); });
  }
  per_lcore("notice_lost", false, [](const Lcore& lcore) { return lcore.notices_lost(); });
  add_control(control, out);
  out.push_back({"control_frames_lost", dataplane.frames_lost(), false, {}});
  out.push_back({"capture_dropped", captures.dropped(), false, {}});
  return out;
}

}  // namespace iswitch::switchd
