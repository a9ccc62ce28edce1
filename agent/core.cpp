#include "agent/core.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string_view>
#include <system_error>

#include "agent/fork_guard.h"
#include "agent/transport/framed.h"
#include "agent/transport/udp.h"
#include "wire/key_file.h"

namespace iswitch::agent {

namespace {

constexpr std::size_t transmit_batch = 64;
/// Receive batches a turn; then others may have the lock.
constexpr unsigned most_batches = 16;

// How the thread and waiting callers share the work (see core.h).
constexpr Time lease = 200 * millisecond;
constexpr Time lease_tick = 5 * millisecond;
constexpr Time prompt_wait = 100 * microsecond;
constexpr Time prompt_grace = millisecond;
constexpr unsigned prompt_enough = 8;
// A transport that polls (see patience.h).
constexpr Time longest_rest = millisecond;  // while something is expected
constexpr Time longest_idle_rest = 10 * millisecond;
constexpr Time longest_idle_rest_with_descriptor = 50 * millisecond;
constexpr Time offering = 1;  // rest(): offer the core, and come back
constexpr int rest_share = 64;

/// The engine ends a join at its deadline; this much later the clock does.
constexpr std::chrono::milliseconds timeout_slack{100};

/// Steady-clock time points may not overflow: a year away is never.
std::chrono::steady_clock::time_point time_point(Time time) {
  constexpr Time year = second * 3600 * 24 * 365;
  const Time bounded = std::min(time, monotonic_now() + year);
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(bounded));
}

std::uint32_t random_incarnation() {
  std::uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) == static_cast<ssize_t>(sizeof value)) return value;
  return static_cast<std::uint32_t>(monotonic_now()) ^ static_cast<std::uint32_t>(getpid()) << 16;
}

std::uint64_t unix_microseconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(since).count());
}

bool is_over(EngineState state) {
  return state == EngineState::idle || state == EngineState::left || state == EngineState::failed;
}

Error closed_error(const std::string& name) {
  Error error;
  error.code = ErrorCode::closed;
  error.text = "the agent has left " + name;
  return error;
}

}  // namespace

Time deadline_after(Time now, std::chrono::milliseconds timeout) {
  const auto most = (never - now) / millisecond;
  if (timeout.count() >= most) return never;
  return now + std::max<Time>(timeout.count(), 0) * millisecond;
}

AgentError make_error(AgentErrorCode code, std::string text) {
  AgentError error;
  error.code = code;
  error.text = std::move(text);
  return error;
}

AgentError to_agent_error(const Error& error) {
  AgentError result = make_error(static_cast<AgentErrorCode>(error.code), error.text);
  for (unsigned member = 0; member < wire::max_members; ++member) {
    if ((error.missing >> member & 1) != 0) {
      result.missing.push_back(static_cast<std::uint16_t>(member));
    }
  }
  return result;
}

// ---- joining

Core::Core(const AgentOptions& options)
    : default_timeout_(options.operation_timeout),
      wanted_window_bytes_(options.window_bytes),
      rank_(options.rank),
      asynchronous_(options.async_elements != 0),
      generation_(fork_generation()),
      outgoing_(transmit_batch) {}

Core::~Core() {
  if (transport_ && !polls_) forget_in_children(transport_->fd());
  if (event_fd_ >= 0) {
    forget_in_children(event_fd_);
    ::close(event_fd_);
  }
}

std::variant<std::shared_ptr<Core>, AgentError> Core::join(const AgentOptions& options) {
  const std::shared_ptr<Core> core(new Core(options));
  if (AgentError error = core->open(options)) return error;
  if (AgentError error = core->drive_join(options.join_timeout)) return error;
  if (options.background_thread) {
    const std::string problem = core->start_thread();
    if (!problem.empty()) {
      core->close(0);
      return make_error(AgentErrorCode::system, problem);
    }
  }
  return core;
}

AgentError Core::open_transport(const AgentOptions& options) {
  const auto bad = [](std::string text) {
    return make_error(AgentErrorCode::bad_argument, std::move(text));
  };
  const auto address = parse_switch_address(options.switch_address);
  if (!address) {
    return bad(
        "switch address '" + options.switch_address +
        "' is neither an IPv4 address nor IPv4:port, such as 10.77.0.254 or 10.77.0.254:17170");
  }
  name_ = "job " + std::to_string(options.job) + " at switch " + wire::to_string(address->ip) +
          ":" + std::to_string(address->port);
  wire::Ipv4 local_ip;
  if (!options.local_address.empty()) {
    const auto local = wire::parse_ipv4(options.local_address);
    if (!local) return bad("local address '" + options.local_address + "' is not an IPv4 address");
    local_ip = *local;
  }
  if (options.device.empty()) {
    UdpOptions udp;
    udp.switch_ip = address->ip;
    udp.base_port = address->port;
    udp.local_ip = local_ip;
    udp.local_port = options.local_port;
    auto opened = UdpTransport::open(udp);
    if (const auto* error = std::get_if<Error>(&opened)) return to_agent_error(*error);
    transport_ = std::move(std::get<std::unique_ptr<UdpTransport>>(opened));
    close_in_children(transport_->fd());
    return {};
  }
  if (local_ip == wire::Ipv4{}) {
    return bad("device '" + options.device +
               "' needs a local address: an IPv4 of the switch's network that nobody else has");
  }
  FramePortOptions port;
  port.device = {options.device, deadline_after(0, options.join_timeout)};
  port.switch_ip = address->ip;
  port.switch_port = address->port;
  port.local_ip = local_ip;
  port.local_port = options.local_port;
  auto opened = FramePort::open(port);
  if (const auto* error = std::get_if<Error>(&opened)) {
    AgentError failed = to_agent_error(*error);
    failed.text = "cannot join " + name_ + ": " + failed.text;
    return failed;
  }
  transport_ =
      std::make_unique<FramedTransport>(std::get<std::unique_ptr<FramePort>>(std::move(opened)));
  polls_ = transport_->polls();
  return {};
}

AgentError Core::open(const AgentOptions& options) {
  const auto bad = [](std::string text) {
    return make_error(AgentErrorCode::bad_argument, std::move(text));
  };
  EngineOptions engine;
  engine.job = options.job;
  engine.rank = options.rank;
  engine.resume_within = deadline_after(0, options.resume_within);
  engine.wanted_member = options.member.value_or(options.rank.value_or(any_member));
  if (engine.wanted_member != any_member && engine.wanted_member >= wire::max_members) {
    return bad((options.member ? "member " : "rank ") + std::to_string(engine.wanted_member) +
               " is not in 0.." + std::to_string(wire::max_members - 1) +
               ", which is what one switch has" +
               (options.member ? "" : ": give a member id too (or any) behind one of several"));
  }
  if (asynchronous_) {
    engine.mode = wire::Mode::async;
    engine.elements = options.async_elements;
  }
  if (!options.key_file.empty()) {
    const std::string problem = wire::read_key_file(options.key_file, engine.key);
    if (!problem.empty()) return bad("key file " + options.key_file + " " + problem);
  }

  if (AgentError error = open_transport(options)) return error;
  event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd_ < 0) {
    return make_error(AgentErrorCode::system,
                      "cannot make an eventfd: " + std::generic_category().message(errno));
  }
  close_in_children(event_fd_);

  engine.max_segment_bytes = wire::largest_segment(transport_->path_mtu());
  if (engine.max_segment_bytes == 0) {
    return make_error(AgentErrorCode::system,
                      "the path to " + name_ + " has an MTU of " +
                          std::to_string(transport_->path_mtu()) +
                          " bytes; the smallest segment needs " +
                          std::to_string(wire::mtu_for_segment(wire::min_segment_bytes)));
  }
  engine.incarnation = random_incarnation();
  engine.own_ip = transport_->local_ip();
  engine.own_port = transport_->local_port();
  engine.switch_ip = transport_->switch_ip();
  engine.switch_port = transport_->switch_port();
  engine.start_unix_microseconds = unix_microseconds();
  engine.start_time = monotonic_now();
  engine.receive_datagrams = transport_->receive_datagrams(engine.max_segment_bytes);
  engine.ecn = options.ecn;
  engine_.emplace(std::move(engine));
  return {};
}

AgentError Core::drive_join(std::chrono::milliseconds timeout) {
  Lock lock = enter();
  const Time now = monotonic_now();
  const Time deadline = deadline_after(now, timeout);
  engine_->join(now, deadline);
  take_token();
  transmit(now);
  const auto joining = [this] {
    return engine_->state() == EngineState::joining || engine_->state() == EngineState::forming;
  };
  // The engine gives up at the deadline by itself; the clock ends the loop whatever it does.
  while (joining() && !socket_lost_ && monotonic_now() < deadline_after(deadline, timeout_slack)) {
    poll_and_pump(lock, deadline_after(deadline, timeout_slack));
  }
  give_token(false);
  if (!is_over(engine_->state()) && !joining()) {
    fit_window();
    engine_->use_pages();
    return {};
  }

  AgentError error = to_agent_error(engine_->join_error());
  if (!error) error = make_error(AgentErrorCode::timed_out, "no answer");
  const wire::ReplyBody job = engine_->job();
  const std::uint32_t fits = wire::largest_segment(transport_->path_mtu());
  if (error.code == AgentErrorCode::refused && job.segment_bytes > fits) {
    error.text = "its segments of " + std::to_string(job.segment_bytes) + " bytes need an MTU of " +
                 std::to_string(wire::mtu_for_segment(job.segment_bytes)) + ", the path has " +
                 std::to_string(transport_->path_mtu());
  }
  error.text = "cannot join " + name_ + ": " + error.text + transport_->trouble_text();
  if (error.code != AgentErrorCode::refused) {
    error.text += " (waited " + std::to_string(timeout.count()) + " ms)";
  }
  lock.unlock();
  close(0);
  return error;
}

/// The segment size is known only now: the window holds no more than the receive buffer, and no
/// more than the user wants.
void Core::fit_window() {
  const std::uint32_t segment = std::max<std::uint32_t>(engine_->job().segment_bytes, 1);
  std::uint32_t datagrams = transport_->receive_datagrams(segment);
  if (wanted_window_bytes_ != 0) {
    datagrams = std::clamp<std::uint32_t>(wanted_window_bytes_ / segment, 1, datagrams);
  }
  engine_->limit_receive_datagrams(datagrams);
}

std::string Core::start_thread() {
  // Signals are the application's; none is delivered on this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string problem;
  try {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "iswitch-agent");
  } catch (const std::system_error& error) {
    problem = std::string("cannot start the agent's thread: ") + error.what() +
              "; raise the limit of processes or set background_thread to false";
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return problem;
}

// ---- who drives

Core::Lock Core::enter() {
  const std::lock_guard<std::mutex> gate(gate_);
  return Lock(mutex_);
}

void Core::take_token() { driving_ = true; }

void Core::give_token(bool caller) {
  driving_ = false;
  if (caller) leased_until_ = monotonic_now() + lease;
}

/// Somebody stops driving or stops waiting: see that whoever is left has a driver.
void Core::hand_over() {
  if (driving_) return;
  if (waiters_ > 0) {
    changed_.notify_all();
  } else if (needs_driver()) {
    thread_wake_.notify_one();
  }
}

void Core::wait_for_change(Lock& lock, Time until) {
  ++waiters_;
  changed_.wait_until(lock, time_point(until));
  --waiters_;
}

void Core::kick() const {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable already.
  static_cast<void>(!write(event_fd_, &one, sizeof one));
}

bool Core::callers_at_work(Time now) const {
  if (driving_ || waiters_ > 0) return true;
  // Between two calls of next() results come and contributions are due all the same.
  if (now >= leased_until_ || asynchronous_) return false;
  return operations_.empty() ||
         (prompt_waits_ >= prompt_enough && now - last_submit_at_ < prompt_grace);
}

void Core::run() {
  Lock lock = enter();
  while (!stopping_) {
    const Time now = monotonic_now();
    if (callers_at_work(now)) {
      const Time tick = operations_.empty() || driving_ ? lease_tick : prompt_grace;
      thread_wake_.wait_until(lock, time_point(now + tick));
      if (!driving_ && waiters_ == 0 && engine_->next_deadline() <= monotonic_now()) pump(polls_);
      continue;
    }
    if (!operations_.empty()) prompt_waits_ = 0;
    take_token();
    do {
      poll_and_pump(lock, never);
    } while (!stopping_ && waiters_ == 0 && !socket_lost_);
    give_token(false);
    hand_over();
    if (socket_lost_) return;
  }
}

/// Waits for packets, timers, a kick or `until`, without the lock; then moves everything. The
/// caller has the token.
void Core::poll_and_pump(Lock& lock, Time until) {
  const bool writable = transport_->blocked();
  const Time now = monotonic_now();
  Time wake = std::min(until, engine_->next_deadline());
  // What is ready to go cannot go: the socket, or a timer in a moment, and not a busy loop.
  if (writable) wake = std::max(wake, now + millisecond);
  Time pause = 0;
  if (polls_) {
    pause = rest(now);
    wake = std::min(wake, now + (pause > offering ? pause : 0));
    // With a descriptor a rest ends when something comes.
    if (wake > now && !transport_->arm()) wake = now;
  }
  // Who polls without a rest needs no kick.
  poll_until_ = polls_ ? (wake > now ? never : 0) : wake;
  polls_writable_ = writable || polls_;
  lock.unlock();
  Woken woken;
  Time offered = 0;
  if (wake > now) {
    woken = wait_for_descriptor(now, wake, writable && !polls_);
    if (polls_) woken.readable = true;
  } else if (pause == offering) {
    sched_yield();
    offered = monotonic_now() - now;
  }
  {
    const std::lock_guard<std::mutex> gate(gate_);
    lock.lock();
  }
  poll_until_ = never;
  polls_writable_ = false;
  if (offered > 0) patience_.offered(offered);
  if (woken.lost) lose_socket();
  if (!socket_lost_) pump(woken.readable);
}

Core::Woken Core::wait_for_descriptor(Time now, Time wake, bool writable) const {
  pollfd polled[2] = {
      // ppoll() skips a descriptor of -1
      {transport_->fd(), static_cast<short>(writable ? POLLIN | POLLOUT : POLLIN), 0},
      {event_fd_, POLLIN, 0}};
  timespec time{};
  time.tv_sec = (wake - now) / second;
  time.tv_nsec = (wake - now) % second;
  const int ready = ppoll(polled, 2, wake == never ? nullptr : &time, nullptr);
  if (ready > 0 && polled[1].revents != 0) {
    std::uint64_t kicks = 0;
    static_cast<void>(!read(event_fd_, &kicks, sizeof kicks));
  }
  return {ready > 0 && (polled[0].revents & ~POLLOUT) != 0,
          ready > 0 && ((polled[0].revents | polled[1].revents) & POLLNVAL) != 0};
}

/// How long a transport that polls is left alone when nothing has come.
Time Core::rest(Time now) {
  const Time silence = now - lively_at_;
  const EngineState state = engine_->state();
  const bool expects =
      needs_driver() || state == EngineState::joining || state == EngineState::forming;
  const bool wakes = transport_->fd() >= 0;
  if (!expects) {
    return wakes ? longest_idle_rest_with_descriptor
                 : std::clamp(silence / rest_share, 50 * microsecond, longest_idle_rest);
  }
  switch (patience_.after_look(now)) {
    case Patience::Next::look:
      return 0;
    case Patience::Next::offer:
      return offering;
    case Patience::Next::sleep:
      break;
  }
  if (wakes) return longest_rest;
  // Nothing ends a rest but its end.
  return silence < Patience::most ? offering : std::min(silence / rest_share, longest_rest);
}

void Core::pump(bool readable) {
  Time now = monotonic_now();
  for (unsigned batch = 0; batch < most_batches; ++batch) {
    if (readable) {
      const std::span<const Received> batch_received = transport_->receive();
      if (polls_ && !batch_received.empty()) {
        patience_.found(now);
        lively_at_ = now;
      }
      for (const Received& received : batch_received) {
        engine_->receive(received.datagram, received.ecn, now);
      }
    }
    engine_->tick(now);
    transmit(now);
    finish_operations();
    if (!readable || transport_->drained()) return;
    now = monotonic_now();
  }
}

void Core::transmit(Time now) {
  if (socket_lost_) return;
  transport_->flush();
  while (!transport_->blocked()) {
    const std::size_t count = engine_->transmit(outgoing_, now);
    if (count == 0) break;
    transport_->send({outgoing_.data(), count});
  }
  if (!transport_->too_long()) return;
  const std::uint32_t segment = engine_->job().segment_bytes;
  if (segment == 0 || transport_->path_mtu() >= wire::mtu_for_segment(segment)) return;
  Error error;
  error.code = ErrorCode::system;
  error.text = "the path to " + name_ + " has an MTU of " + std::to_string(transport_->path_mtu()) +
               " bytes now; segments of " + std::to_string(segment) + " bytes need " +
               std::to_string(wire::mtu_for_segment(segment));
  engine_->abandon(error);
}

void Core::lose_socket() {
  socket_lost_ = true;
  Error error;
  error.code = ErrorCode::system;
  error.text = "the agent's socket for " + name_ +
               " was closed by somebody else in this process; join again";
  engine_->abandon(error);
  finish_operations();
}

void Core::finish_operations() {
  bool finished = false;
  while (auto completion = engine_->take_completion()) {
    const auto found = operations_.find(completion->id);
    if (found == operations_.end()) continue;
    Handle::State& state = *found->second;
    state.error = to_agent_error(completion->error);
    if (state.error.code == AgentErrorCode::timed_out ||
        state.error.code == AgentErrorCode::switch_gone) {
      state.error.text += transport_->trouble_text();
    }
    state.partial = completion->partial;
    state.smallest_workers = completion->smallest_workers;
    state.done.store(true, std::memory_order_release);
    operations_.erase(found);
    finished = true;
  }
  if ((finished || engine_->has_news()) && waiters_ > 0) changed_.notify_all();
}

// ---- what callers ask

std::shared_ptr<Handle::State> Core::submit(Request request, const OperationOptions& options) {
  request.user_tag = options.tag;
  return begin(options, [&](Time now, Time deadline) {
    request.deadline = deadline;
    return engine_->submit(request, now);
  });
}

std::shared_ptr<Handle::State> Core::push(std::span<const float> gradient,
                                          const OperationOptions& options) {
  return begin(options,
               [&](Time now, Time deadline) { return engine_->push(gradient, deadline, now); });
}

template <class Issue>
std::shared_ptr<Handle::State> Core::begin(const OperationOptions& options, Issue&& issue) {
  auto state = std::make_shared<Handle::State>();
  const auto fail = [&state](AgentError error) {
    state->error = std::move(error);
    state->done.store(true, std::memory_order_release);
    return state;
  };
  if (inherited()) return fail(inherited_error());
  Lock lock = enter();
  if (closing_) return fail(to_agent_error(closed_error(name_)));
  if (socket_lost_) {
    return fail(
        make_error(AgentErrorCode::system, "the agent's socket for " + name_ + " is closed"));
  }
  const Time now = lively_at_ = monotonic_now();
  patience_.begin(now);
  state->core = shared_from_this();
  operations_.emplace(issue(now, deadline_after(now, options.timeout.value_or(default_timeout_))),
                      state);
  transmit(now);
  finish_operations();
  state->submitted_at = last_submit_at_ = monotonic_now();  // sending took its time
  if (driving_) {
    // Whoever polls wakes up for packets anyway, but not for an earlier timer or a full send
    // buffer.
    if (engine_->next_deadline() < poll_until_ || (transport_->blocked() && !polls_writable_))
      kick();
  } else if (prompt_waits_ < prompt_enough) {
    thread_wake_.notify_one();
  }
  return state;
}

bool Core::wait(const Handle::State& operation, Time until) {
  const auto done = [&operation] { return operation.done.load(std::memory_order_acquire); };
  if (done()) return true;
  Lock lock = enter();
  if (!done()) {
    const bool prompt = monotonic_now() - operation.submitted_at < prompt_wait;
    prompt_waits_ = prompt ? std::min(prompt_waits_ + 1, prompt_enough) : 0;
  }
  drive(lock, until, done);
  return done();
}

template <class Done>
void Core::drive(Lock& lock, Time until, Done&& done) {
  // At least one turn, so that waiting for no time at all still moves a caller-driven agent.
  for (bool first = true; !done() && (first || monotonic_now() < until); first = false) {
    if (driving_ || closing_ || socket_lost_) {
      wait_for_change(lock, until);
      continue;
    }
    take_token();
    do {
      poll_and_pump(lock, until);
    } while (!done() && !closing_ && !socket_lost_ && monotonic_now() < until);
    give_token(true);
    hand_over();
  }
  hand_over();
}

Expected<Arrived> Core::next(SliceUpdate& update, MemberEvent& event, Time until) {
  if (!asynchronous_)
    return make_error(AgentErrorCode::bad_argument,
                      "this agent joined a synchronous job, which has no updates");
  Lock lock = enter();
  const auto over = [this] { return closing_ || socket_lost_ || is_over(engine_->state()); };
  drive(lock, until, [&] { return over() || engine_->has_news(); });
  if (over()) {
    if (closing_) return to_agent_error(closed_error(name_));
    return to_agent_error(engine_->join_error());
  }
  if (const auto news = engine_->take_event()) {
    event.kind = static_cast<MemberEventKind>(news->kind);
    event.base_round = news->base_round;
    event.untouched = news->untouched;
    event.text = news->text;
    return Arrived::event;
  }
  const auto taken = engine_->take_update();
  if (!taken) return Arrived::nothing;
  update.segment = taken->segment;
  update.first = taken->first;
  update.number = taken->number;
  update.workers = taken->workers;
  update.partial = taken->partial;
  update.values.assign(taken->values.begin(), taken->values.end());
  return Arrived::update;
}

void Core::give_up_pushes() {
  const Lock lock = enter();
  if (closing_) return;
  engine_->give_up_pushes(monotonic_now());
  finish_operations();
}

void Core::request_reset() {
  const Lock lock = enter();
  if (!closing_) engine_->request_reset(monotonic_now());
}

bool Core::needs_weights() {
  const Lock lock = enter();
  return engine_->needs_weights();
}

iswitch::UpdateNumbers Core::numbers() {
  const Lock lock = enter();
  UpdateNumbers numbers = engine_->numbers();
  return {numbers.base_round, std::move(numbers.last)};
}

AgentError Core::resume(const iswitch::UpdateNumbers& numbers) {
  const Lock lock = enter();
  if (closing_) return to_agent_error(closed_error(name_));
  const Time now = monotonic_now();
  const Error error = engine_->resume({numbers.base_round, numbers.last}, now);
  if (error) return to_agent_error(error);
  // What was kept meanwhile may be what somebody waits for.
  if (waiters_ > 0) changed_.notify_all();
  if (driving_) kick();
  return {};
}

void Core::progress(Time until) {
  Lock lock = enter();
  if (closing_ || socket_lost_) return;
  if (driving_) {
    if (monotonic_now() < until) wait_for_change(lock, until);
  } else {
    take_token();
    poll_and_pump(lock, until);
    give_token(true);
  }
  hand_over();
}

AgentError Core::close(Time grace) {
  Lock lock = enter();
  if (closing_) {
    while (!closed_) wait_for_change(lock, never);
    return close_error_;
  }
  closing_ = true;
  const Time now = monotonic_now();
  const bool was_member = !is_over(engine_->state());
  if (was_member && !socket_lost_) {
    const Time deadline = now + grace;
    engine_->leave(now, deadline);
    transmit(now);
    finish_operations();
    while (!is_over(engine_->state()) && !socket_lost_ && monotonic_now() < deadline) {
      if (driving_) {
        kick();
        wait_for_change(lock, deadline);
      } else {
        take_token();
        poll_and_pump(lock, deadline);
        give_token(false);
      }
    }
    if (engine_->state() != EngineState::left || monotonic_now() >= deadline) {
      close_error_ =
          make_error(AgentErrorCode::switch_gone, "no answer to Leave from " + name_ +
                                                      "; the place stays taken until the "
                                                      "member has timed out there");
    }
  }
  stopping_ = true;
  engine_->abandon(closed_error(name_));
  finish_operations();
  kick();
  thread_wake_.notify_all();
  changed_.notify_all();
  lock.unlock();
  if (thread_.joinable()) thread_.join();
  lock = enter();
  while (driving_) {
    kick();
    wait_for_change(lock, never);
  }
  final_counts_ = transport_->counts();
  if (!polls_) forget_in_children(transport_->fd());
  transport_.reset();
  closed_ = true;
  changed_.notify_all();
  return close_error_;
}

bool Core::inherited() const { return generation_ != fork_generation(); }

AgentError Core::inherited_error() const {
  return make_error(
      AgentErrorCode::closed,
      "this agent of " + name_ +
          " was inherited through fork(); it belongs to the parent: join in the child");
}

Membership Core::membership() {
  const Lock lock = enter();
  const wire::ReplyBody& job = engine_->job();
  const wire::MemberId member = engine_->member();
  return {rank_.value_or(member), member,        job.members_now,
          job.members_expected,   job.threshold, job.segment_bytes};
}

AgentStatistics Core::statistics() {
  const Lock lock = enter();
  const Statistics engine = engine_->statistics();
  const Transport::Counts counts = transport_ ? transport_->counts() : final_counts_;
  AgentStatistics result;
  result.contributions_sent = engine.contributions_sent;
  result.retransmissions = engine.retransmissions;
  result.results = engine.results;
  result.duplicate_results = engine.duplicate_results;
  result.gradient_bytes_sent = engine.gradient_bytes_sent;
  result.gradient_bytes_received = engine.gradient_bytes_received;
  result.operations_done = engine.operations_done;
  result.operations_failed = engine.operations_failed;
  result.resets = engine.resets;
  result.resumes = engine.resumes;
  result.updates = engine.updates;
  result.helps = engine.helps;
  result.ecn_marks = engine.ecn_marks;
  result.send_calls = counts.send_calls;
  result.receive_calls = counts.receive_calls;
  result.window_bytes = engine.window_bytes;
  result.smoothed_rtt = std::chrono::nanoseconds(engine.smoothed_rtt);
  result.retransmit_timeout = std::chrono::nanoseconds(engine.retransmit_timeout);
  return result;
}

}  // namespace iswitch::agent
