// Orders on their way: numbers them, counts the shards that have answered, puts the answers
// together and continues with what waited for them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "switchd/control/turn.h"
#include "switchd/datapath/datapath.h"

namespace iswitch::control {

/// The answers of all shards to one order, as one.
struct Outcome {
  bool ok = true;                                            ///< every shard said so
  std::uint32_t highest_round = 0;                           ///< Stop: the latest of all shards
  datapath::SlotState slot = datapath::SlotState::not_mine;  ///< what the slot's owner said
  datapath::MemberMask missing = 0;
  std::vector<datapath::OpenSlot> open;
};

class OrderBook {
 public:
  using What = decltype(datapath::Order::what);
  using Then = std::function<void(const Outcome&, const Turn&)>;

  explicit OrderBook(std::uint16_t shards) : shards_(shards) {}

  /// The order goes to every shard; `then` runs once, when the last of them has answered.
  void send(datapath::JobId job, What what, const Turn& turn, Then then);
  /// False: nobody waits for this answer (unknown number or shard, or a second answer).
  bool answered(const datapath::Answer& answer, const Turn& turn);

 private:
  struct Waiting {
    std::vector<bool> answered;  ///< by shard
    std::uint16_t answers = 0;
    Outcome outcome;
    Then then;
  };
  std::uint16_t shards_;
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, Waiting> waiting_;
};

}  // namespace iswitch::control
