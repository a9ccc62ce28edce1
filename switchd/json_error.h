// What is wrong with a JSON document, and where.
#pragma once

#include <string>
#include <vector>

namespace iswitch {

struct JsonError {
  std::string pointer;  ///< RFC 6901; empty: the whole document
  std::string value;    ///< what stands there, as JSON; may be empty
  std::string problem;  ///< and what is allowed
  /// "POINTER: VALUE: PROBLEM"
  std::string line() const;
};
using JsonErrors = std::vector<JsonError>;

}  // namespace iswitch
