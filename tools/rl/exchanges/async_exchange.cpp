#include "tools/rl/exchanges/async_exchange.h"

#include <iswitch/agent.h>
#include <iswitch/async_trainer.h>
#include <sodium.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "tools/rl/exchanges/agent_failure.h"
#include "tools/rl/exchanges/asynchronous.h"
#include "tools/rl/exchanges/peers.h"

namespace iswitch::rl {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto status_time = 500ms;  ///< for a peer to say how far it is
constexpr auto snapshot_time = 20s;  ///< for its weights
constexpr auto patience = 10s;       ///< with workers that cannot be reached
constexpr auto poll_every = 50ms;
constexpr int calm_polls = 4;         ///< equal in a row: no update is on its way any more
constexpr auto last_pushes = 300ms;   ///< for what is under way when nobody pushes any more
constexpr auto others_every = 500ms;  ///< between two looks whether somebody has finished

AgentError not_yet(std::string text) {
  AgentError error;
  error.code = AgentErrorCode::timed_out;
  error.text = std::move(text);
  return error;
}

std::array<std::uint8_t, 32> digest(std::span<const std::uint8_t> bytes) {
  std::array<std::uint8_t, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256(hash.data(), bytes.data(), bytes.size());
  return hash;
}

template <class Value>
std::span<const std::uint8_t> bytes_of(const std::vector<Value>& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(Value)};
}

class AsyncExchange final : public AsynchronousExchange {
 public:
  AsyncExchange(SwitchOptions options, std::unique_ptr<Agent> agent)
      : options_(std::move(options)), agent_(std::move(agent)) {}
  ~AsyncExchange() override {
    // Nobody may ask while this ends, and pushes under way end with the membership.
    server_.reset();
    agent_->leave();
    trainer_.reset();
  }

  Failure listen() {
    auto made = PeerServer::listen(options_.peers[*options_.rank],
                                   {[this] { return status(); }, [this] { return snapshot(); }});
    if (auto* failure = std::get_if<Failure>(&made)) return *failure;
    server_ = std::move(std::get<std::unique_ptr<PeerServer>>(made));
    return {};
  }

  std::size_t rank() const override { return *options_.rank; }
  std::size_t size() const override { return options_.peers.size(); }

  Failure start(Replica& replica, std::span<float> weights) override;
  Failure finish(std::span<float> weights, bool& equal) override;
  bool others_finish() override;
  void offer(std::vector<float> numbers) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    offer_ = std::move(numbers);
  }
  const std::vector<float>& offered() const override { return offered_; }
  Failure leave() override {
    server_.reset();
    return failure_of(agent_->leave());
  }
  std::string details_json() const override;

 protected:
  Failure do_step(std::span<const float> gradient, std::span<float> weights) override;

 private:
  PeerStatus status() const;
  PeerStatus current() const;  // under mutex_
  std::vector<std::uint8_t> snapshot() const;
  Expected<Fetched> fetch(CatchUp why, std::uint32_t base_round);
  Expected<Fetched> take_from(const std::string& address, CatchUp why);
  /// By rank; this worker's own and those that do not answer are empty.
  std::vector<std::optional<PeerStatus>> ask_all() const;
  /// Ends the pushes: by themselves, or given up once nobody is left to push what they wait for.
  void become_quiet(Clock::time_point until);

  const SwitchOptions options_;
  std::unique_ptr<Agent> agent_;
  Replica* replica_ = nullptr;
  std::unique_ptr<AsyncTrainer> trainer_;
  std::vector<float> offered_;  // written before start() returns

  mutable std::mutex mutex_;  // what the server's thread reads; never held while it asks others
  AsyncTrainer* serving_ = nullptr;
  std::vector<float> offer_;
  std::optional<std::uint32_t> waiting_for_;  ///< base round
  Clock::time_point waiting_since_;
  std::size_t fetches_ = 0;  ///< of snapshots, of one worker after the other
  bool finished_ = false, quiet_ = false;
  std::optional<PeerStatus> settled_;  ///< what this worker would end with

  Clock::time_point next_look_{};
  bool others_finished_ = false;        ///< one of them, and so all will
  std::unique_ptr<PeerServer> server_;  // last: its thread uses the rest
};

// ---- what the others ask

PeerStatus AsyncExchange::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (settled_) return *settled_;
  return current();
}

PeerStatus AsyncExchange::current() const {
  PeerStatus status;
  status.rank = static_cast<std::uint32_t>(*options_.rank);
  status.finished = finished_;
  status.quiet = quiet_;
  status.waiting = waiting_for_.has_value();
  if (waiting_for_) status.base_round = *waiting_for_;
  if (replica_ != nullptr) status.updates = replica_->updates();
  if (serving_ == nullptr || waiting_for_) return status;
  if (const auto now = serving_->snapshot()) {
    status.live = true;
    status.base_round = now->numbers.base_round;
    status.numbers = digest(bytes_of(now->numbers.last));
    // It costs, and matters at the end only.
    if (quiet_) status.weights = digest(bytes_of(now->weights));
  }
  return status;
}

/// The numbers that a newcomer should start with (their count first), then the snapshot.
std::vector<std::uint8_t> AsyncExchange::snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (serving_ == nullptr || waiting_for_) return {};
  const auto now = serving_->snapshot();
  if (!now) return {};
  const auto extra = bytes_of(offer_);
  const std::vector<std::uint8_t> encoded = now->encode();
  std::vector<std::uint8_t> bytes;
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<std::uint8_t>(offer_.size() >> shift));
  bytes.insert(bytes.end(), extra.begin(), extra.end());
  bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  return bytes;
}

std::vector<std::optional<PeerStatus>> AsyncExchange::ask_all() const {
  std::vector<std::optional<PeerStatus>> all(options_.peers.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (rank != *options_.rank) all[rank] = ask_status(options_.peers[rank], status_time);
  return all;
}

// ---- catching up, on the trainer's thread

/// From a worker that goes on already; where there is none, all wait for the one that has made most
/// updates (the lowest rank among equals), which keeps its own weights.
Expected<Fetched> AsyncExchange::fetch(CatchUp why, std::uint32_t base_round) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_for_ != base_round) {
      waiting_for_ = base_round;
      waiting_since_ = Clock::now();
    }
  }
  const auto done = [this](Expected<Fetched> fetched) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fetched) waiting_for_.reset();
    return fetched;
  };
  const auto all = ask_all();
  const PeerStatus* furthest = nullptr;
  bool everybody = true, all_wait = true;
  std::vector<std::size_t> live;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == *options_.rank) continue;
    if (!all[rank]) {
      everybody = false;
      continue;
    }
    const PeerStatus& peer = *all[rank];
    if (peer.rank != rank)
      return not_yet("the worker at " + options_.peers[rank] + " says that it is rank " +
                     std::to_string(peer.rank) +
                     ": --peers must be the same list everywhere, by "
                     "rank");
    if (peer.live && peer.base_round == base_round) live.push_back(rank);
    all_wait = all_wait && peer.waiting && peer.base_round == base_round;
    if (furthest == nullptr || peer.updates > furthest->updates) furthest = &peer;
  }
  // Not always the same one: it may lack what is gone as well.
  if (!live.empty()) return done(take_from(options_.peers[live[fetches_++ % live.size()]], why));
  if (why == CatchUp::gone) return not_yet("no other worker of --peers has weights to give");
  if (!all_wait) return not_yet("other workers have not noticed yet that the job began again");
  if (!everybody && Clock::now() < waiting_since_ + patience)
    return not_yet("some workers of --peers do not answer");
  const bool own = furthest == nullptr || replica_->updates() > furthest->updates ||
                   (replica_->updates() == furthest->updates && *options_.rank < furthest->rank);
  if (own) return done(Fetched());
  return not_yet("worker " + std::to_string(furthest->rank) + " has not gone on yet");
}

Expected<Fetched> AsyncExchange::take_from(const std::string& address, CatchUp why) {
  const auto bytes = ask_snapshot(address, snapshot_time);
  const auto broken = [&] { return not_yet("no good snapshot from " + address); };
  if (!bytes || bytes->size() < 4) return broken();
  std::size_t extra = 0;
  for (int i = 0; i < 4; ++i) extra = extra << 8 | (*bytes)[static_cast<std::size_t>(i)];
  if (extra > (bytes->size() - 4) / sizeof(float)) return broken();
  auto snapshot = TrainerSnapshot::decode(std::span(*bytes).subspan(4 + extra * sizeof(float)));
  if (!snapshot) return broken();
  if (why == CatchUp::start) {
    offered_.resize(extra);
    std::copy_n(bytes->begin() + 4, extra * sizeof(float),
                reinterpret_cast<std::uint8_t*>(offered_.data()));
  }
  return Fetched(std::move(*snapshot));
}

// ---- training

Failure AsyncExchange::start(Replica& replica, std::span<float> weights) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    replica_ = &replica;
  }
  AsyncTrainerCallbacks callbacks;
  callbacks.apply = [&replica](std::span<float> common, std::span<const float> mean) {
    replica.apply(common, mean);
  };
  callbacks.save_optimiser = [&replica] { return replica.save_optimiser(); };
  callbacks.load_optimiser = [&replica](std::span<const float> state) {
    replica.load_optimiser(state);
  };
  callbacks.fetch = [this](CatchUp why, std::uint32_t base_round) {
    return fetch(why, base_round);
  };
  AsyncTrainerOptions options;
  options.max_staleness = options_.max_staleness;
  options.pushes_in_flight = options_.pushes_in_flight;
  options.push_timeout = options_.timeout;
  options.catch_up_timeout = std::max<std::chrono::milliseconds>(options_.timeout, 2 * patience);
  trainer_ = std::make_unique<AsyncTrainer>(
      *agent_, std::vector<float>(weights.begin(), weights.end()), std::move(callbacks), options);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    serving_ = trainer_.get();
  }
  return failure_of(trainer_->read_weights(weights));
}

Failure AsyncExchange::do_step(std::span<const float> gradient, std::span<float> weights) {
  // Once somebody has finished, what is under way may never be summed: the caller finishes too, and
  // what is left of its iteration takes no time here.
  const auto until = Clock::now() + options_.timeout;
  while (!others_finished_ && !trainer_->wait_for_pushes(poll_every) && Clock::now() < until)
    others_finish();
  if (others_finished_) return failure_of(trainer_->read_weights(weights));
  const auto pushed = trainer_->push(gradient);
  if (!pushed) return failure_of(pushed.error());
  return failure_of(trainer_->read_weights(weights));
}

bool AsyncExchange::others_finish() {
  if (others_finished_ || Clock::now() < next_look_) return others_finished_;
  next_look_ = Clock::now() + others_every;
  const auto all = ask_all();
  others_finished_ = std::any_of(all.begin(), all.end(),
                                 [](const auto& status) { return status && status->finished; });
  return others_finished_;
}

void AsyncExchange::become_quiet(Clock::time_point until) {
  auto give_up_at = until;
  while (Clock::now() < give_up_at && !trainer_->wait_for_pushes(poll_every)) {
    const auto peers = ask_all();
    const bool all = std::all_of(peers.begin(), peers.end(),
                                 [](const auto& peer) { return !peer || peer->finished; });
    if (all) give_up_at = std::min(give_up_at, Clock::now() + last_pushes);
  }
  trainer_->give_up_pushes();
  const std::lock_guard<std::mutex> lock(mutex_);
  quiet_ = true;
}

/// Why the workers do not end together, one clause for each that differs from this one.
std::string differences(const std::vector<std::optional<PeerStatus>>& peers,
                        const PeerStatus& own) {
  std::string text = own.live ? "" : "; this worker looks for weights";
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const auto& peer = peers[rank];
    const char* what = !peer                                ? nullptr
                       : !peer->finished                    ? "still trains"
                       : !peer->quiet                       ? "still waits for its gradients"
                       : !peer->live                        ? "looks for weights"
                       : peer->base_round != own.base_round ? "is in another life of the job"
                       : peer->numbers != own.numbers       ? "has other updates"
                       : !peer->settled                     ? "has not settled yet"
                                                            : nullptr;
    if (what != nullptr) text += "; worker " + std::to_string(rank) + ' ' + what;
  }
  return text;
}

/// When all are quiet and have the same updates for a while, each *settles* on them and remembers
/// the weights of that moment; an update that comes later (a forced sum) changes nothing. All end
/// once all have settled on the same. One that has settled begins again when another says that it
/// has other updates: settled on those, or not yet settled when one more came. So when one has seen
/// all others settled and leaves, none of those sees a difference any more, and all end with what
/// it saw.
Failure AsyncExchange::finish(std::span<float> weights, bool& equal) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    finished_ = true;
  }
  // From when nothing of its own is under way, or from the last update on while others still train.
  const auto patient = std::max<std::chrono::milliseconds>(options_.timeout, patience);
  become_quiet(Clock::now() + patient);
  auto until = Clock::now() + patient;
  std::vector<float> settled_weights;
  PeerStatus before;
  for (int calm = 0;; std::this_thread::sleep_for(poll_every)) {
    if (const AgentError error = trainer_->failure()) return failure_of(error);
    const auto peers = ask_all();
    const PeerStatus own = status();
    if (Clock::now() >= until)
      return {FailureKind::exchange,
              "the workers' updates did not settle" + differences(peers, own)};
    bool all_settled = true, same = own.live;
    equal = true;
    for (const auto& peer : peers) {
      if (!peer) continue;  // it has left, or died
      all_settled = all_settled && peer->settled;
      same = same && peer->quiet && peer->live && peer->base_round == own.base_round &&
             peer->numbers == own.numbers;
      equal = equal && peer->weights == own.weights;
    }
    if (own.settled && same && all_settled) break;
    if (own.settled) {
      const bool other = std::any_of(peers.begin(), peers.end(), [&](const auto& peer) {
        return peer && peer->live && peer->numbers != own.numbers;
      });
      if (!other) continue;
      const std::lock_guard<std::mutex> lock(mutex_);
      settled_.reset();
      calm = 0;
      continue;
    }
    calm = same && own == before ? calm + 1 : 0;
    if (own.numbers != before.numbers) until = Clock::now() + patient;
    before = own;
    if (calm < calm_polls) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = serving_->snapshot();
    if (!now || digest(bytes_of(now->numbers.last)) != own.numbers) continue;
    settled_ = own;
    settled_->settled = true;
    settled_weights = now->weights;
  }
  std::copy(settled_weights.begin(), settled_weights.end(), weights.begin());
  return {};
}

std::string AsyncExchange::details_json() const {
  const AgentStatistics counted = agent_->statistics();
  const AsyncTrainerStatistics trained =
      trainer_ ? trainer_->statistics() : AsyncTrainerStatistics{};
  std::ostringstream text;
  text << "{\"pushed\": " << trained.pushed << ", \"dropped\": " << trained.dropped
       << ", \"failed\": " << trained.failed << ", \"applied\": " << trained.applied
       << ", \"catch_ups\": " << trained.catch_ups
       << ", \"max_staleness\": " << options_.max_staleness << ", \"staleness\": [";
  for (std::size_t age = 0; age < trained.staleness.size(); ++age)
    text << (age == 0 ? "" : ", ") << trained.staleness[age];
  text << "], \"contributions_sent\": " << counted.contributions_sent
       << ", \"retransmissions\": " << counted.retransmissions
       << ", \"results\": " << counted.results
       << ", \"duplicate_results\": " << counted.duplicate_results
       << ", \"gradient_bytes_sent\": " << counted.gradient_bytes_sent
       << ", \"gradient_bytes_received\": " << counted.gradient_bytes_received
       << ", \"updates_taken\": " << counted.updates << ", \"helps\": " << counted.helps
       << ", \"resets\": " << counted.resets << ", \"resumes\": " << counted.resumes
       << ", \"smoothed_rtt_us\": " << counted.smoothed_rtt.count() / 1000
       << ", \"segment_bytes\": " << agent_->segment_bytes() << "}";
  return text.str();
}

}  // namespace

std::variant<std::unique_ptr<Exchange>, Failure> join_switch_asynchronously(
    const SwitchOptions& options) {
  if (!options.rank || *options.rank >= options.peers.size())
    return Failure{FailureKind::usage,
                   "an asynchronous exchange needs --rank, and --peers with one IPv4:port for each "
                   "rank, where the workers serve their weights to each other"};
  for (const std::string& peer : options.peers)
    if (const std::string problem = peer_address_problem(peer); !problem.empty())
      return Failure{FailureKind::usage, "--peers: " + problem};
  AgentOptions agent_options = agent_options_of(options);
  agent_options.async_elements = options.gradient_floats;
  agent_options.background_thread = true;
  auto agent = Agent::join(agent_options);
  if (!agent) return failure_of(agent.error());
  auto exchange = std::make_unique<AsyncExchange>(options, std::move(*agent));
  if (Failure failure = exchange->listen()) return failure;
  return exchange;
}

}  // namespace iswitch::rl
