// A job's key from its file (protocol.md section 6): the file's bytes, nothing trimmed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace iswitch::wire {

inline constexpr std::size_t min_key_bytes = 16;
inline constexpr std::size_t max_key_bytes = 1024;

/// Fills `key`. Empty when all is well, else one line without the path: what is wrong with the file
/// and what to do.
std::string read_key_file(const std::string& path, std::vector<std::uint8_t>& key);

}  // namespace iswitch::wire
