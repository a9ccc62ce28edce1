#include "switchd/json_reader.h"

#include <algorithm>
#include <utility>

namespace iswitch {

using nlohmann::json;

namespace {

constexpr std::size_t shown_bytes = 80;

/// A key as RFC 6901 writes it within a JSON string (its section 5): on one line, whatever it
/// holds.
std::string token(std::string_view key) {
  const std::string quoted = json(key).dump(-1, ' ', true, json::error_handler_t::replace);
  std::string out;
  for (const char c : std::string_view(quoted).substr(1, quoted.size() - 2)) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

// nlohmann keeps the last of two equal keys; here both are an error.
class DuplicateKeys {
 public:
  DuplicateKeys(std::string_view root, JsonErrors& errors) : root_(root), errors_(errors) {}

  bool operator()(int /*depth*/, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        levels_.push_back({event == json::parse_event_t::array_start, 0, {}, {}});
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        levels_.pop_back();
        value_ended();
        break;
      case json::parse_event_t::value:
        value_ended();
        break;
      case json::parse_event_t::key:
        levels_.back().key = parsed.get<std::string>();
        if (!levels_.back().keys.insert(levels_.back().key).second)
          errors_.push_back({pointer(), "", "is given twice"});
        break;
    }
    return true;
  }

 private:
  struct Level {
    bool array;
    std::size_t index;
    std::string key;
    std::set<std::string> keys;
  };
  void value_ended() {
    if (!levels_.empty() && levels_.back().array) ++levels_.back().index;
  }
  std::string pointer() const {
    std::string out = root_;
    for (const Level& level : levels_) {
      out += '/';
      out += level.array ? std::to_string(level.index) : token(level.key);
    }
    return out;
  }

  std::string root_;
  JsonErrors& errors_;
  std::vector<Level> levels_;
};

std::string in_words(double value) { return json(value).dump(); }

/// "parse error at line 3, column 7: ..." out of nlohmann's message, or "number overflow parsing
/// '1e999'".
std::string syntax_error(const json::exception& error) {
  const std::string message = error.what();
  const std::size_t start = message.find("] ");
  std::string line =
      "not JSON: " + (start == std::string::npos ? message : message.substr(start + 2));
  // The message quotes the text around the error, line ends and control characters included.
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  line.resize(std::min<std::size_t>(line.size(), 300));
  return line;
}

}  // namespace

std::string JsonError::line() const {
  std::string out = pointer;
  for (const std::string* part : {&value, &problem}) {
    if (part->empty()) continue;
    if (!out.empty()) out += ": ";
    out += *part;
  }
  return out;
}

std::string shown(const json& value) {
  std::string dumped = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (dumped.size() > shown_bytes) {
    dumped.resize(shown_bytes);
    dumped += "...";
  }
  return dumped;
}

std::optional<json> parse_json(std::string_view text, std::string_view root, JsonErrors& errors) {
  try {
    return json::parse(text, DuplicateKeys(root, errors));
  } catch (const json::exception& error) {  // a syntax error, or a number no double holds
    errors.assign({{std::string(root), "", syntax_error(error)}});
    return std::nullopt;
  }
}

JsonReader::JsonReader(const json& value, std::string pointer, JsonErrors& errors)
    : value_(value), pointer_(std::move(pointer)), errors_(errors) {
  if (!value_.is_object()) error(pointer_, value_, "must be an object");
}

JsonReader::~JsonReader() {
  if (!value_.is_object()) return;
  for (const auto& [key, value] : value_.items()) {
    if (known_.count(key) != 0) continue;
    std::string allowed = "is an unknown key; known here:";
    for (const std::string& name : known_) {
      allowed += ' ';
      allowed += name;
    }
    error(at(key), value, allowed);
  }
}

std::string JsonReader::at(std::string_view key) const {
  std::string out = pointer_;
  out += '/';
  out += token(key);
  return out;
}

const json* JsonReader::find(const char* key) {
  known_.insert(key);
  if (!value_.is_object()) return nullptr;
  const auto found = value_.find(key);
  return found == value_.end() ? nullptr : &*found;
}

const json* JsonReader::required(const char* key, std::string_view allowed) {
  const json* found = find(key);
  if (found == nullptr && value_.is_object())
    errors_.push_back({at(key), "", "is missing: " + std::string(allowed)});
  return found;
}

void JsonReader::error(const std::string& pointer, const json& value, std::string_view problem) {
  errors_.push_back({pointer, shown(value), std::string(problem)});
}

bool JsonReader::integer(const char* key, std::int64_t least, std::int64_t most, std::int64_t& out,
                         Presence presence, std::string_view also) {
  std::string allowed =
      "must be an integer from " + std::to_string(least) + " to " + std::to_string(most);
  allowed += also;
  const json* found = presence == Presence::required ? required(key, allowed) : find(key);
  if (found == nullptr) return false;
  // A number beyond int64 is unsigned in nlohmann; get<int64_t> would wrap.
  const bool fits = found->is_number_integer() &&
                    !(found->is_number_unsigned() &&
                      found->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) &&
                    found->get<std::int64_t>() >= least && found->get<std::int64_t>() <= most;
  if (fits) {
    out = found->get<std::int64_t>();
  } else {
    error(at(key), *found, allowed);
  }
  return fits;
}

bool JsonReader::number(const char* key, double least, double most, double& out) {
  const json* found = find(key);
  if (found == nullptr) return false;
  const double value = found->is_number() ? found->get<double>() : 0;
  const bool fits = found->is_number() && value >= least && value <= most;
  if (fits) {
    out = value;
  } else {
    error(at(key), *found, "must be a number from " + in_words(least) + " to " + in_words(most));
  }
  return fits;
}

bool JsonReader::boolean(const char* key, bool& out) {
  const json* found = find(key);
  if (found == nullptr) return false;
  if (!found->is_boolean()) {
    error(at(key), *found, "must be true or false");
    return false;
  }
  out = found->get<bool>();
  return true;
}

bool JsonReader::choice(const char* key, const std::vector<std::string>& names, std::size_t& out) {
  const json* found = find(key);
  if (found == nullptr) return false;
  const auto chosen = found->is_string()
                          ? std::find(names.begin(), names.end(), found->get<std::string>())
                          : names.end();
  if (chosen != names.end()) {
    out = static_cast<std::size_t>(chosen - names.begin());
    return true;
  }
  std::string allowed = "must be";
  for (std::size_t i = 0; i < names.size(); ++i) {
    allowed += i == 0 ? " " : i + 1 == names.size() ? " or " : ", ";
    allowed += '"';
    allowed += names[i];
    allowed += '"';
  }
  error(at(key), *found, allowed);
  return false;
}

bool JsonReader::text(const char* key, std::string_view allowed, std::string& out) {
  const json* found = find(key);
  if (found == nullptr) return false;
  if (!found->is_string() || found->get_ref<const std::string&>().empty()) {
    error(at(key), *found, allowed);
    return false;
  }
  out = found->get<std::string>();
  return true;
}

bool JsonReader::time(const char* key, std::int64_t unit, std::int64_t& out) {
  constexpr double day = 86'400e9;
  double value = 0;
  if (!number(key, 0, day / static_cast<double>(unit), value)) return false;
  out = static_cast<std::int64_t>(value * static_cast<double>(unit));
  return true;
}

}  // namespace iswitch
