// iswitch.h over the C++ classes. No exception leaves it: memory that is short is an error value.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "iswitch.h"
#include "iswitch/agent.h"

using iswitch::Agent;
using iswitch::AgentError;
using iswitch::AgentErrorCode;
using iswitch::Handle;

struct iswitch_agent {
  std::unique_ptr<Agent> agent;
  iswitch::SliceUpdate taken;  ///< memory that iswitch_next uses again; of one caller at a time
};

struct iswitch_operation {
  Handle handle;
};

namespace {

static_assert(ISWITCH_ERROR_NOT_JOINED == static_cast<int>(AgentErrorCode::not_joined) &&
              ISWITCH_ERROR_REFUSED == static_cast<int>(AgentErrorCode::refused) &&
              ISWITCH_ERROR_TIMED_OUT == static_cast<int>(AgentErrorCode::timed_out) &&
              ISWITCH_ERROR_JOB_RESET == static_cast<int>(AgentErrorCode::job_reset) &&
              ISWITCH_ERROR_SWITCH_GONE == static_cast<int>(AgentErrorCode::switch_gone) &&
              ISWITCH_ERROR_HALTED == static_cast<int>(AgentErrorCode::halted) &&
              ISWITCH_ERROR_MISMATCH == static_cast<int>(AgentErrorCode::mismatch) &&
              ISWITCH_ERROR_GONE == static_cast<int>(AgentErrorCode::gone) &&
              ISWITCH_ERROR_BAD_ARGUMENT == static_cast<int>(AgentErrorCode::bad_argument) &&
              ISWITCH_ERROR_CLOSED == static_cast<int>(AgentErrorCode::closed) &&
              ISWITCH_ERROR_SYSTEM == static_cast<int>(AgentErrorCode::system) &&
              ISWITCH_ERROR_ROOT_MISSING == static_cast<int>(AgentErrorCode::root_missing) &&
              ISWITCH_ERROR_IN_DOUBT == static_cast<int>(AgentErrorCode::in_doubt));

/// Where a call's error text goes.
struct ErrorText {
  char* text;
  std::size_t size;

  int set(int code, const char* line) const {
    if (text == nullptr || size == 0) return code;
    const std::size_t length = std::min(std::strlen(line), size - 1);
    std::memcpy(text, line, length);
    text[length] = '\0';
    return code;
  }
  int ok() const { return set(ISWITCH_OK, ""); }
  int set(const AgentError& error) const {
    return set(static_cast<int>(error.code), error.text.c_str());
  }
  int bad_argument(const char* line) const { return set(ISWITCH_ERROR_BAD_ARGUMENT, line); }
};

/// Runs `body`; what it throws becomes an error value.
template <class Body>
int guarded(const ErrorText& error, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return error.set(ISWITCH_ERROR_SYSTEM, "out of memory");
  } catch (const std::exception& exception) {
    return error.set(ISWITCH_ERROR_SYSTEM, exception.what());
  } catch (...) {
    return error.set(ISWITCH_ERROR_SYSTEM, "unknown failure");
  }
}

/// A struct as this library knows it, from a caller that may know less or more of it.
template <class Struct>
bool adopt(const Struct* from, Struct& to) {
  if (from->size < sizeof from->size) return false;
  std::memcpy(&to, from, std::min(from->size, sizeof to));
  to.size = sizeof to;
  return true;
}

bool operation_options(const iswitch_operation_options* from, iswitch::OperationOptions& to) {
  iswitch_operation_options options = ISWITCH_OPERATION_OPTIONS_INIT;
  if (from != nullptr && !adopt(from, options)) return false;
  if (options.timeout_ms >= 0) to.timeout = std::chrono::milliseconds(options.timeout_ms);
  to.tag = options.tag;
  return true;
}

/// Common to the three kinds; `begin` gives the handle.
template <class Begin>
int start(iswitch_agent* agent, const iswitch_operation_options* options,
          iswitch_operation** operation, const ErrorText& error, Begin&& begin) noexcept {
  if (operation == nullptr) return error.bad_argument("operation is NULL");
  *operation = nullptr;
  if (agent == nullptr) return error.bad_argument("agent is NULL");
  return guarded(error, [&] {
    iswitch::OperationOptions converted;
    if (!operation_options(options, converted)) {
      return error.bad_argument("iswitch_operation_options.size is not set");
    }
    auto made = std::make_unique<iswitch_operation>();
    made->handle = begin(*agent->agent, converted);
    // What has failed before it began is told at once.
    if (made->handle.done()) {
      if (const AgentError failed = made->handle.wait();
          failed.code == AgentErrorCode::bad_argument || failed.code == AgentErrorCode::closed) {
        return error.set(failed);
      }
    }
    *operation = made.release();
    return error.ok();
  });
}

int finish(int started, iswitch_operation* operation, char* error, size_t error_size) {
  if (started != ISWITCH_OK) return started;
  const int outcome = iswitch_operation_wait(operation, -1, error, error_size);
  iswitch_operation_free(operation);
  return outcome;
}

const char* text_or_empty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

extern "C" {

const char* iswitch_error_name(int error) {
  switch (error) {
    case ISWITCH_OK:
      return "ok";
    case ISWITCH_ERROR_NOT_JOINED:
      return "not joined";
    case ISWITCH_ERROR_REFUSED:
      return "refused";
    case ISWITCH_ERROR_TIMED_OUT:
      return "timed out";
    case ISWITCH_ERROR_JOB_RESET:
      return "job reset";
    case ISWITCH_ERROR_SWITCH_GONE:
      return "switch gone";
    case ISWITCH_ERROR_HALTED:
      return "halted";
    case ISWITCH_ERROR_MISMATCH:
      return "mismatch";
    case ISWITCH_ERROR_GONE:
      return "gone";
    case ISWITCH_ERROR_BAD_ARGUMENT:
      return "bad argument";
    case ISWITCH_ERROR_CLOSED:
      return "closed";
    case ISWITCH_ERROR_SYSTEM:
      return "system";
    case ISWITCH_ERROR_ROOT_MISSING:
      return "root missing";
    case ISWITCH_ERROR_IN_DOUBT:
      return "in doubt";
    case ISWITCH_PENDING:
      return "pending";
    case ISWITCH_EVENT:
      return "event";
    default:
      return "unknown error";
  }
}

const char* iswitch_version(void) { return ISWITCH_VERSION; }

int iswitch_abi_version(void) {
  static_assert(ISWITCH_ABI_VERSION == ISWITCH_SOVERSION, "agent/meson.build and iswitch.h differ");
  return ISWITCH_ABI_VERSION;
}

int iswitch_agent_join(const iswitch_options* options, iswitch_agent** agent, char* error_text,
                       size_t error_size) {
  const ErrorText error{error_text, error_size};
  if (agent == nullptr) return error.bad_argument("agent is NULL");
  *agent = nullptr;
  if (options == nullptr) return error.bad_argument("options is NULL");
  return guarded(error, [&] {
    iswitch_options given = ISWITCH_OPTIONS_INIT;
    if (!adopt(options, given)) return error.bad_argument("iswitch_options.size is not set");
    if (given.switch_address == nullptr) return error.bad_argument("switch_address is NULL");
    if (given.rank != ISWITCH_ANY_RANK && (given.rank < 0 || given.rank > 0xFFFE)) {
      return error.bad_argument("rank is neither 0 to 65534 nor ISWITCH_ANY_RANK");
    }
    iswitch::AgentOptions wanted;
    wanted.switch_address = given.switch_address;
    wanted.job = given.job;
    if (given.rank != ISWITCH_ANY_RANK) wanted.rank = static_cast<std::uint16_t>(given.rank);
    if (given.member == ISWITCH_ANY_MEMBER) {
      wanted.member = iswitch::any_member;
    } else if (given.member != ISWITCH_MEMBER_IS_RANK) {
      if (given.member < 0 || given.member > 0xFFFE)
        return error.bad_argument(
            "member is neither a member id nor ISWITCH_ANY_MEMBER nor ISWITCH_MEMBER_IS_RANK");
      wanted.member = static_cast<std::uint16_t>(given.member);
    }
    wanted.async_elements = given.async_elements;
    wanted.local_address = text_or_empty(given.local_address);
    wanted.local_port = given.local_port;
    wanted.key_file = text_or_empty(given.key_file);
    wanted.device = text_or_empty(given.device);
    wanted.join_timeout = std::chrono::milliseconds(given.join_timeout_ms);
    wanted.operation_timeout = std::chrono::milliseconds(given.operation_timeout_ms);
    wanted.resume_within = std::chrono::milliseconds(given.resume_within_ms);
    wanted.window_bytes = given.window_bytes;
    wanted.ecn = given.ecn != 0;
    wanted.background_thread = given.caller_driven == 0;
    auto made = std::make_unique<iswitch_agent>();
    auto joined = Agent::join(wanted);
    if (!joined) return error.set(joined.error());
    made->agent = std::move(*joined);
    *agent = made.release();
    return error.ok();
  });
}

int iswitch_agent_leave(iswitch_agent* agent, char* error_text, size_t error_size) {
  const ErrorText error{error_text, error_size};
  if (agent == nullptr) return error.bad_argument("agent is NULL");
  return guarded(error, [&] { return error.set(agent->agent->leave()); });
}

void iswitch_agent_free(iswitch_agent* agent) { delete agent; }

uint16_t iswitch_agent_rank(const iswitch_agent* agent) {
  return agent == nullptr ? 0xFFFF : agent->agent->rank();
}
uint16_t iswitch_agent_member(const iswitch_agent* agent) {
  return agent == nullptr ? 0xFFFF : agent->agent->member();
}
uint16_t iswitch_agent_size(const iswitch_agent* agent) {
  return agent == nullptr ? 0 : agent->agent->size();
}
uint16_t iswitch_agent_size_expected(const iswitch_agent* agent) {
  return agent == nullptr ? 0 : agent->agent->size_expected();
}
uint32_t iswitch_agent_segment_bytes(const iswitch_agent* agent) {
  return agent == nullptr ? 0 : agent->agent->segment_bytes();
}

void iswitch_agent_progress(iswitch_agent* agent, uint64_t wait_us) {
  if (agent == nullptr) return;
  constexpr std::uint64_t day = 24ull * 3600 * 1'000'000;
  guarded({nullptr, 0}, [&] {
    agent->agent->progress(std::chrono::microseconds(std::min(wait_us, day)));
    return 0;
  });
}

int iswitch_all_reduce_start(iswitch_agent* agent, const float* input, float* output, size_t count,
                             int reduce, const iswitch_operation_options* options,
                             iswitch_operation** operation, char* error_text, size_t error_size) {
  const ErrorText error{error_text, error_size};
  if (reduce != ISWITCH_SUM && reduce != ISWITCH_MEAN) {
    return error.bad_argument("reduce is neither ISWITCH_SUM nor ISWITCH_MEAN");
  }
  const auto kind = reduce == ISWITCH_MEAN ? iswitch::Reduce::mean : iswitch::Reduce::sum;
  return start(agent, options, operation, error,
               [&](Agent& on, const iswitch::OperationOptions& converted) {
                 return on.all_reduce({input, count}, {output, count}, kind, converted);
               });
}

int iswitch_broadcast_start(iswitch_agent* agent, float* data, size_t count, uint16_t root,
                            const iswitch_operation_options* options, iswitch_operation** operation,
                            char* error_text, size_t error_size) {
  return start(agent, options, operation, {error_text, error_size},
               [&](Agent& on, const iswitch::OperationOptions& converted) {
                 return on.broadcast({data, count}, root, converted);
               });
}

int iswitch_barrier_start(iswitch_agent* agent, const iswitch_operation_options* options,
                          iswitch_operation** operation, char* error_text, size_t error_size) {
  return start(
      agent, options, operation, {error_text, error_size},
      [](Agent& on, const iswitch::OperationOptions& converted) { return on.barrier(converted); });
}

int iswitch_push_start(iswitch_agent* agent, const float* gradient, size_t count,
                       const iswitch_operation_options* options, iswitch_operation** operation,
                       char* error_text, size_t error_size) {
  const ErrorText error{error_text, error_size};
  if (gradient == nullptr) return error.bad_argument("gradient is NULL");
  return start(agent, options, operation, error,
               [&](Agent& on, const iswitch::OperationOptions& converted) {
                 return on.push({gradient, count}, converted);
               });
}

void iswitch_request_reset(iswitch_agent* agent) {
  if (agent == nullptr) return;
  guarded({nullptr, 0}, [&] {
    agent->agent->request_reset();
    return 0;
  });
}

void iswitch_give_up_pushes(iswitch_agent* agent) {
  if (agent == nullptr) return;
  guarded({nullptr, 0}, [&] {
    agent->agent->give_up_pushes();
    return 0;
  });
}

int iswitch_next(iswitch_agent* agent, int64_t timeout_ms, iswitch_update* update,
                 iswitch_event* event, char* error_text, size_t error_size) {
  const ErrorText error{error_text, error_size};
  if (agent == nullptr) return error.bad_argument("agent is NULL");
  if (update == nullptr || update->size < sizeof *update || update->values == nullptr ||
      update->capacity < agent->agent->segment_bytes() / sizeof(float)) {
    return error.bad_argument("update needs its size and room for one segment's floats");
  }
  if (event == nullptr || event->size < sizeof *event)
    return error.bad_argument("event needs its size");
  return guarded(error, [&] {
    iswitch::MemberEvent happened;
    const auto arrived = agent->agent->next(
        agent->taken, happened, std::chrono::milliseconds(std::max<std::int64_t>(timeout_ms, 0)));
    if (!arrived) return error.set(arrived.error());
    switch (*arrived) {
      case iswitch::Arrived::nothing:
        return error.set(ISWITCH_PENDING, "no update has come yet");
      case iswitch::Arrived::event:
        event->kind = static_cast<int>(happened.kind);
        event->base_round = happened.base_round;
        event->untouched = happened.untouched ? 1 : 0;
        return error.set(ISWITCH_EVENT, happened.text.c_str());
      case iswitch::Arrived::update:
        break;
    }
    const iswitch::SliceUpdate& taken = agent->taken;
    std::copy(taken.values.begin(), taken.values.end(), update->values);
    update->count = taken.values.size();
    update->first = taken.first;
    update->segment = taken.segment;
    update->number = taken.number;
    update->workers = taken.workers;
    update->partial = taken.partial ? 1 : 0;
    return error.ok();
  });
}

size_t iswitch_numbers(const iswitch_agent* agent, uint32_t* base_round, uint32_t* numbers,
                       size_t capacity) {
  if (agent == nullptr) return 0;
  std::size_t count = 0;
  guarded({nullptr, 0}, [&] {
    const iswitch::UpdateNumbers known = agent->agent->numbers();
    count = known.last.size();
    if (base_round != nullptr) *base_round = known.base_round;
    const std::size_t room = numbers == nullptr ? 0 : capacity;
    std::copy_n(known.last.begin(), std::min(count, room), numbers);
    return 0;
  });
  return count;
}

int iswitch_resume(iswitch_agent* agent, uint32_t base_round, const uint32_t* numbers, size_t count,
                   char* error_text, size_t error_size) {
  const ErrorText error{error_text, error_size};
  if (agent == nullptr) return error.bad_argument("agent is NULL");
  if (numbers == nullptr && count != 0) return error.bad_argument("numbers is NULL");
  return guarded(error, [&] {
    return error.set(agent->agent->resume({base_round, {numbers, numbers + count}}));
  });
}

int iswitch_operation_done(const iswitch_operation* operation) {
  return operation == nullptr || operation->handle.done() ? 1 : 0;
}

int iswitch_operation_wait(iswitch_operation* operation, int64_t timeout_ms, char* error_text,
                           size_t error_size) {
  const ErrorText error{error_text, error_size};
  if (operation == nullptr) return error.bad_argument("operation is NULL");
  return guarded(error, [&] {
    if (timeout_ms < 0) return error.set(operation->handle.wait());
    const auto outcome = operation->handle.wait_for(std::chrono::milliseconds(timeout_ms));
    if (!outcome) return error.set(ISWITCH_PENDING, "the operation is not done yet");
    return error.set(*outcome);
  });
}

size_t iswitch_operation_missing(const iswitch_operation* operation, uint16_t* members,
                                 size_t capacity) {
  if (operation == nullptr || !operation->handle.done()) return 0;
  std::size_t count = 0;
  guarded({nullptr, 0}, [&] {
    Handle handle = operation->handle;
    const AgentError outcome = handle.wait();
    count = outcome.missing.size();
    const std::size_t room = members == nullptr ? 0 : capacity;
    std::copy_n(outcome.missing.begin(), std::min(count, room), members);
    return 0;
  });
  return count;
}

int iswitch_operation_partial(const iswitch_operation* operation) {
  return operation != nullptr && operation->handle.partial() ? 1 : 0;
}

uint32_t iswitch_operation_smallest_workers(const iswitch_operation* operation) {
  return operation == nullptr ? 0 : operation->handle.smallest_workers();
}

void iswitch_operation_free(iswitch_operation* operation) { delete operation; }

int iswitch_all_reduce(iswitch_agent* agent, const float* input, float* output, size_t count,
                       int reduce, const iswitch_operation_options* options, char* error_text,
                       size_t error_size) {
  iswitch_operation* operation = nullptr;
  const int started = iswitch_all_reduce_start(agent, input, output, count, reduce, options,
                                               &operation, error_text, error_size);
  return finish(started, operation, error_text, error_size);
}

int iswitch_broadcast(iswitch_agent* agent, float* data, size_t count, uint16_t root,
                      const iswitch_operation_options* options, char* error_text,
                      size_t error_size) {
  iswitch_operation* operation = nullptr;
  const int started = iswitch_broadcast_start(agent, data, count, root, options, &operation,
                                              error_text, error_size);
  return finish(started, operation, error_text, error_size);
}

int iswitch_barrier(iswitch_agent* agent, const iswitch_operation_options* options,
                    char* error_text, size_t error_size) {
  iswitch_operation* operation = nullptr;
  const int started = iswitch_barrier_start(agent, options, &operation, error_text, error_size);
  return finish(started, operation, error_text, error_size);
}

int iswitch_agent_statistics(const iswitch_agent* agent, iswitch_statistics* statistics) {
  if (agent == nullptr || statistics == nullptr || statistics->size < sizeof statistics->size) {
    return ISWITCH_ERROR_BAD_ARGUMENT;
  }
  const std::size_t size = statistics->size;
  return guarded({nullptr, 0}, [&] {
    const iswitch::AgentStatistics now = agent->agent->statistics();
    iswitch_statistics filled{};
    filled.size = size;
    filled.contributions_sent = now.contributions_sent;
    filled.retransmissions = now.retransmissions;
    filled.results = now.results;
    filled.duplicate_results = now.duplicate_results;
    filled.gradient_bytes_sent = now.gradient_bytes_sent;
    filled.gradient_bytes_received = now.gradient_bytes_received;
    filled.operations_done = now.operations_done;
    filled.operations_failed = now.operations_failed;
    filled.resets = now.resets;
    filled.send_calls = now.send_calls;
    filled.receive_calls = now.receive_calls;
    filled.smoothed_rtt_ns = static_cast<std::uint64_t>(now.smoothed_rtt.count());
    filled.retransmit_timeout_ns = static_cast<std::uint64_t>(now.retransmit_timeout.count());
    filled.ecn_marks = now.ecn_marks;
    filled.window_bytes = now.window_bytes;
    filled.updates = now.updates;
    filled.helps = now.helps;
    filled.resumes = now.resumes;
    std::memcpy(statistics, &filled, std::min(size, sizeof filled));
    return static_cast<int>(ISWITCH_OK);
  });
}

}  // extern "C"
