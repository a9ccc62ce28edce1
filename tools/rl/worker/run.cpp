#include "tools/rl/worker/run.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>

#include "tools/rl/algorithms/registry.h"
#include "tools/rl/core/digest.h"
#include "tools/rl/environments/registry.h"
#include "tools/rl/exchanges/registry.h"
#include "tools/rl/nn/threads.h"
#include "tools/rl/worker/generation.h"
#include "tools/rl/worker/report.h"

namespace iswitch::rl {
namespace {

constexpr std::uint64_t episodes_in_mean = 40;

volatile std::sig_atomic_t stop_wanted = 0;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The mean over the last iterations that together hold enough episodes.
class EpisodeMean {
 public:
  void add(const IterationFigures& figures) {
    if (figures.episodes == 0) return;
    recent_.push_back(figures);
    episodes_ += figures.episodes;
    all_ += figures.episodes;
    while (episodes_ - recent_.front().episodes >= episodes_in_mean) {
      episodes_ -= recent_.front().episodes;
      recent_.pop_front();
    }
  }
  std::uint64_t all() const { return all_; }
  double mean(double IterationFigures::*sum) const {
    double total = 0.0;
    for (const IterationFigures& figures : recent_) total += figures.*sum;
    return episodes_ == 0 ? 0.0 : total / static_cast<double>(episodes_);
  }

 private:
  std::deque<IterationFigures> recent_;
  std::uint64_t episodes_ = 0, all_ = 0;
};

class Worker {
 public:
  Worker(WorkerOptions options, std::unique_ptr<Exchange> exchange,
         std::unique_ptr<Algorithm> algorithm, Parameters parameters)
      : options_(std::move(options)),
        algorithm_(std::move(algorithm)),
        exchange_(std::move(exchange)) {
    figures_.rank = exchange_->rank();
    figures_.size = exchange_->size();
    figures_.parameters = std::move(parameters);
    figures_.gradient_bytes = algorithm_->weights().size_bytes();
  }

  Failure run() {
    if (Failure failure = progress_.open(options_.progress_file)) return failure;
    std::printf("worker %zu of %zu: %s on %s over %s, gradient of %zu floats = %zu bytes\n",
                figures_.rank, figures_.size, options_.algorithm.c_str(),
                options_.environment.c_str(), options_.exchange.c_str(),
                algorithm_->weights().size(), figures_.gradient_bytes);
    std::fflush(stdout);
    start_ = std::chrono::steady_clock::now();
    Failure failure;
    do {
      failure = generation();
      if (failure.kind == FailureKind::reset) {
        std::printf("worker %zu: %s; sharing the state again\n", figures_.rank,
                    failure.text.c_str());
        std::fflush(stdout);
      }
    } while (failure.kind == FailureKind::reset);
    return finish(failure);
  }

 private:
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  /// From a common state on, until the end or a failure.
  Failure generation() {
    ++figures_.generations;
    AsynchronousExchange* asynchronous = exchange_->asynchronous();
    if (Failure failure = asynchronous != nullptr ? algorithm_->begin(*asynchronous)
                                                  : begin_generation(*exchange_, *algorithm_))
      return failure;
    while (true) {
      bool stop = false;
      if (Failure failure = iteration(stop)) return failure;
      if (stop) break;
    }
    return asynchronous != nullptr
               ? algorithm_->finish(*asynchronous, figures_.equal_weights)
               : compare_weights(*exchange_, *algorithm_, figures_.equal_weights);
  }

  bool wants_stop() const {
    if (AsynchronousExchange* asynchronous = exchange_->asynchronous();
        asynchronous != nullptr && asynchronous->others_finish())
      return true;
    return stop_wanted != 0 || (options_.seconds > 0.0 && elapsed() >= options_.seconds) ||
           (options_.iterations > 0 && algorithm_->iterations() + 1 >= options_.iterations);
  }

  /// Along with the algorithm's own numbers goes whether anybody wants to stop, so that all stop
  /// together, and what each spent in the exchange, in its own place.
  Failure iteration(bool& stop) {
    const double exchange_before = exchange_->figures().seconds;
    std::vector<float> shared(1 + exchange_->size(), 0.0F);
    shared[0] = wants_stop() ? 1.0F : 0.0F;
    shared[1 + exchange_->rank()] = static_cast<float>(last_exchange_);
    IterationFigures iteration;
    if (Failure failure = algorithm_->iterate(*exchange_, shared, iteration)) return failure;
    stop = shared[0] > 0.0F;
    // Asynchronous: the others' times are not known, and nobody waits for anybody.
    const double least =
        exchange_->asynchronous() != nullptr
            ? last_exchange_
            : static_cast<double>(*std::min_element(shared.begin() + 1, shared.end()));
    wait_ += std::max(0.0, last_exchange_ - least);
    last_exchange_ = exchange_->figures().seconds - exchange_before;
    steps_ += iteration.steps;
    episodes_.add(iteration);
    tell(stop);
    return {};
  }

  void tell(bool last) {
    ProgressRow row;
    row.iteration = algorithm_->iterations();
    row.updates = algorithm_->updates();
    row.steps = steps_;
    row.seconds = elapsed();
    row.exchange = exchange_->figures().seconds;
    row.compute = row.seconds - row.exchange;
    row.wait = wait_;
    row.bytes = exchange_->figures().bytes;
    row.exchanges = exchange_->figures().calls;
    row.episodes = episodes_.all();
    row.episode_return = episodes_.mean(&IterationFigures::return_sum);
    row.episode_length = episodes_.mean(&IterationFigures::length_sum);
    progress_.write(row);
    figures_.rows.push_back(row);
    if (figures_.rank != 0 || options_.print_every <= 0.0) return;
    if (!last && row.seconds < next_print_) return;
    next_print_ = row.seconds + options_.print_every;
    std::printf("%s\n", describe(row).c_str());
    std::fflush(stdout);
  }

  Failure finish(Failure failure) {
    figures_.cpu_seconds = cpu_seconds();
    figures_.weights_digest = weights_digest(algorithm_->weights());
    figures_.exchange_details = exchange_->details_json();
    Failure written = write_figures(options_, figures_);
    if (failure) return failure;
    if (!figures_.equal_weights)
      return {FailureKind::exchange, "the workers' weights differ at the end: this is a defect"};
    if (Failure left = exchange_->leave()) return left;
    std::printf("worker %zu: %llu updates, return %.1f, weights sha256 %s, equal on all %zu\n",
                figures_.rank, static_cast<unsigned long long>(algorithm_->updates()),
                figures_.rows.empty() ? 0.0 : figures_.rows.back().episode_return,
                figures_.weights_digest.c_str(), figures_.size);
    std::fflush(stdout);
    return written;
  }

  WorkerOptions options_;
  std::unique_ptr<Algorithm> algorithm_;
  std::unique_ptr<Exchange> exchange_;  // ends first: its threads may use the algorithm
  RunFigures figures_;
  ProgressFile progress_;
  std::chrono::steady_clock::time_point start_;
  EpisodeMean episodes_;
  double last_exchange_ = 0.0, wait_ = 0.0, next_print_ = 0.0;
  std::uint64_t steps_ = 0;
};

/// FNV-1a over what must be the same on all workers.
std::uint32_t fingerprint(const WorkerOptions& options, const Parameters& parameters) {
  std::string text = options.algorithm + "/" + options.environment;
  for (const auto& entry : parameters.all())
    text += "/" + entry.first + "=" + std::to_string(entry.second);
  std::uint32_t hash = 2166136261U;
  for (const char letter : text) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 16777619U;
  }
  return hash;
}

}  // namespace

void stop_soon() { stop_wanted = 1; }

Failure run_worker(WorkerOptions options) {
  use_one_thread();
  auto environment = environment_factory(options.environment);
  if (auto* failure = std::get_if<Failure>(&environment)) return *failure;
  auto parameters = default_parameters(options.algorithm, options.environment);
  if (auto* failure = std::get_if<Failure>(&parameters)) return *failure;
  AlgorithmContext context{.environment = std::get<EnvironmentFactory>(environment),
                           .parameters = std::get<Parameters>(parameters),
                           .seed = options.seed};
  if (Failure failure = context.parameters.set(options.set)) return failure;
  // What does not fit together is said before anybody waits for others: as worker 0 of 1.
  auto algorithm = make_algorithm(options.algorithm, context);
  if (auto* failure = std::get_if<Failure>(&algorithm)) return *failure;

  options.network.fingerprint = fingerprint(options, context.parameters);
  options.network.gradient_floats =
      std::get<std::unique_ptr<Algorithm>>(algorithm)->weights().size();
  options.network.size = options.expected_size;
  auto exchange = make_exchange(options.exchange, options.network);
  if (auto* failure = std::get_if<Failure>(&exchange)) return *failure;
  auto& joined = std::get<std::unique_ptr<Exchange>>(exchange);
  context.rank = joined->rank();
  context.size = joined->size();
  if (options.expected_size != 0 && options.expected_size != context.size)
    return {FailureKind::usage, "the job has " + std::to_string(context.size) +
                                    " members, --size says " +
                                    std::to_string(options.expected_size)};
  algorithm = make_algorithm(options.algorithm, context);
  if (auto* failure = std::get_if<Failure>(&algorithm)) return *failure;
  return Worker(std::move(options), std::move(joined),
                std::move(std::get<std::unique_ptr<Algorithm>>(algorithm)), context.parameters)
      .run();
}

}  // namespace iswitch::rl
