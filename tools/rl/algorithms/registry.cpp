#include "tools/rl/algorithms/registry.h"

#include <array>

#include "tools/rl/algorithms/ppo.h"

namespace iswitch::rl {
namespace {

struct Entry {
  std::string_view name;
  Parameters (*defaults)(std::string_view environment);
  std::variant<std::unique_ptr<Algorithm>, Failure> (*make)(const AlgorithmContext& context);
};

constexpr std::array entries{
    Entry{"ppo", ppo_parameters, make_ppo},
};

const Entry* find(std::string_view name) {
  for (const Entry& entry : entries)
    if (entry.name == name) return &entry;
  return nullptr;
}

Failure unknown(std::string_view name) {
  return {FailureKind::usage,
          "no algorithm \"" + std::string(name) + "\"; there are " + algorithm_names()};
}

}  // namespace

std::variant<Parameters, Failure> default_parameters(std::string_view algorithm,
                                                     std::string_view environment) {
  const Entry* entry = find(algorithm);
  if (entry == nullptr) return unknown(algorithm);
  return entry->defaults(environment);
}

std::variant<std::unique_ptr<Algorithm>, Failure> make_algorithm(std::string_view name,
                                                                 const AlgorithmContext& context) {
  const Entry* entry = find(name);
  if (entry == nullptr) return unknown(name);
  return entry->make(context);
}

std::string algorithm_names() {
  std::string names;
  for (const Entry& entry : entries) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

}  // namespace iswitch::rl
