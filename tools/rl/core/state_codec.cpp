#include "tools/rl/core/state_codec.h"

namespace iswitch::rl {
namespace {

constexpr unsigned count_part_bits = 22;
constexpr std::uint64_t count_part_mask = (1U << count_part_bits) - 1;

}  // namespace

void StateWriter::put(std::span<const float> values) {
  values_.reserve(values_.size() + values.size());
  for (const float value : values) values_.push_back(value + 0.0F);  // -0 becomes +0
}

void StateWriter::put(double value) {
  for (int part = 0; part < 3; ++part) {
    const float head = static_cast<float>(value) + 0.0F;
    values_.push_back(head);
    value -= static_cast<double>(head);
  }
}

void StateWriter::put(std::uint64_t value) {
  for (int part = 0; part < 3; ++part) {
    values_.push_back(static_cast<float>(value & count_part_mask));
    value >>= count_part_bits;
  }
}

float StateReader::next() {
  if (rest_.empty()) {
    failed_ = true;
    return 0.0F;
  }
  const float value = rest_.front();
  rest_ = rest_.subspan(1);
  return value;
}

void StateReader::get(std::span<float> out) {
  for (float& value : out) value = next();
}

double StateReader::get_double() {
  double value = 0.0;
  for (int part = 0; part < 3; ++part) value += static_cast<double>(next());
  return value;
}

std::uint64_t StateReader::get_count() {
  std::uint64_t value = 0;
  for (unsigned part = 0; part < 3; ++part)
    value |= static_cast<std::uint64_t>(next()) << (part * count_part_bits);
  return value;
}

}  // namespace iswitch::rl
