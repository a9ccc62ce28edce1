// Payload memory of the pipeline. A slot owns one handle for its open sum and one for each kept
// result; transmit queues own shares of kept results. A shared buffer is never written.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace iswitch::pipeline {

/// acquire() gives a handle owned once, or a null handle when memory is exhausted; the bytes are
/// not cleared. share(h, n) adds n owners. release(h) takes one away. data(h) is 64-byte aligned
/// and holds at least the largest segment.
template <class B>
concept BufferPool = requires(B pool, typename B::Handle handle, unsigned n) {
  { pool.acquire() } -> std::same_as<typename B::Handle>;
  {pool.share(handle, n)};
  {pool.release(handle)};
  { pool.data(handle) } -> std::same_as<std::uint8_t*>;
  {static_cast<bool>(handle)};
};

}  // namespace iswitch::pipeline
