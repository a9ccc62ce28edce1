// A fast hash of bytes, the same on every machine of one byte order.
#pragma once

#include <cstdint>

#include "wire/units.h"

namespace iswitch::sim {

std::uint64_t hash_bytes(Bytes bytes);

}  // namespace iswitch::sim
