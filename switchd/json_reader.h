// Reads a JSON document strictly: unknown keys, keys given twice and values out of range are
// errors, each with its JSON pointer, its value and what is allowed, and all of them are found.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "switchd/json_error.h"

namespace iswitch {

/// Nothing when `text` is not JSON; `errors` says where. A key given twice is an error too, and the
/// rest is read all the same. `root` is the pointer of the whole.
std::optional<nlohmann::json> parse_json(std::string_view text, std::string_view root,
                                         JsonErrors& errors);

/// As it stands in messages, cut where it is long.
std::string shown(const nlohmann::json& value);

/// One object's members. What nobody has asked for when the reader goes away is an unknown key.
class JsonReader {
 public:
  enum class Presence : std::uint8_t { optional, required };

  JsonReader(const nlohmann::json& value, std::string pointer, JsonErrors& errors);
  ~JsonReader();
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  bool is_object() const { return value_.is_object(); }
  /// The pointer of a member.
  std::string at(std::string_view key) const;
  const nlohmann::json* find(const char* key);
  const nlohmann::json* required(const char* key, std::string_view allowed);
  void error(const std::string& pointer, const nlohmann::json& value, std::string_view problem);

  // False: absent or wrong; `out` is as it was.

  bool integer(const char* key, std::int64_t least, std::int64_t most, std::int64_t& out,
               Presence presence = Presence::optional, std::string_view also = "");
  template <class T>
  bool integer(const char* key, std::int64_t least, std::int64_t most, T& out,
               Presence presence = Presence::optional, std::string_view also = "") {
    std::int64_t value = 0;
    const bool given = integer(key, least, most, value, presence, also);
    if (given) out = static_cast<T>(value);
    return given;
  }
  template <class T>
  void integer_or_null(const char* key, std::int64_t least, std::int64_t most,
                       std::optional<T>& out) {
    const nlohmann::json* found = find(key);
    if (found == nullptr || found->is_null()) return;
    T value{};
    if (integer(key, least, most, value, Presence::optional, " or null")) out = value;
  }
  bool number(const char* key, double least, double most, double& out);
  bool boolean(const char* key, bool& out);
  /// One of `names`; `out` gets its place in the list.
  bool choice(const char* key, const std::vector<std::string>& names, std::size_t& out);
  /// A string that `accept` takes.
  template <class Accept>
  bool string(const char* key, std::string_view allowed, const Accept& accept,
              Presence presence = Presence::optional) {
    const nlohmann::json* found =
        presence == Presence::required ? required(key, allowed) : find(key);
    if (found == nullptr) return false;
    if (found->is_string() && accept(found->get_ref<const std::string&>())) return true;
    error(at(key), *found, allowed);
    return false;
  }
  /// One that is not empty.
  bool text(const char* key, std::string_view allowed, std::string& out);
  /// A time of `unit` nanoseconds, given as a number; 0 to a day.
  bool time(const char* key, std::int64_t unit, std::int64_t& out);
  void probability(const char* key, double& out) { number(key, 0, 1, out); }

 private:
  const nlohmann::json& value_;
  std::string pointer_;
  JsonErrors& errors_;
  std::set<std::string> known_;
};

}  // namespace iswitch
