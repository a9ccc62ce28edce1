// Numbers that steer an algorithm, by name: its defaults, then an environment's, then the user's.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "tools/rl/core/failure.h"

namespace iswitch::rl {

class Parameters {
 public:
  Parameters() = default;
  explicit Parameters(std::map<std::string, double, std::less<>> defaults)
      : values_(std::move(defaults)) {}

  /// Sets each "name=value"; a name that has no default, and a value that is no number, is a usage
  /// failure.
  Failure set(std::span<const std::string> assignments);
  /// Takes the values of `others` for names known here; an unknown one is added.
  void overlay(const std::map<std::string, double, std::less<>>& others);

  /// `name` must have a default.
  double real(std::string_view name) const;
  std::size_t count(std::string_view name) const;
  const std::map<std::string, double, std::less<>>& all() const { return values_; }

 private:
  Failure set_one(const std::string& assignment);
  std::string names() const;

  std::map<std::string, double, std::less<>> values_;
};

}  // namespace iswitch::rl
