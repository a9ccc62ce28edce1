// What became of a contribution, or of a result from the parent, and where that is counted.
#pragma once

#include <array>
#include <cstdint>

#include "switchd/pipeline/counters.h"
#include "switchd/pipeline/job_stats.h"

namespace iswitch::pipeline {

/// Rows of section 4's table, and what section 5 and a lack of memory add to them.
enum class Row : std::uint8_t {
  kept,       ///< answered with a kept result
  passed_up,  ///< the result is kept, but only the parent knows its operation tag
  mismatch,   ///< kept or open, and another operation tag or length
  duplicate,
  late,         ///< its sum waits for the parent's result without it
  incarnation,  ///< asynchronous: from an earlier life of its member
  added,        ///< to an open sum, or opening one
  handed_back,  ///< a result that a member had is taken (section 9)
  ahead,
  gone,        ///< its result is not kept any more: its member is told
  stale,       ///< asynchronous: a late copy from before the base round, nobody is told
  unexpected,  ///< a result handed back that is not wanted
  unsettled,   ///< asynchronous: not all members have said what they have (section 9)
  no_buffer,   ///< no row of the table: payload memory is exhausted
};

struct RowAccount {
  Counter counter;
  JobCounter job_counter;
};
inline constexpr std::array<RowAccount, 14> row_accounts{{
    {Counter::aggregate_replayed, JobCounter::replayed},
    {Counter::aggregate_passed_up, JobCounter::passed_up},
    {Counter::aggregate_drop_mismatch, JobCounter::mismatches},
    {Counter::aggregate_drop_duplicate, JobCounter::duplicates},
    {Counter::aggregate_drop_late, JobCounter::late},
    {Counter::aggregate_drop_incarnation, JobCounter::incarnations},
    {Counter::aggregate_added, JobCounter::added},
    {Counter::aggregate_handed_back, JobCounter::handed_back},
    {Counter::aggregate_drop_ahead, JobCounter::ahead},
    {Counter::aggregate_drop_stale, JobCounter::stale},
    {Counter::aggregate_drop_stale, JobCounter::stale},
    {Counter::aggregate_drop_unexpected, JobCounter::invalid},
    {Counter::aggregate_drop_unsettled, JobCounter::refused},
    {Counter::aggregate_drop_no_buffer, JobCounter::no_buffer},
}};
inline constexpr const RowAccount& account_of(Row row) {
  return row_accounts[static_cast<std::size_t>(row)];
}

/// How far ahead a number may be to be believed: one frame must not break the serial order of what
/// comes after it (Reset asks for the highest round seen).
inline constexpr std::int32_t believable = 1 << 20;

/// What became of a result from the parent.
enum class Taken : std::uint8_t {
  taken,      ///< kept and sent to all members
  answered,   ///< kept before; sent to the members whose contribution had been passed up
  again,      ///< kept before
  old,        ///< older than the history, or than the job
  no_buffer,  ///< payload memory is exhausted
};

inline constexpr Counter counter_of(Taken taken) {
  constexpr std::array<Counter, 5> counters{Counter::parent_taken, Counter::parent_answered,
                                            Counter::parent_drop_again, Counter::parent_drop_old,
                                            Counter::parent_drop_no_buffer};
  return counters[static_cast<std::size_t>(taken)];
}

}  // namespace iswitch::pipeline
