// A digest of weights, to show that workers hold the same bits.
#pragma once

#include <span>
#include <string>

namespace iswitch::rl {

/// SHA-256 of the floats' bytes as they are in memory, 64 hexadecimal digits.
std::string weights_digest(std::span<const float> weights);

}  // namespace iswitch::rl
