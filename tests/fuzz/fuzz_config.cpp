// Any bytes as a config or a job: no crash, and errors are lines.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "switchd/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace iswitch::switchd;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = parse_config(text);
  const auto job = parse_job(text, "/job", {{.name = "p", .device = "net_null0", .mtu = 1500}});
  for (const auto* errors : {&config.errors, &job.errors}) {
    for (const iswitch::JsonError& error : *errors) {
      for (const char c : error.line()) {
        if (static_cast<unsigned char>(c) < 0x20) std::abort();
      }
    }
  }
  // What was accepted keeps the rules that others rely on.
  if (config.ok()) {
    for (const auto& one : config.value.jobs) {
      if (one.members < 1 || one.members > 64 || one.segment_bytes % 32 != 0 || one.slots == 0)
        std::abort();
    }
  }
  return 0;
}
