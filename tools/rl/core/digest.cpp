#include "tools/rl/core/digest.h"

#include <sodium.h>

#include <array>

namespace iswitch::rl {

std::string weights_digest(std::span<const float> weights) {
  const auto bytes = std::as_bytes(weights);
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size());
  std::string text;
  for (const unsigned char byte : digest) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace iswitch::rl
