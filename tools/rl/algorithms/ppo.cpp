#include "tools/rl/algorithms/ppo.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/rl/algorithms/advantages.h"
#include "tools/rl/algorithms/learner.h"
#include "tools/rl/core/moments.h"
#include "tools/rl/environments/environment_set.h"
#include "tools/rl/nn/flat_parameters.h"
#include "tools/rl/nn/mlp.h"

namespace iswitch::rl {
namespace {

enum Purpose : std::uint64_t { initial_weights = 11, minibatch_order = 12 };

constexpr std::int64_t hidden_width = 64;
constexpr std::size_t layers_per_network = 3;
constexpr float most_observation = 10.0F;  ///< in standard deviations
constexpr float most_reward = 10.0F;       ///< likewise
constexpr float policy_last_gain = 0.01F, critic_last_gain = 1.0F;

struct Settings {
  std::size_t environments, steps, epochs, minibatches;
  double learning_rate, discount, lambda, clip, value_weight, entropy_weight, action_deviation,
      most_norm, target_divergence;

  explicit Settings(const Parameters& given)
      : environments(given.count("environments")),
        steps(given.count("steps")),
        epochs(given.count("epochs")),
        minibatches(given.count("minibatches")),
        learning_rate(given.real("learning_rate")),
        discount(given.real("discount")),
        lambda(given.real("lambda")),
        clip(given.real("clip")),
        value_weight(given.real("value_weight")),
        entropy_weight(given.real("entropy_weight")),
        action_deviation(given.real("action_deviation")),
        most_norm(given.real("most_norm")),
        target_divergence(given.real("target_divergence")) {}

  std::size_t batch() const { return environments * steps; }
};

std::vector<std::vector<std::int64_t>> network_shapes(std::int64_t observations,
                                                      std::int64_t outputs) {
  auto shapes = Mlp::shapes({observations, hidden_width, hidden_width, outputs});
  const auto critic = Mlp::shapes({observations, hidden_width, hidden_width, 1});
  shapes.insert(shapes.end(), critic.begin(), critic.end());
  return shapes;
}

/// A view of `values` as a matrix of `columns`; they must outlive it.
at::Tensor matrix(std::span<float> values, std::size_t columns) {
  return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size() / columns),
                                       static_cast<std::int64_t>(columns)});
}

class Ppo final : public Algorithm {
 public:
  explicit Ppo(const AlgorithmContext& context)
      : settings_(context.parameters),
        seed_(context.seed),
        rank_(context.rank),
        environments_(context.environment, context.rank * settings_.environments,
                      settings_.environments, context.seed),
        observations_(environments_.observation_size()),
        actions_(environments_.action_floats()),
        discrete_(environments_.action_space().discrete),
        width_(observations_ + actions_ + 3),
        parameters_(network_shapes(static_cast<std::int64_t>(observations_),
                                   static_cast<std::int64_t>(environments_.action_space().size))),
        policy_(parameters_, 0, layers_per_network),
        critic_(parameters_, 2 * layers_per_network, layers_per_network),
        learner_(parameters_.weights(), parameters_.gradient()),
        seen_(observations_),
        discounted_(1),
        running_return_(settings_.environments, 0.0F),
        rate_(settings_.learning_rate),
        batch_(settings_.batch() * width_),
        after_(settings_.batch() * observations_),
        rewards_(settings_.batch()),
        terminated_(settings_.batch()),
        ended_(settings_.batch()) {
    Random random(seed_, initial_weights, 0);
    policy_.initialise(random, policy_last_gain);
    critic_.initialise(random, critic_last_gain);
  }

  std::span<const float> weights() const override { return learner_.weights(); }
  std::uint64_t updates() const override { return learner_.updates(); }
  std::uint64_t iterations() const override { return iterations_; }

  void save(StateWriter& writer) const override {
    learner_.save(writer);
    seen_.save(writer);
    discounted_.save(writer);
    writer.put(iterations_);
    writer.put(rate_);
  }

  Failure load(StateReader& reader) override {
    learner_.load(reader);
    seen_.load(reader);
    discounted_.load(reader);
    iterations_ = reader.get_count();
    rate_ = reader.get_double();
    if (reader.failed())
      return {FailureKind::exchange, "the shared state is shorter than this network's"};
    environments_.restart(iterations_);
    std::fill(running_return_.begin(), running_return_.end(), 0.0F);
    divergence_sum_ = divergence_count_ = 0.0;
    return {};
  }

  Failure begin(AsynchronousExchange& exchange) override {
    if (settings_.target_divergence > 0.0)
      return {
          FailureKind::usage,
          "target_divergence changes the step size of each worker for itself, so it does not go "
          "with an asynchronous exchange"};
    exchange.offer(normalisers());
    if (Failure failure = learner_.begin(exchange, rate_, settings_.most_norm)) return failure;
    // A newcomer's weights are used to others' normalisers. From then on each worker has its own.
    if (exchange.offered().empty()) return {};
    StateReader reader(exchange.offered());
    seen_.load(reader);
    discounted_.load(reader);
    if (reader.failed())
      return {FailureKind::exchange, "another worker's normalisers are not of this network's kind"};
    return {};
  }

  Failure finish(AsynchronousExchange& exchange, bool& equal) override {
    return learner_.finish(exchange, equal);
  }

  Failure iterate(Exchange& exchange, std::span<float> shared, IterationFigures& figures) override {
    gather();
    std::vector<float> gained = estimate();
    if (Failure failure = share(exchange, shared, gained, figures)) return failure;
    if (Failure failure = learn(exchange)) return failure;
    ++iterations_;
    if (AsynchronousExchange* asynchronous = exchange.asynchronous())
      asynchronous->offer(normalisers());
    return {};
  }

 private:
  std::vector<float> normalisers() const {
    StateWriter writer;
    seen_.save(writer);
    discounted_.save(writer);
    return std::move(writer.values());
  }

  // One row of batch_: observation (normalised), action, log probability then, advantage, target
  // value.
  std::size_t action_column() const { return observations_; }
  std::size_t probability_column() const { return observations_ + actions_; }
  std::size_t advantage_column() const { return probability_column() + 1; }
  std::size_t target_column() const { return probability_column() + 2; }
  std::span<float> row(std::size_t index) {
    return std::span(batch_).subspan(index * width_, width_);
  }
  static at::Tensor columns(const at::Tensor& rows, std::size_t first, std::size_t count) {
    return rows.narrow(1, static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
  }
  static at::Tensor column(const at::Tensor& rows, std::size_t index) {
    return rows.select(1, static_cast<std::int64_t>(index));
  }

  /// Plays `steps` steps in every environment with the policy as it is.
  void gather() {
    const c10::NoGradGuard no_gradients;
    const std::size_t count = environments_.size();
    std::vector<float> seen(count * observations_);
    std::vector<float> actions(count * actions_);
    for (std::size_t step = 0; step < settings_.steps; ++step) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto raw = environments_.observations().subspan(i * observations_, observations_);
        seen_.observe(raw);
        seen_.normalise(raw, std::span(seen).subspan(i * observations_, observations_),
                        most_observation);
      }
      const at::Tensor outputs = policy_.forward(matrix(seen, observations_)).contiguous();
      const std::span<const float> heads(outputs.data_ptr<float>(),
                                         static_cast<std::size_t>(outputs.numel()));
      choose(heads, actions);
      record(step, seen, actions, environments_.step(actions));
    }
  }

  /// Draws each environment's action from the policy's outputs.
  void choose(std::span<const float> heads, std::span<float> actions) {
    const std::size_t outputs = environments_.action_space().size;
    for (std::size_t i = 0; i < environments_.size(); ++i) {
      const auto head = heads.subspan(i * outputs, outputs);
      Random& noise = environments_.noise(i);
      if (discrete_) {
        actions[i] = static_cast<float>(draw(head, noise.uniform()));
        continue;
      }
      for (std::size_t k = 0; k < outputs; ++k)
        actions[i * outputs + k] =
            head[k] + static_cast<float>(settings_.action_deviation * noise.normal());
    }
  }

  static std::size_t draw(std::span<const float> logits, double uniform) {
    const double most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double total = 0.0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit) - most);
    double left = uniform * total;
    for (std::size_t i = 0; i + 1 < logits.size(); ++i) {
      left -= std::exp(static_cast<double>(logits[i]) - most);
      if (left < 0.0) return i;
    }
    return logits.size() - 1;
  }

  void record(std::size_t step, std::span<const float> seen, std::span<const float> actions,
              const EnvironmentSet::Outcome& outcome) {
    const auto discount = static_cast<float>(settings_.discount);
    const auto scale = static_cast<float>(1.0 / discounted_.deviation(0));
    for (std::size_t i = 0; i < environments_.size(); ++i) {
      const std::size_t index = step * environments_.size() + i;
      const auto into = row(index);
      std::copy_n(seen.begin() + static_cast<std::ptrdiff_t>(i * observations_), observations_,
                  into.begin());
      std::copy_n(actions.begin() + static_cast<std::ptrdiff_t>(i * actions_), actions_,
                  into.begin() + static_cast<std::ptrdiff_t>(action_column()));
      seen_.normalise(
          std::span(outcome.next_observations).subspan(i * observations_, observations_),
          std::span(after_).subspan(index * observations_, observations_), most_observation);
      const StepResult& result = outcome.steps[i];
      running_return_[i] = running_return_[i] * discount + result.reward;
      discounted_.observe(std::span(&running_return_[i], 1));
      rewards_[index] = std::clamp(result.reward * scale, -most_reward, most_reward);
      terminated_[index] = result.terminated ? 1 : 0;
      ended_[index] = result.terminated || result.truncated ? 1 : 0;
      if (ended_[index] != 0) running_return_[i] = 0.0F;
    }
  }

  /// Log probability of each row's action under the policy as it is; the constant of a fixed
  /// deviation left out.
  at::Tensor log_probability(const at::Tensor& outputs, const at::Tensor& rows) const {
    if (discrete_)
      return outputs.log_softmax(1)
          .gather(1, columns(rows, action_column(), 1).to(at::kLong))
          .squeeze(1);
    const double variance = settings_.action_deviation * settings_.action_deviation;
    const at::Tensor away = columns(rows, action_column(), actions_) - outputs;
    return away.square().sum(1) * (-0.5 / variance);
  }

  /// Fills in log probabilities and target values; returns the advantages, not yet normalised.
  std::vector<float> estimate() {
    const c10::NoGradGuard no_gradients;
    const at::Tensor rows = matrix(batch_, width_);
    const at::Tensor seen = columns(rows, 0, observations_);
    column(rows, probability_column()).copy_(log_probability(policy_.forward(seen), rows));
    const at::Tensor values = critic_.forward(seen).contiguous();
    const at::Tensor next_values = critic_.forward(matrix(after_, observations_)).contiguous();
    const std::size_t batch = settings_.batch();
    const Experience experience{.environments = environments_.size(),
                                .rewards = rewards_,
                                .values = {values.data_ptr<float>(), batch},
                                .next_values = {next_values.data_ptr<float>(), batch},
                                .terminated = terminated_,
                                .ended = ended_};
    std::vector<float> gained = advantages(experience, static_cast<float>(settings_.discount),
                                           static_cast<float>(settings_.lambda));
    for (std::size_t i = 0; i < batch; ++i)
      row(i)[target_column()] = gained[i] + experience.values[i];
    return gained;
  }

  /// One exchange for everything that must be common: normalisers, the advantages' mean and
  /// deviation over the whole batch of all workers, the episodes, the divergence that the step size
  /// follows, the caller's numbers.
  Failure share(Exchange& exchange, std::span<float> shared, std::span<const float> gained,
                IterationFigures& figures) {
    std::vector<float> sums(seen_.contribution_floats() + discounted_.contribution_floats());
    seen_.contribution(std::span(sums).first(seen_.contribution_floats()));
    discounted_.contribution(std::span(sums).subspan(seen_.contribution_floats()));
    const std::size_t own = sums.size();
    double total = 0.0, squares = 0.0;
    for (const float value : gained) {
      total += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    double episodes = 0.0, returns = 0.0, lengths = 0.0;
    for (const FinishedEpisode& episode : environments_.take_finished()) {
      episodes += 1.0;
      returns += episode.reward;
      lengths += episode.steps;
    }
    for (const double value : {static_cast<double>(gained.size()), total, squares, episodes,
                               returns, lengths, divergence_sum_, divergence_count_})
      sums.push_back(static_cast<float>(value));
    sums.insert(sums.end(), shared.begin(), shared.end());

    if (Failure failure = exchange.sum(sums)) return failure;

    seen_.merge(std::span(sums).first(seen_.contribution_floats()));
    discounted_.merge(
        std::span(sums).subspan(seen_.contribution_floats(), discounted_.contribution_floats()));
    const std::span<const float> common = std::span(sums).subspan(own);
    figures.steps = static_cast<std::uint64_t>(common[0]);
    figures.episodes = static_cast<std::uint64_t>(common[3]);
    figures.return_sum = static_cast<double>(common[4]);
    figures.length_sum = static_cast<double>(common[5]);
    adapt(static_cast<double>(common[6]), static_cast<double>(common[7]));
    normalise(gained, common);
    std::copy_n(common.begin() + 8, shared.size(), shared.begin());
    return {};
  }

  /// Steps so far that moved the policy too little or too much make the next ones larger or
  /// smaller.
  void adapt(double divergence_sum, double divergence_count) {
    if (!(settings_.target_divergence > 0.0) || !(divergence_count > 0.0)) return;
    const double divergence = divergence_sum / divergence_count;
    if (divergence > 2.0 * settings_.target_divergence) rate_ /= 1.5;
    if (divergence < 0.5 * settings_.target_divergence) rate_ *= 1.5;
    rate_ = std::clamp(rate_, 0.03 * settings_.learning_rate, 5.0 * settings_.learning_rate);
  }

  void normalise(std::span<const float> gained, std::span<const float> common) {
    const double count = static_cast<double>(common[0]);
    const double mean = static_cast<double>(common[1]) / count;
    const double variance = static_cast<double>(common[2]) / count - mean * mean;
    const double deviation = std::sqrt(std::max(variance, 0.0)) + 1e-8;
    for (std::size_t i = 0; i < gained.size(); ++i)
      row(i)[advantage_column()] =
          static_cast<float>((static_cast<double>(gained[i]) - mean) / deviation);
  }

  Failure learn(Exchange& exchange) {
    const auto batch = static_cast<std::int64_t>(settings_.batch());
    const auto minibatches = static_cast<std::int64_t>(settings_.minibatches);
    Random order_random(seed_ + iterations_, minibatch_order, rank_);
    std::vector<std::int64_t> order(settings_.batch());
    std::iota(order.begin(), order.end(), 0);
    const at::Tensor rows = matrix(batch_, width_);
    const at::Tensor indices = at::from_blob(order.data(), {batch}, at::kLong);
    for (std::size_t epoch = 0; epoch < settings_.epochs; ++epoch) {
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[order_random.below(static_cast<std::uint32_t>(i))]);
      const at::Tensor shuffled = rows.index_select(0, indices);
      for (std::int64_t i = 0; i < minibatches; ++i) {
        const std::int64_t first = i * batch / minibatches;
        const std::int64_t end = (i + 1) * batch / minibatches;
        parameters_.clear_gradient();
        loss(shuffled.narrow(0, first, end - first)).backward();
        if (Failure failure = learner_.step(exchange, rate_, settings_.most_norm)) return failure;
      }
    }
    measure_divergence(rows);
    return {};
  }

  at::Tensor loss(const at::Tensor& rows) const {
    const at::Tensor seen = columns(rows, 0, observations_);
    const at::Tensor outputs = policy_.forward(seen);
    const at::Tensor advantage = column(rows, advantage_column());
    const at::Tensor ratio =
        (log_probability(outputs, rows) - column(rows, probability_column())).exp();
    const at::Tensor gain =
        (ratio * advantage)
            .minimum(ratio.clamp(1.0 - settings_.clip, 1.0 + settings_.clip) * advantage)
            .mean();
    const at::Tensor miss =
        (critic_.forward(seen).squeeze(1) - column(rows, target_column())).square().mean();
    at::Tensor total = miss * settings_.value_weight - gain;
    if (discrete_ && settings_.entropy_weight > 0.0) {
      const at::Tensor logarithms = outputs.log_softmax(1);
      total = total + (logarithms.exp() * logarithms).sum(1).mean() * settings_.entropy_weight;
    }
    return total;
  }

  /// How far this iteration moved the policy (Schulman's estimator of the Kullback-Leibler
  /// divergence).
  void measure_divergence(const at::Tensor& rows) {
    const c10::NoGradGuard no_gradients;
    const at::Tensor change =
        log_probability(policy_.forward(columns(rows, 0, observations_)), rows) -
        column(rows, probability_column());
    divergence_sum_ = (change.exp() - 1.0 - change).sum().item<double>();
    divergence_count_ = static_cast<double>(settings_.batch());
  }

  Settings settings_;
  std::uint64_t seed_;
  std::size_t rank_;
  EnvironmentSet environments_;
  std::size_t observations_, actions_;
  bool discrete_;
  std::size_t width_;
  FlatParameters parameters_;
  Mlp policy_, critic_;
  Learner learner_;
  SharedMoments seen_;  ///< of the observations
  SharedMoments
      discounted_;  ///< of the discounted return so far: rewards are scaled by its deviation
  std::vector<float> running_return_;
  double rate_;
  std::uint64_t iterations_ = 0;
  double divergence_sum_ = 0.0, divergence_count_ = 0.0;
  // The batch under way, all rows in order of time.
  std::vector<float> batch_, after_, rewards_;
  std::vector<unsigned char> terminated_, ended_;
};

}  // namespace

Parameters ppo_parameters(std::string_view environment) {
  Parameters parameters({{"environments", 8},
                         {"steps", 64},
                         {"epochs", 10},
                         {"minibatches", 4},
                         {"learning_rate", 3e-4},
                         {"discount", 0.99},
                         {"lambda", 0.95},
                         {"clip", 0.2},
                         {"value_weight", 0.5},
                         {"entropy_weight", 0.0},
                         {"action_deviation", 0.5},
                         {"most_norm", 0.5},
                         {"target_divergence", 0.0}});
  if (environment == "cartpole")
    parameters.overlay({{"learning_rate", 1e-3}, {"steps", 32}, {"minibatches", 2}});
  return parameters;
}

std::variant<std::unique_ptr<Algorithm>, Failure> make_ppo(const AlgorithmContext& context) {
  const Settings settings(context.parameters);
  for (const char* name : {"environments", "steps", "epochs", "minibatches"}) {
    if (context.parameters.real(name) != static_cast<double>(context.parameters.count(name)) ||
        context.parameters.count(name) == 0 || context.parameters.count(name) > 100'000)
      return Failure{FailureKind::usage,
                     std::string(name) + " must be a whole number from 1 to 100000"};
  }
  if (settings.minibatches > settings.batch())
    return Failure{FailureKind::usage, "minibatches (" + std::to_string(settings.minibatches) +
                                           ") exceeds environments x steps (" +
                                           std::to_string(settings.batch()) + ")"};
  if (!(settings.action_deviation > 0.0) || !(settings.learning_rate > 0.0))
    return Failure{FailureKind::usage, "action_deviation and learning_rate must be above 0"};
  return std::make_unique<Ppo>(context);
}

}  // namespace iswitch::rl
