#include "tools/rl/exchanges/registry.h"

#include <array>

#include "tools/rl/exchanges/async_exchange.h"
#include "tools/rl/exchanges/local_exchange.h"

namespace iswitch::rl {
namespace {

using Made = std::variant<std::unique_ptr<Exchange>, Failure>;

struct Entry {
  std::string_view name;
  Made (*make)(const SwitchOptions& network);
};

Made make_local(const SwitchOptions&) { return std::make_unique<LocalExchange>(); }

constexpr std::array entries{
    Entry{"local", make_local},
    Entry{"iswitch", join_switch},
    Entry{"iswitch-async", join_switch_asynchronously},
};

}  // namespace

Made make_exchange(std::string_view name, const SwitchOptions& network) {
  for (const Entry& entry : entries)
    if (entry.name == name) return entry.make(network);
  return Failure{FailureKind::usage,
                 "no exchange \"" + std::string(name) + "\"; there are " + exchange_names()};
}

std::string exchange_names() {
  std::string names;
  for (const Entry& entry : entries) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

}  // namespace iswitch::rl
