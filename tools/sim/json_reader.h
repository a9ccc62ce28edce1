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

namespace iswitch::sim {

struct FileError {
  std::string pointer;  ///< empty: the whole document
  std::string value;    ///< as JSON; may be empty
  std::string problem;
  /// "POINTER: VALUE: PROBLEM"
  std::string line() const;
};
using FileErrors = std::vector<FileError>;

/// Nothing when `text` is not JSON or has a key twice; `errors` says where.
std::optional<nlohmann::json> parse_json(std::string_view text, FileErrors& errors);

/// As it stands in messages, cut where it is long.
std::string shown(const nlohmann::json& value);

/// One object's members. What nobody has asked for when the reader goes away is an unknown key.
class JsonReader {
 public:
  JsonReader(const nlohmann::json& value, std::string pointer, FileErrors& errors);
  ~JsonReader();
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  bool is_object() const { return value_.is_object(); }
  std::string at(std::string_view key) const;
  const nlohmann::json* find(const char* key);
  const nlohmann::json* required(const char* key, std::string_view allowed);
  void error(const std::string& pointer, const nlohmann::json& value, std::string_view problem);

  /// False: absent or wrong.
  bool integer(const char* key, std::int64_t least, std::int64_t most, std::int64_t& out);
  bool number(const char* key, double least, double most, double& out);
  bool boolean(const char* key, bool& out);
  /// One of `names`; `out` gets its place in the list.
  bool choice(const char* key, const std::vector<std::string>& names, std::size_t& out);
  bool text(const char* key, std::string_view allowed, std::string& out);

  template <class T>
  void count(const char* key, std::int64_t least, std::int64_t most, T& out) {
    std::int64_t value = 0;
    if (integer(key, least, most, value)) out = static_cast<T>(value);
  }
  /// A time of `unit` nanoseconds, given as a number; 0 to a day.
  void time(const char* key, std::int64_t unit, std::int64_t& out);
  void probability(const char* key, double& out) { number(key, 0, 1, out); }

 private:
  const nlohmann::json& value_;
  std::string pointer_;
  FileErrors& errors_;
  std::set<std::string> known_;
};

}  // namespace iswitch::sim
