#include "switchd/control/orders.h"

#include <utility>

#include "wire/serial.h"

namespace iswitch::control {
namespace {

void merge(const datapath::Answer& answer, bool first, Outcome& outcome) {
  outcome.ok = outcome.ok && answer.ok;
  outcome.highest_round = first ? answer.highest_round
                                : wire::serial_latest(outcome.highest_round, answer.highest_round);
  if (answer.slot != datapath::SlotState::not_mine) outcome.slot = answer.slot;
  outcome.missing |= answer.missing;
  outcome.open.insert(outcome.open.end(), answer.open.begin(), answer.open.end());
}

}  // namespace

void OrderBook::send(datapath::JobId job, What what, const Turn& turn, Then then) {
  Waiting waiting;
  waiting.answered.resize(shards_);
  waiting.then = std::move(then);
  waiting_.emplace(++last_number_, std::move(waiting));
  datapath::Order order;
  order.number = last_number_;
  order.job = job;
  order.what = what;
  turn.effects.orders.push_back(order);
}

bool OrderBook::answered(const datapath::Answer& answer, const Turn& turn) {
  const auto found = waiting_.find(answer.number);
  if (found == waiting_.end() || answer.shard >= shards_) return false;
  Waiting& waiting = found->second;
  if (waiting.answered[answer.shard]) return false;
  waiting.answered[answer.shard] = true;
  merge(answer, waiting.answers == 0, waiting.outcome);
  if (++waiting.answers < shards_) return true;
  const Waiting done = std::move(waiting);
  waiting_.erase(found);
  done.then(done.outcome, turn);
  return true;
}

}  // namespace iswitch::control
