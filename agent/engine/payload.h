// Gradient bytes between the user's vectors and datagrams. Bytes are copied, never read as float
// through the user's pointer, so that any alignment works.
#pragma once

#include <cstddef>
#include <cstdint>

#include "agent/engine/engine.h"

namespace iswitch::agent {

/// Bytes of the vector that an operation is about: 0 for a barrier.
std::size_t vector_bytes(const Request& request);

/// Why the request cannot be carried out; null when it can.
const char* unfit(const Request& request);

/// What this member contributes for the segment [offset, offset + bytes) of the vector. Empty where
/// it has nothing to add (`self` is its rank): a broadcast's receivers, a barrier, a sum's segment
/// of zeros.
Bytes contribution(const Request& request, std::uint32_t self, std::size_t offset,
                   std::size_t bytes);

/// Puts a segment's result into the vector; an empty one is zeros. `workers` >= 1.
void deliver(const Request& request, std::size_t offset, std::size_t bytes, Bytes result,
             std::uint32_t workers);

}  // namespace iswitch::agent
