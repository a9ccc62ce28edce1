#include "tools/sim/async_checks.h"

#include <algorithm>
#include <bit>

#include "tools/sim/checks.h"
#include "tools/sim/gradient.h"
#include "tools/sim/random.h"

namespace iswitch::sim {

namespace {
constexpr std::size_t recent = 64;               // pushes of a rank that an update may still bring
constexpr std::size_t long_ago = 512;            // likewise, looked at where nothing else is found
constexpr unsigned few_parts = 3;                // of one rank in an update
constexpr unsigned enough_wrong_sums = 20;       // as many as are shown
constexpr float certainly_many = 12 * 0x8'0000;  // at least so many parts
constexpr std::size_t one_of_many = 40;  // where there are more, they are among so many newest ones
}  // namespace

AsyncChecks::AsyncChecks(World& world, std::uint16_t job, unsigned number, unsigned ranks,
                         std::uint32_t elements, std::uint32_t segment_elements)
    : world_(world),
      job_(job),
      number_(number),
      ranks_(ranks),
      elements_(elements),
      segment_elements_(segment_elements),
      segments_((elements + segment_elements - 1) / segment_elements),
      pushes_(ranks),
      places_(ranks),
      positions_(ranks),
      behind_(ranks) {}

void AsyncChecks::wrong(const char* property, unsigned rank, const std::string& text) {
  world_.violation(property, format("job %u rank %u: %s", job_, rank, text.c_str()));
}

void AsyncChecks::epoch(std::uint32_t base_round, std::span<const float> weights) {
  Epoch& epoch = epochs_[base_round];
  epoch.start.assign(weights.begin(), weights.end());
  epoch.reference = epoch.start;
  epoch.updates.assign(segments_, {});
}

// 1 to 2^19: the sum of many stays a whole number that a float32 holds.
float AsyncChecks::value(unsigned rank, std::uint32_t serial, std::uint64_t element) const {
  const std::uint64_t push = std::uint64_t{number_} << 48 ^ std::uint64_t{rank} << 32 ^ serial;
  return static_cast<float>(1 + (mix(mix(push) ^ element) & 0x7'FFFF));
}

std::uint32_t AsyncChecks::pushed(unsigned rank, std::span<float> out) {
  auto& pushes = pushes_[rank];
  const auto serial = static_cast<std::uint32_t>(pushes.size());
  pushes.emplace_back();
  pushes.back().where.resize(segments_);
  pushes.back().place = places_[rank];
  std::fill(out.begin(), out.end(), 0.0F);
  for (std::size_t e = rank; e < out.size(); e += ranks_) out[e] = value(rank, serial, e);
  ++figures_.pushes;
  return serial;
}

bool AsyncChecks::unchanged(unsigned rank, std::uint32_t serial,
                            std::span<const float> gradient) const {
  for (std::size_t e = 0; e < gradient.size(); ++e) {
    if (gradient[e] != (e % ranks_ == rank ? value(rank, serial, e) : 0.0F)) return false;
  }
  return true;
}

void AsyncChecks::ended(const Ending& ending) {
  if (world_.now() > ending.deadline + ending.slack) {
    wrong(property::deadline, ending.rank,
          format("push %u ended %.3f ms after its deadline", ending.serial,
                 static_cast<double>(world_.now() - ending.deadline) / 1e6));
  }
  if (ending.error) {
    ++figures_.failed;
    ++figures_.errors[static_cast<unsigned>(ending.error.code)];
    const bool in_doubt = ending.error.code == agent::ErrorCode::in_doubt;
    // One that was given up alone goes on being sent, and one that is in doubt may have been summed
    // in some segments; else all were given up, with their place.
    if (ending.error.code != agent::ErrorCode::timed_out && !in_doubt)
      places_[ending.rank] = ending.serial + 1;
    const auto& pushes = pushes_[ending.rank];
    const bool first = std::none_of(pushes.begin(), pushes.end(),
                                    [](const Push& push) { return push.acknowledged; });
    if (ending.error.code == agent::ErrorCode::gone) behind_[ending.rank] = true;
    const bool straggler = someone_is_behind() || someone_behind_ >= ending.submitted;
    const bool may_fail = ending.stopped || ending.error.code == agent::ErrorCode::gone ||
                          (in_doubt && (several_switches_ || first)) ||
                          (ending.error.code == agent::ErrorCode::job_reset && straggler);
    if (unbroken_ && !may_fail) {
      wrong(property::continuity, ending.rank,
            format("push %u failed, though nothing but switches has restarted: %s", ending.serial,
                   ending.error.text.c_str()));
    }
    if (ending.error.text.empty() || ending.error.text.find('\n') != std::string::npos) {
      wrong(property::honest, ending.rank,
            format("an error (%s) is not one line of text", agent::error_name(ending.error.code)));
    }
    return;
  }
  ++figures_.completed;
  figures_.times.push_back(world_.now() - ending.submitted);
  Push& push = pushes_[ending.rank][ending.serial];
  push.acknowledged = true;
  push.base_round = ending.base_round;
}

bool AsyncChecks::someone_is_behind() const {
  return std::find(behind_.begin(), behind_.end(), true) != behind_.end();
}

void AsyncChecks::resumed(unsigned rank, const agent::UpdateNumbers& numbers) {
  if (behind_[rank]) someone_behind_ = world_.now();
  behind_[rank] = false;
  positions_[rank] = numbers;
  positions_[rank].last.resize(segments_, numbers.base_round);
}

void AsyncChecks::applied(unsigned rank, std::uint32_t base_round, const agent::Update& update,
                          std::span<const float> weights) {
  ++figures_.updates;
  agent::UpdateNumbers& position = positions_[rank];
  if (position.base_round != base_round || update.segment >= segments_) {
    wrong(property::once, rank,
          format("update %u of segment %u belongs to base round %u, its weights to %u",
                 update.number, update.segment, base_round, position.base_round));
    return;
  }
  std::uint32_t& last = position.last[update.segment];
  if (update.number != last + 1) {
    wrong(property::once, rank,
          format("update %u of segment %u came after update %u", update.number, update.segment,
                 last));
  }
  last = update.number;

  Epoch& epoch = epochs_[base_round];
  auto& records = epoch.updates[update.segment];
  const std::uint32_t index = update.number - base_round - 1;
  if (index > records.size()) {
    wrong(property::once, rank,
          format("update %u of segment %u was delivered, update %u to nobody", update.number,
                 update.segment, base_round + 1 + static_cast<std::uint32_t>(records.size())));
    return;
  }
  const auto differs = [&] {
    const Record& record = records[index];
    return record.values != hash_of(update.values) || record.workers != update.workers ||
           record.partial != update.partial;
  };
  // Updates may be lost with a switch: those that are summed again count then.
  const bool again =
      index < records.size() && differs() && records[index].seen < world_.switch_started;
  if (again) forget(epoch, base_round, update);
  if (index == records.size()) first_seen(epoch, base_round, update);
  if (index == records.size()) return;  // of another size, which has been told
  Record& record = records[index];
  if (again) {
    // Of what was forgotten there are only hashes; this rank's weights were right up to here.
    std::copy(weights.begin(), weights.end(),
              epoch.reference.begin() + static_cast<std::ptrdiff_t>(update.first));
    record.weights = hash_of(weights);
  }
  if (differs()) {
    wrong(property::same_bits, rank,
          format("update %u of segment %u differs from what another rank got (workers %u and %u)",
                 update.number, update.segment, update.workers, record.workers));
  }
  if (record.weights != hash_of(weights)) {
    wrong(property::replicas, rank,
          format("weights of segment %u at update %u differ from the sum of all updates",
                 update.segment, update.number));
  }
}

void AsyncChecks::forget(Epoch& epoch, std::uint32_t base_round, const agent::Update& update) {
  const std::uint32_t left = update.number - base_round - 1;
  for (auto& pushes : pushes_) {
    for (Push& push : pushes) {
      std::uint64_t& where = push.where[update.segment];
      if (where == 0 || (where - 1) >> 32 != base_round) continue;
      if (static_cast<std::uint32_t>(where - 1) - base_round <= left) continue;  // they may wrap
      where = 0;
      push.acknowledged = false;  // to somebody who has given up the weights that it was in
    }
  }
  epoch.updates[update.segment].resize(left);
}

void AsyncChecks::first_seen(Epoch& epoch, std::uint32_t base_round, const agent::Update& update) {
  const std::uint64_t start = std::uint64_t{update.segment} * segment_elements_;
  const std::uint64_t end = std::min<std::uint64_t>(start + segment_elements_, elements_);
  if (update.first != start || update.values.size() != end - start) {
    wrong(
        property::exact_sum, 0,
        format("update %u of segment %u has %zu elements from %llu", update.number, update.segment,
               update.values.size(), static_cast<unsigned long long>(update.first)));
    return;
  }
  std::optional<unsigned> parts = 0;  // unless that cannot be told
  bool right = true;
  for (std::uint64_t e = start; e < std::min(end, start + ranks_) && right; ++e) {
    right = decode(base_round, update, static_cast<unsigned>(e % ranks_), e, parts);
  }
  if (right && parts && end - start >= ranks_ && *parts != update.workers) {
    wrong(property::honest, 0,
          format("update %u of segment %u has %u pushes in it, but says %u", update.number,
                 update.segment, *parts, update.workers));
  }
  const auto reference = std::span(epoch.reference).subspan(start, end - start);
  for (std::size_t i = 0; i < reference.size(); ++i) reference[i] += update.values[i];
  epoch.updates[update.segment].push_back(
      {hash_of(update.values), hash_of(reference), update.workers, update.partial, world_.now()});
}

bool AsyncChecks::is_sum_of(const agent::Update& update, unsigned rank, std::uint64_t first,
                            const std::vector<std::uint32_t>& serials) const {
  for (std::uint64_t e = first; e < update.first + update.values.size(); e += ranks_) {
    float expected = 0;
    for (const std::uint32_t serial : serials) expected += value(rank, serial, e);
    if (update.values[e - update.first] != expected) return false;
  }
  return true;
}

bool AsyncChecks::find_parts(const agent::Update& update, unsigned rank, std::uint64_t first,
                             unsigned more, float left, std::size_t oldest, std::size_t below,
                             std::vector<std::uint32_t>& found) const {
  if (more == 0) return left == 0 && is_sum_of(update, rank, first, found);
  const auto& pushes = pushes_[rank];
  for (std::size_t serial = below; serial-- > oldest;) {
    if (pushes[serial].where[update.segment] != 0) continue;
    const float part = value(rank, static_cast<std::uint32_t>(serial), first);
    if (part > left || (more == 1 && part != left)) continue;
    found.push_back(static_cast<std::uint32_t>(serial));
    if (find_parts(update, rank, first, more - 1, left - part, oldest, serial, found)) return true;
    found.pop_back();
  }
  return false;
}

bool AsyncChecks::find_many_parts(const agent::Update& update, unsigned rank, std::uint64_t first,
                                  float sum, std::vector<std::uint32_t>& found) const {
  // A place has one push outstanding: of most it is the first one that is in no update yet.
  std::vector<std::uint32_t> firsts;
  std::vector<std::uint32_t> newest;
  const auto& pushes = pushes_[rank];
  for (std::size_t serial = pushes.size(); serial-- > 0 && firsts.size() <= one_of_many;) {
    if (pushes[serial].where[update.segment] != 0) continue;
    if (newest.size() < one_of_many) newest.push_back(static_cast<std::uint32_t>(serial));
    if (!firsts.empty() && pushes[firsts.back()].place == pushes[serial].place) firsts.pop_back();
    firsts.push_back(static_cast<std::uint32_t>(serial));
  }
  if (firsts.size() > one_of_many) firsts.pop_back();
  return find_among(firsts, update, rank, first, sum, found) ||
         find_among(newest, update, rank, first, sum, found);
}

namespace {

// What each subset of the values sums to; bit i of a subset is value i. Whole numbers that a float
// holds, so the order of the additions is no matter.
std::vector<float> subset_sums(std::span<const float> values) {
  std::vector<float> sums(std::size_t{1} << values.size());
  for (std::size_t subset = 1; subset < sums.size(); ++subset)
    sums[subset] =
        sums[subset & (subset - 1)] + values[static_cast<unsigned>(std::countr_zero(subset))];
  return sums;
}

}  // namespace

// Every sum of the older half, and for each sum of the newer half what is then left among them.
bool AsyncChecks::find_among(const std::vector<std::uint32_t>& serials, const agent::Update& update,
                             unsigned rank, std::uint64_t first, float sum,
                             std::vector<std::uint32_t>& found) const {
  std::vector<float> values(serials.size());
  std::transform(serials.begin(), serials.end(), values.begin(),
                 [&](std::uint32_t serial) { return value(rank, serial, first); });
  const std::size_t newer = serials.size() / 2;
  const auto newer_sums = subset_sums(std::span(values).first(newer));
  const auto older_sums = subset_sums(std::span(values).subspan(newer));
  std::vector<std::pair<float, std::uint32_t>> older;
  for (std::uint32_t chosen = 0; chosen < older_sums.size(); ++chosen)
    if (older_sums[chosen] <= sum) older.emplace_back(older_sums[chosen], chosen);
  std::sort(older.begin(), older.end());
  for (std::uint32_t chosen = 0; chosen < newer_sums.size(); ++chosen) {
    const float left = sum - newer_sums[chosen];
    for (auto it = std::lower_bound(older.begin(), older.end(), std::pair{left, 0U});
         it != older.end() && it->first == left; ++it) {
      found.clear();
      const std::uint64_t all = std::uint64_t{it->second} << newer | chosen;
      for (std::size_t i = 0; i < serials.size(); ++i)
        if ((all >> i & 1) != 0) found.push_back(serials[i]);
      if (is_sum_of(update, rank, first, found)) return true;
    }
  }
  return false;
}

// In how many places the rank has pushed what is in no update of this segment.
std::size_t AsyncChecks::places(unsigned rank, std::uint32_t segment) const {
  std::size_t count = 0;
  std::optional<std::uint32_t> last;
  for (const Push& push : pushes_[rank]) {
    if (push.where[segment] != 0 || last == push.place) continue;
    last = push.place;
    ++count;
  }
  return count;
}

bool AsyncChecks::decode(std::uint32_t base_round, const agent::Update& update, unsigned rank,
                         std::uint64_t first, std::optional<unsigned>& parts) {
  const float sum = update.values[first - update.first];
  std::vector<std::uint32_t> found;
  auto& pushes = pushes_[rank];
  bool right = is_sum_of(update, rank, first, found);
  const auto is_few_parts_from = [&](std::size_t oldest) {
    for (unsigned count = 1; count <= few_parts; ++count)
      if (find_parts(update, rank, first, count, sum, oldest, pushes.size(), found)) return true;
    return false;
  };
  right = right || is_few_parts_from(pushes.size() > recent ? pushes.size() - recent : 0);
  // The search takes long. Where many sums are wrong one more tells nobody anything.
  if (!right && wrong_sums_ < enough_wrong_sums) {
    const bool many_places = places(rank, update.segment) > one_of_many;
    right = find_many_parts(update, rank, first, sum, found) ||
            is_few_parts_from(pushes.size() > long_ago ? pushes.size() - long_ago : 0);
    // A single element may be several sums of so many, and of still more no sum can be found: a
    // rank that takes one place after the other while its switch waits for the parent.
    const bool alone = right && first + ranks_ >= update.first + update.values.size();
    const bool too_many = !right && sum > certainly_many && many_places;
    if (alone || too_many) {
      parts.reset();
      return true;
    }
  }
  if (!right) {
    ++wrong_sums_;
    wrong(property::exact_sum, rank, explain(rank, update, first, sum));
    return false;
  }
  for (const std::uint32_t serial : found) {
    pushes[serial].where[update.segment] = (std::uint64_t{base_round} << 32 | update.number) + 1;
  }
  if (parts) *parts += static_cast<unsigned>(found.size());
  return true;
}

std::string AsyncChecks::explain(unsigned rank, const agent::Update& update, std::uint64_t element,
                                 float sum) const {
  const std::string where =
      format("update %u of segment %u, element %llu, is %.9g", update.number, update.segment,
             static_cast<unsigned long long>(element), static_cast<double>(sum));
  const auto& pushes = pushes_[rank];
  for (std::size_t serial = 0; serial < pushes.size(); ++serial) {
    const float one = value(rank, static_cast<std::uint32_t>(serial), element);
    const std::uint64_t in = pushes[serial].where[update.segment];
    if (one == sum && in != 0) {
      return where + format(": push %zu again, which is in update %u already", serial,
                            static_cast<std::uint32_t>(in - 1));
    }
    if (one * 2 == sum) return where + format(": push %zu twice", serial);
  }
  return where + ": no sum of this rank's pushes";
}

void AsyncChecks::quiet(std::uint32_t base_round) {
  for (unsigned rank = 0; rank < ranks_; ++rank) {
    bool certain =
        true;  // until one was given up, whose acknowledgement is taken for the next one's
    for (std::size_t serial = 0; serial < pushes_[rank].size(); ++serial) {
      const Push& push = pushes_[rank][serial];
      certain = certain && push.acknowledged;
      if (!certain) break;
      if (!push.acknowledged || push.base_round != base_round) continue;
      for (std::uint32_t segment = 0; segment < segments_; ++segment) {
        const std::uint64_t start = std::uint64_t{segment} * segment_elements_;
        const std::uint64_t size = std::min<std::uint64_t>(segment_elements_, elements_ - start);
        if (size < ranks_ || push.where[segment] != 0) continue;
        wrong(property::once, rank,
              format("push %zu was acknowledged, and its segment %u is in no update", serial,
                     segment));
        return;
      }
    }
  }
}

void AsyncChecks::compare(unsigned rank, std::uint32_t base_round, std::span<const float> weights) {
  const auto epoch = epochs_.find(base_round);
  if (epoch == epochs_.end() || hash_of(epoch->second.reference) != hash_of(weights)) {
    std::string missing;
    const agent::UpdateNumbers& position = positions_[rank];
    for (std::uint32_t i = 0; i < segments_ && epoch != epochs_.end(); ++i) {
      const auto newest = base_round + static_cast<std::uint32_t>(epoch->second.updates[i].size());
      if (i < position.last.size() && position.last[i] != newest)
        missing +=
            format("; segment %u ends with update %u instead of %u", i, position.last[i], newest);
    }
    wrong(property::replicas, rank,
          "its weights at the end are not the sum of all updates" + missing);
  }
}

}  // namespace iswitch::sim
