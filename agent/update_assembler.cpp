// Whole updates from slices, and snapshots as bytes.
#include <algorithm>
#include <bit>
#include <cstring>

#include "iswitch/async_trainer.h"
#include "wire/serial.h"

namespace iswitch {

UpdateAssembler::UpdateAssembler(std::size_t elements, std::size_t segment_elements)
    : elements_(elements),
      segment_elements_(std::max<std::size_t>(segment_elements, 1)),
      segments_((elements + segment_elements_ - 1) / segment_elements_) {
  numbers_.last.assign(segments_, 0);
}

std::size_t UpdateAssembler::segment_size(std::uint32_t segment) const {
  return std::min(elements_ - segment * segment_elements_, segment_elements_);
}

UpdateAssembler::Whole& UpdateAssembler::whole(std::uint32_t number) {
  Whole& whole = waiting_[number - numbers_.base_round];
  if (whole.values.empty()) {
    whole.values.resize(elements_);
    whole.there.assign(segments_, false);
  }
  return whole;
}

bool UpdateAssembler::restart(const UpdateNumbers& numbers, std::uint64_t version,
                              std::vector<PendingSlice> pending) {
  if (numbers.last.size() != segments_) return false;
  const std::uint32_t next = numbers.base_round + static_cast<std::uint32_t>(version) + 1;
  std::vector<std::uint32_t> last(segments_, next - 1);
  std::sort(pending.begin(), pending.end(), [&](const PendingSlice& a, const PendingSlice& b) {
    return a.number - next < b.number - next;
  });
  for (const PendingSlice& slice : pending) {
    if (slice.segment >= segments_ || slice.values.size() != segment_size(slice.segment) ||
        slice.number != ++last[slice.segment])
      return false;
  }
  // What the numbers count is either in the weights or pending.
  if (last != numbers.last) return false;
  numbers_ = numbers;
  version_ = version;
  next_ = next;
  waiting_.clear();
  for (const PendingSlice& slice : pending) {
    Whole& into = whole(slice.number);
    std::copy(slice.values.begin(), slice.values.end(),
              into.values.begin() + static_cast<std::ptrdiff_t>(slice.segment * segment_elements_));
    into.there[slice.segment] = true;
    ++into.slices;
  }
  return true;
}

bool UpdateAssembler::add(const SliceUpdate& slice) {
  if (slice.segment >= segments_ || slice.values.size() != segment_size(slice.segment) ||
      slice.workers == 0 || slice.number != numbers_.last[slice.segment] + 1)
    return false;
  numbers_.last[slice.segment] = slice.number;
  Whole& into = whole(slice.number);
  const auto divisor = static_cast<float>(slice.workers);
  std::transform(
      slice.values.begin(), slice.values.end(),
      into.values.begin() + static_cast<std::ptrdiff_t>(slice.segment * segment_elements_),
      [divisor](float value) { return value / divisor; });
  into.there[slice.segment] = true;
  ++into.slices;
  return true;
}

bool UpdateAssembler::take(std::span<float> mean) {
  const auto found = waiting_.find(next_ - numbers_.base_round);
  if (found == waiting_.end() || found->second.slices != segments_) return false;
  std::copy(found->second.values.begin(), found->second.values.end(), mean.begin());
  waiting_.erase(found);
  ++next_;
  ++version_;
  return true;
}

std::vector<PendingSlice> UpdateAssembler::pending() const {
  std::vector<PendingSlice> slices;
  for (const auto& [distance, whole] : waiting_) {
    for (std::uint32_t segment = 0; segment < segments_; ++segment) {
      if (!whole.there[segment]) continue;
      const auto first =
          whole.values.begin() + static_cast<std::ptrdiff_t>(segment * segment_elements_);
      slices.push_back({segment,
                        numbers_.base_round + distance,
                        {first, first + static_cast<std::ptrdiff_t>(segment_size(segment))}});
    }
  }
  return slices;
}

// ---- snapshots as bytes: big-endian counts, floats as their bits

namespace {

constexpr std::uint64_t magic = 0x6973'7769'7463'6831ULL;  // "iswitch1"

class Writer {
 public:
  void put(std::uint64_t value, unsigned bytes) {
    for (unsigned i = bytes; i > 0; --i)
      out.push_back(static_cast<std::uint8_t>(value >> (8 * (i - 1))));
  }
  void put(std::span<const float> values) {
    put(values.size(), 8);
    for (const float value : values) put(std::bit_cast<std::uint32_t>(value), 4);
  }
  std::vector<std::uint8_t> out;
};

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : rest_(bytes) {}
  std::uint64_t get(unsigned bytes) {
    if (rest_.size() < bytes) {
      failed_ = true;
      return 0;
    }
    std::uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value = value << 8 | rest_[i];
    rest_ = rest_.subspan(bytes);
    return value;
  }
  /// A count of things of at least `each` bytes that may still follow.
  std::size_t count(unsigned each) {
    const std::uint64_t value = get(8);
    if (value > rest_.size() / each) failed_ = true;
    return failed_ ? 0 : static_cast<std::size_t>(value);
  }
  std::vector<float> floats() {
    std::vector<float> values(count(4));
    for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(get(4)));
    return values;
  }
  bool good() const { return !failed_ && rest_.empty(); }

 private:
  std::span<const std::uint8_t> rest_;
  bool failed_ = false;
};

}  // namespace

std::vector<std::uint8_t> TrainerSnapshot::encode() const {
  Writer writer;
  writer.put(magic, 8);
  writer.put(numbers.base_round, 4);
  writer.put(version, 8);
  writer.put(numbers.last.size(), 8);
  for (const std::uint32_t number : numbers.last) writer.put(number, 4);
  writer.put(weights);
  writer.put(optimiser);
  writer.put(pending.size(), 8);
  for (const PendingSlice& slice : pending) {
    writer.put(slice.segment, 4);
    writer.put(slice.number, 4);
    writer.put(slice.values);
  }
  return std::move(writer.out);
}

std::optional<TrainerSnapshot> TrainerSnapshot::decode(std::span<const std::uint8_t> bytes) {
  Reader reader(bytes);
  TrainerSnapshot snapshot;
  if (reader.get(8) != magic) return std::nullopt;
  snapshot.numbers.base_round = static_cast<std::uint32_t>(reader.get(4));
  snapshot.version = reader.get(8);
  snapshot.numbers.last.resize(reader.count(4));
  for (std::uint32_t& number : snapshot.numbers.last)
    number = static_cast<std::uint32_t>(reader.get(4));
  snapshot.weights = reader.floats();
  snapshot.optimiser = reader.floats();
  snapshot.pending.resize(reader.count(16));
  for (PendingSlice& slice : snapshot.pending) {
    slice.segment = static_cast<std::uint32_t>(reader.get(4));
    slice.number = static_cast<std::uint32_t>(reader.get(4));
    slice.values = reader.floats();
  }
  if (!reader.good()) return std::nullopt;
  return snapshot;
}

}  // namespace iswitch
