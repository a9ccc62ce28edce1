#include "tools/rl/environments/cartpole.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace iswitch::rl {
namespace {

// Barto, Sutton and Anderson's cart and pole, in SI units.
constexpr double gravity = 9.8, cart_mass = 1.0, pole_mass = 0.1, half_pole_length = 0.5;
constexpr double push_newtons = 10.0, seconds_per_step = 0.02;
constexpr double most_position = 2.4, most_angle = 12.0 * std::numbers::pi / 180.0;
constexpr int most_steps = 500;

class CartPole final : public Environment {
 public:
  std::vector<std::int64_t> observation_shape() const override { return {4}; }
  ActionSpace action_space() const override { return {.discrete = true, .size = 2}; }

  void reset(Random& random, std::span<float> observation) override {
    for (double& value : state_) value = random.uniform(-0.05, 0.05);
    steps_ = 0;
    observe(observation);
  }

  StepResult step(std::span<const float> action, std::span<float> observation) override {
    auto& [position, speed, angle, rate] = state_;
    const double force = action[0] >= 0.5F ? push_newtons : -push_newtons;
    const double mass = cart_mass + pole_mass;
    const double sine = std::sin(angle), cosine = std::cos(angle);
    const double pull = (force + pole_mass * half_pole_length * rate * rate * sine) / mass;
    const double angular = (gravity * sine - cosine * pull) /
                           (half_pole_length * (4.0 / 3.0 - pole_mass * cosine * cosine / mass));
    const double linear = pull - pole_mass * half_pole_length * angular * cosine / mass;
    position += seconds_per_step * speed;
    speed += seconds_per_step * linear;
    angle += seconds_per_step * rate;
    rate += seconds_per_step * angular;
    observe(observation);
    const bool fell = std::abs(position) > most_position || std::abs(angle) > most_angle;
    return {.reward = 1.0F, .terminated = fell, .truncated = !fell && ++steps_ >= most_steps};
  }

 private:
  void observe(std::span<float> observation) const {
    std::transform(state_.begin(), state_.end(), observation.begin(),
                   [](double value) { return static_cast<float>(value); });
  }

  std::array<double, 4> state_{};
  int steps_ = 0;
};

}  // namespace

std::variant<EnvironmentFactory, Failure> cartpole_factory() {
  return EnvironmentFactory{
      []() -> std::unique_ptr<Environment> { return std::make_unique<CartPole>(); }};
}

}  // namespace iswitch::rl
