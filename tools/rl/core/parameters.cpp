#include "tools/rl/core/parameters.h"

#include <cmath>
#include <cstdlib>
#include <optional>

namespace iswitch::rl {

namespace {

std::optional<double> number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

std::string Parameters::names() const {
  std::string names;
  for (const auto& entry : values_) names.append(names.empty() ? "" : ", ").append(entry.first);
  return names;
}

Failure Parameters::set_one(const std::string& assignment) {
  const auto equals = assignment.find('=');
  const std::string name = assignment.substr(0, equals);
  const auto found = values_.find(name);
  if (found == values_.end())
    return {FailureKind::usage,
            "--set " + assignment + ": no parameter \"" + name + "\"; there are " + names()};
  const auto value =
      number(equals == std::string::npos ? std::string{} : assignment.substr(equals + 1));
  if (!value)
    return {FailureKind::usage, "--set " + assignment + ": write name=value with a number"};
  found->second = *value;
  return {};
}

Failure Parameters::set(std::span<const std::string> assignments) {
  for (const std::string& assignment : assignments)
    if (Failure failure = set_one(assignment)) return failure;
  return {};
}

void Parameters::overlay(const std::map<std::string, double, std::less<>>& others) {
  for (const auto& entry : others) values_.insert_or_assign(entry.first, entry.second);
}

double Parameters::real(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? 0.0 : found->second;
}

std::size_t Parameters::count(std::string_view name) const {
  const double value = real(name);
  return value > 0.0 ? static_cast<std::size_t>(std::llround(value)) : 0;
}

}  // namespace iswitch::rl
