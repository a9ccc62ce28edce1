// What is remembered about sources, bounded: strangers can push out strangers, never fill memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <utility>

namespace iswitch::control {

template <class Value>
class LruTable {
 public:
  explicit LruTable(std::size_t capacity) : capacity_(capacity) {}

  /// Valid until the next call of get(); null where nothing is remembered. Counts as use.
  Value* find(std::uint64_t key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }

  /// The entry of `key`, made if need be in place of the one unused for longest.
  Value& get(std::uint64_t key) {
    if (Value* const known = find(key)) return *known;
    if (entries_.size() >= capacity_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(key, Value{});
    index_[key] = entries_.begin();
    return entries_.front().second;
  }

  std::size_t size() const { return entries_.size(); }

 private:
  using Entries = std::list<std::pair<std::uint64_t, Value>>;
  std::size_t capacity_;
  Entries entries_;  ///< latest used first
  std::unordered_map<std::uint64_t, typename Entries::iterator> index_;
};

}  // namespace iswitch::control
