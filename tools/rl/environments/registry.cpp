#include "tools/rl/environments/registry.h"

#include <array>

#include "tools/rl/environments/cartpole.h"
#include "tools/rl/environments/hopper.h"

namespace iswitch::rl {
namespace {

struct Entry {
  std::string_view name;
  std::variant<EnvironmentFactory, Failure> (*make)();
};

constexpr std::array entries{
    Entry{"cartpole", cartpole_factory},
    Entry{"hopper", hopper_factory},
};

}  // namespace

std::variant<EnvironmentFactory, Failure> environment_factory(std::string_view name) {
  for (const Entry& entry : entries)
    if (entry.name == name) return entry.make();
  return Failure{FailureKind::usage,
                 "no environment \"" + std::string(name) + "\"; there are " + environment_names()};
}

std::string environment_names() {
  std::string names;
  for (const Entry& entry : entries) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

}  // namespace iswitch::rl
