#include "agent/engine/payload.h"

#include <cstring>
#include <functional>

namespace iswitch::agent {
namespace {

/// Every bit zero. Stops at the first element of nearly every gradient, so it costs nothing there.
/// -0.0 counts as data: leaving it out would be the same sum, but not obviously so.
bool all_zero(Bytes bytes) {
  std::uint32_t first = 0;
  if (bytes.size() < sizeof first) return bytes.empty();
  std::memcpy(&first, bytes.data(), sizeof first);
  return first == 0 &&
         std::memcmp(bytes.data(), bytes.data() + sizeof first, bytes.size() - sizeof first) == 0;
}

bool overlap(std::span<const float> a, std::span<const float> b) {
  const std::less<const float*> before;
  return before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

}  // namespace

std::size_t vector_bytes(const Request& request) {
  return request.kind == wire::OperationKind::barrier ? 0 : request.output.size() * sizeof(float);
}

const char* unfit(const Request& request) {
  if (request.kind == wire::OperationKind::barrier) return nullptr;
  if (request.kind != wire::OperationKind::sum && request.kind != wire::OperationKind::broadcast)
    return "unknown kind of operation";
  if (request.output.data() == nullptr && !request.output.empty())
    return "the output vector is null";
  // At a broadcast's receivers the input is not looked at.
  if (request.kind == wire::OperationKind::broadcast && request.input.empty()) return nullptr;
  if (request.input.size() != request.output.size())
    return "input and output must be of one length";
  if (request.input.data() == nullptr && !request.input.empty()) return "the input vector is null";
  if (request.input.data() != request.output.data() && overlap(request.input, request.output))
    return "input and output must be the same vector or not overlap";
  return nullptr;
}

Bytes contribution(const Request& request, std::uint32_t self, std::size_t offset,
                   std::size_t bytes) {
  if (request.kind == wire::OperationKind::barrier) return {};
  const bool broadcast = request.kind == wire::OperationKind::broadcast;
  if (broadcast && self != request.root) return {};
  const Bytes whole{reinterpret_cast<const std::uint8_t*>(request.input.data()),
                    request.input.size() * sizeof(float)};
  const Bytes segment = whole.subspan(offset, bytes);
  // A broadcast's zeros are data: an empty result means that the root is missing.
  return !broadcast && all_zero(segment) ? Bytes{} : segment;
}

void deliver(const Request& request, std::size_t offset, std::size_t bytes, Bytes result,
             std::uint32_t workers) {
  if (bytes == 0) return;
  auto* out = reinterpret_cast<std::uint8_t*>(request.output.data()) + offset;
  if (result.empty()) {
    std::memset(out, 0, bytes);
    return;
  }
  if (request.kind != wire::OperationKind::sum || request.reduction == Reduction::sum) {
    std::memcpy(out, result.data(), bytes);
    return;
  }
  const auto divisor = static_cast<float>(workers);
  for (std::size_t at = 0; at < bytes; at += sizeof(float)) {
    float value;
    std::memcpy(&value, result.data() + at, sizeof value);
    value /= divisor;
    std::memcpy(out + at, &value, sizeof value);
  }
}

}  // namespace iswitch::agent
