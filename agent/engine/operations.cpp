#include "agent/engine/operations.h"

#include <algorithm>
#include <utility>

#include "agent/engine/payload.h"

namespace iswitch::agent {

Time Operation::inquiry() const {
  if (request.deadline == never) return never;
  const Time left = std::max<Time>(request.deadline - submitted, 0);
  return submitted + left / 4 * 3;
}

Operation& Operations::add(OperationId id, const Request& request, Time now) {
  const std::uint64_t index = end();
  Operation& operation = queue_.emplace_back();
  operation.id = id;
  operation.index = index;
  operation.request = request;
  operation.submitted = now;
  const bool broadcast = request.kind == wire::OperationKind::broadcast;
  operation.tag = wire::operation_tag({.kind = request.kind,
                                       .data_type = wire::DataType::float32,
                                       .root = broadcast ? request.root : 0U,
                                       .elements = vector_bytes(request) / sizeof(float),
                                       .user_tag = request.user_tag});
  note_times(operation);
  return operation;
}

void Operations::complete_at_once(OperationId id, Error error) {
  Ended ended;
  ended.completion.id = id;
  if (error)
    ++statistics_.operations_failed;
  else
    ++statistics_.operations_done;
  ended.completion.error = std::move(error);
  ended_.push_back(std::move(ended));
}

std::uint64_t Operations::cut(std::uint64_t next_position, std::uint32_t segment_bytes) {
  for (uncut_ = std::max(uncut_, first_index_); uncut_ < end(); ++uncut_) {
    Operation& operation = at(uncut_);
    const std::uint64_t bytes = vector_bytes(operation.request);
    operation.first = next_position;
    operation.segments = std::max<std::uint64_t>((bytes + segment_bytes - 1) / segment_bytes, 1);
    next_position += operation.segments;
  }
  return next_position;
}

Operation* Operations::covering(std::uint64_t position) {
  for (Operation& operation : queue_) {
    if (operation.segments == 0 || position < operation.first) return nullptr;
    if (position < operation.first + operation.segments)
      return operation.finished ? nullptr : &operation;
  }
  return nullptr;
}

void Operations::segment_done(Operation& operation, std::uint32_t workers, bool partial) {
  operation.partial = operation.partial || partial;
  operation.smallest_workers =
      operation.done == 0 ? workers : std::min(operation.smallest_workers, workers);
  if (++operation.done < operation.segments) return;
  operation.finished = true;
  Ended ended;
  ended.completion = {operation.id, std::move(operation.error), operation.partial,
                      operation.smallest_workers};
  if (ended.completion.error)
    ++statistics_.operations_failed;
  else
    ++statistics_.operations_done;
  ended_.push_back(std::move(ended));
  forget_finished();
}

void Operations::forget_finished() {
  while (!queue_.empty() && queue_.front().finished) {
    queue_.pop_front();
    ++first_index_;
  }
  if (queue_.empty()) earliest_deadline_ = earliest_inquiry_ = never;
}

void Operations::fail_one(std::uint64_t index, const Error& error) {
  Operation& operation = at(index);
  operation.finished = true;
  Ended ended;
  ended.completion = {operation.id, error, operation.partial, operation.smallest_workers};
  ++statistics_.operations_failed;
  ended_.push_back(std::move(ended));
  forget_finished();
}

void Operations::fail_all(OperationId culprit, const Error& error, const Error& others) {
  for (Operation& operation : queue_) {
    if (operation.finished) continue;
    Ended ended;
    ended.by_failure = true;
    ended.completion = {operation.id, operation.id == culprit ? error : others, operation.partial,
                        operation.smallest_workers};
    ++statistics_.operations_failed;
    ++failures_untaken_;
    ended_.push_back(std::move(ended));
  }
  first_index_ = uncut_ = end();
  queue_.clear();
  earliest_deadline_ = earliest_inquiry_ = never;
}

Operation* Operations::overdue(Time now) {
  if (now < earliest_deadline_ && now < earliest_inquiry_) return nullptr;
  earliest_deadline_ = earliest_inquiry_ = never;
  Operation* late = nullptr;
  for (Operation& operation : queue_) {
    if (operation.finished) continue;
    note_times(operation);
    if (late == nullptr && now >= operation.request.deadline) late = &operation;
  }
  return late;
}

std::optional<Completion> Operations::take() {
  if (ended_.empty()) return std::nullopt;
  Ended ended = std::move(ended_.front());
  ended_.pop_front();
  if (ended.by_failure) --failures_untaken_;
  return std::move(ended.completion);
}

void Operations::note_times(const Operation& operation) {
  earliest_deadline_ = std::min(earliest_deadline_, operation.request.deadline);
  earliest_inquiry_ = std::min(earliest_inquiry_, operation.inquiry());
}

}  // namespace iswitch::agent
