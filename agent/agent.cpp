// The public classes over Core. Every call first asks whether this process may use the agent at
// all: a child of fork() may not touch its lock, thread or socket.
#include "iswitch/agent.h"

#include <cstdint>
#include <utility>

#include "agent/core.h"

namespace iswitch {

using agent::Core;
using agent::make_error;

namespace {

/// Waits in destructors for the answer to Leave.
constexpr Time destructor_grace = 250 * millisecond;
constexpr Time leave_grace = 2 * second;

/// The values are shared; a new one must be added to both.
template <agent::ErrorCode ours, AgentErrorCode theirs>
constexpr bool same = static_cast<int>(ours) == static_cast<int>(theirs);
static_assert(same<agent::ErrorCode::not_joined, AgentErrorCode::not_joined> &&
              same<agent::ErrorCode::refused, AgentErrorCode::refused> &&
              same<agent::ErrorCode::timed_out, AgentErrorCode::timed_out> &&
              same<agent::ErrorCode::job_reset, AgentErrorCode::job_reset> &&
              same<agent::ErrorCode::switch_gone, AgentErrorCode::switch_gone> &&
              same<agent::ErrorCode::halted, AgentErrorCode::halted> &&
              same<agent::ErrorCode::mismatch, AgentErrorCode::mismatch> &&
              same<agent::ErrorCode::gone, AgentErrorCode::gone> &&
              same<agent::ErrorCode::bad_argument, AgentErrorCode::bad_argument> &&
              same<agent::ErrorCode::closed, AgentErrorCode::closed> &&
              same<agent::ErrorCode::system, AgentErrorCode::system> &&
              same<agent::ErrorCode::root_missing, AgentErrorCode::root_missing> &&
              same<agent::ErrorCode::in_doubt, AgentErrorCode::in_doubt>);
static_assert(static_cast<int>(agent::EventKind::joined) ==
                  static_cast<int>(MemberEventKind::joined) &&
              static_cast<int>(agent::EventKind::gone) == static_cast<int>(MemberEventKind::gone) &&
              static_cast<int>(agent::EventKind::reset) ==
                  static_cast<int>(MemberEventKind::reset));

Handle failed_handle(AgentErrorCode code, std::string text) {
  auto state = std::make_shared<Handle::State>();
  state->error = make_error(code, std::move(text));
  state->done.store(true, std::memory_order_release);
  return Handle(std::move(state));
}

/// Null when the two are the same or disjoint, else what is wrong.
const char* vector_problem(std::span<const float> input, std::span<const float> output) {
  if (input.size() != output.size()) return "input and output differ in length";
  if (input.empty()) return nullptr;
  if (input.data() == nullptr || output.data() == nullptr) return "a vector is null";
  const auto in = reinterpret_cast<std::uintptr_t>(input.data());
  const auto out = reinterpret_cast<std::uintptr_t>(output.data());
  const bool disjoint = in + input.size_bytes() <= out || out + output.size_bytes() <= in;
  return in == out || disjoint ? nullptr
                               : "input and output overlap; they must be the same or disjoint";
}

}  // namespace

// ---- Handle

bool Handle::done() const {
  if (!state_ || state_->done.load(std::memory_order_acquire)) return true;
  return state_->core->inherited();
}

AgentError Handle::wait() {
  while (true) {
    if (auto error = wait_for(std::chrono::hours(24))) return *error;
  }
}

std::optional<AgentError> Handle::wait_for(std::chrono::milliseconds time) {
  if (!state_) return make_error(AgentErrorCode::bad_argument, "an empty handle has no operation");
  if (state_->done.load(std::memory_order_acquire)) return state_->error;
  // The state may be the last owner of the core but for this.
  const std::shared_ptr<Core> core = state_->core;
  if (core->inherited()) return core->inherited_error();
  const Time until = agent::deadline_after(agent::monotonic_now(), time);
  if (!core->wait(*state_, until)) return std::nullopt;
  return state_->error;
}

bool Handle::partial() const {
  return state_ && state_->done.load(std::memory_order_acquire) && state_->partial;
}

std::uint32_t Handle::smallest_workers() const {
  return state_ && state_->done.load(std::memory_order_acquire) ? state_->smallest_workers : 0;
}

// ---- Agent

struct Agent::State {
  std::shared_ptr<Core> core;
};

Agent::Agent(std::unique_ptr<State> state) : state_(std::move(state)) {}

Expected<std::unique_ptr<Agent>> Agent::join(const AgentOptions& options) {
  auto joined = Core::join(options);
  if (auto* error = std::get_if<AgentError>(&joined)) return std::move(*error);
  auto state = std::make_unique<State>();
  state->core = std::get<std::shared_ptr<Core>>(std::move(joined));
  return std::unique_ptr<Agent>(new Agent(std::move(state)));
}

Agent::~Agent() {
  if (state_->core->inherited()) {
    // Nothing of it may run here: neither its mutex nor its thread exists in this process.
    static_cast<void>(state_.release());
    return;
  }
  state_->core->close(destructor_grace);
}

Handle Agent::all_reduce(std::span<const float> input, std::span<float> output, Reduce reduce,
                         const OperationOptions& options) {
  if (const char* problem = vector_problem(input, output)) {
    return failed_handle(AgentErrorCode::bad_argument, std::string("all_reduce: ") + problem);
  }
  agent::Request request;
  request.kind = wire::OperationKind::sum;
  request.reduction = reduce == Reduce::mean ? agent::Reduction::mean : agent::Reduction::sum;
  request.input = input;
  request.output = output;
  return Handle(state_->core->submit(request, options));
}

Handle Agent::broadcast(std::span<float> data, std::uint16_t root,
                        const OperationOptions& options) {
  if (const char* problem = vector_problem(data, data)) {
    return failed_handle(AgentErrorCode::bad_argument, std::string("broadcast: ") + problem);
  }
  agent::Request request;
  request.kind = wire::OperationKind::broadcast;
  request.input = data;
  request.output = data;
  request.root = root;
  return Handle(state_->core->submit(request, options));
}

Handle Agent::barrier(const OperationOptions& options) {
  agent::Request request;
  request.kind = wire::OperationKind::barrier;
  return Handle(state_->core->submit(request, options));
}

Handle Agent::push(std::span<const float> gradient, const OperationOptions& options) {
  return Handle(state_->core->push(gradient, options));
}

void Agent::give_up_pushes() {
  if (!state_->core->inherited()) state_->core->give_up_pushes();
}

void Agent::request_reset() {
  if (!state_->core->inherited()) state_->core->request_reset();
}

Expected<Arrived> Agent::next(SliceUpdate& update, MemberEvent& event,
                              std::chrono::milliseconds time) {
  if (state_->core->inherited()) return state_->core->inherited_error();
  return state_->core->next(update, event, agent::deadline_after(agent::monotonic_now(), time));
}

bool Agent::needs_weights() const {
  return !state_->core->inherited() && state_->core->needs_weights();
}

UpdateNumbers Agent::numbers() const {
  return state_->core->inherited() ? UpdateNumbers{} : state_->core->numbers();
}

AgentError Agent::resume(const UpdateNumbers& numbers) {
  if (state_->core->inherited()) return state_->core->inherited_error();
  return state_->core->resume(numbers);
}

AgentError Agent::leave() {
  if (state_->core->inherited()) return state_->core->inherited_error();
  return state_->core->close(leave_grace);
}

void Agent::progress(std::chrono::microseconds wait) {
  if (state_->core->inherited()) return;
  const auto bounded = std::min<std::chrono::microseconds>(wait, std::chrono::hours(24));
  state_->core->progress(agent::monotonic_now() + std::max<Time>(bounded.count(), 0) * microsecond);
}

std::uint16_t Agent::rank() const {
  return state_->core->inherited() ? wire::no_member : state_->core->membership().rank;
}
std::uint16_t Agent::member() const {
  return state_->core->inherited() ? wire::no_member : state_->core->membership().member;
}
std::uint16_t Agent::size() const {
  return state_->core->inherited() ? 0 : state_->core->membership().members_now;
}
std::uint16_t Agent::size_expected() const {
  return state_->core->inherited() ? 0 : state_->core->membership().members_expected;
}
std::uint16_t Agent::threshold() const {
  return state_->core->inherited() ? 0 : state_->core->membership().threshold;
}
std::uint32_t Agent::segment_bytes() const {
  return state_->core->inherited() ? 0 : state_->core->membership().segment_bytes;
}
AgentStatistics Agent::statistics() const {
  return state_->core->inherited() ? AgentStatistics{} : state_->core->statistics();
}

}  // namespace iswitch
