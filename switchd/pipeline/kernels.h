// The arithmetic of a sum: binary32 additions in order of arrival, round to nearest even,
// subnormals kept, canonical NaN (protocol.md section 4). The same bits on every processor: one
// addition an element, no fused or reassociated ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/checksum.h"

#ifdef __FAST_MATH__
#error "iswitch sums must be the same bits everywhere: build without -ffast-math"
#endif

namespace iswitch::pipeline {

inline constexpr std::uint32_t canonical_nan = 0x7FC0'0000;

/// One implementation of the arithmetic. `sum` is 64-byte aligned, `part` need not be; `count` is
/// in floats; the two do not overlap. Nothing outside [0, count) is read or written.
struct Kernels {
  const char* name;
  /// sum = 0.0f + part. The zero turns -0 into +0 and quiets a signalling NaN.
  void (*open)(std::uint8_t* sum, const std::uint8_t* part, std::size_t count);
  /// sum = sum + part.
  void (*add)(std::uint8_t* sum, const std::uint8_t* part, std::size_t count);
  /// Makes every NaN the canonical one and gives the Internet checksum's partial sum of the bytes.
  wire::PartialSum (*finish)(std::uint8_t* sum, std::size_t count);
  /// add and finish in one pass, for the contribution that completes a sum.
  wire::PartialSum (*add_and_finish)(std::uint8_t* sum, const std::uint8_t* part,
                                     std::size_t count);
};

/// Those that this processor can run, plainest first.
std::span<const Kernels> kernel_variants();
/// The fastest of them.
const Kernels& best_kernels();

/// False where the calling thread flushes subnormals, takes them as zero, rounds otherwise than to
/// nearest even, or traps floating-point exceptions: sums would not be what the protocol says.
bool float_environment_is_right();

}  // namespace iswitch::pipeline
