#include "switchd/pipeline/parse.h"

namespace iswitch::pipeline {
namespace {

constexpr std::size_t ahead = 2;  // frames whose headers are fetched early

void prefetch(const Frame& frame) {
  __builtin_prefetch(frame.bytes);
  __builtin_prefetch(frame.bytes + 64);
}

}  // namespace

void parse(const FrameParser& parser, std::span<const Frame> burst, Parsed& parsed,
           Counters& counters) {
  parsed.ours.clear();
  parsed.ordinary.clear();
  parsed.refused.clear();
  counters.add(Counter::parse_received, burst.size());
  for (std::size_t i = 0; i < burst.size(); ++i) {
    if (i + ahead < burst.size()) prefetch(burst[i + ahead]);
    const Frame& frame = burst[i];
    if (parser.contribution.parse(frame.view(), frame.offload, parsed.packets[i])) [[likely]] {
      parsed.ours.push(i);
      continue;
    }
    const wire::ParsedFrame result =
        wire::parse_headers(parser.rules, frame.view(), frame.offload, parsed.packets[i]);
    if (result.origin == wire::Origin::ordinary) {
      parsed.ordinary.push(i);
    } else if (result.fault != wire::Fault::none) {
      counters.add(parse_drop(result.fault));
      parsed.refused.push(i, parse_drop(result.fault));
    } else {
      parsed.ours.push(i);
    }
  }
}

}  // namespace iswitch::pipeline
