#include "tools/rl/environments/hopper.h"

#include <algorithm>
#include <cmath>

#include "tools/rl/environments/mujoco_model.h"
#include "tools/rl/hopper_model.h"

namespace iswitch::rl {
namespace {

constexpr int physics_steps_per_action = 4;
constexpr int most_steps = 1000;
constexpr double start_noise = 0.005;
constexpr double control_cost = 0.001;
/// Of the torso above its height when standing, in m, and its pitch from upright, in rad.
constexpr double lowest = -0.45, most_pitch = 0.5;
/// A state beyond this comes from a simulation that has blown up.
constexpr double most_value = 100.0;

class Hopper final : public Environment {
 public:
  explicit Hopper(MujocoModel model) : model_(std::move(model)), data_(mj_makeData(model_.get())) {}

  std::vector<std::int64_t> observation_shape() const override { return {model_->nq + model_->nv}; }
  ActionSpace action_space() const override {
    return {.discrete = false, .size = static_cast<std::size_t>(model_->nu)};
  }

  void reset(Random& random, std::span<float> observation) override {
    mj_resetData(model_.get(), data_.get());
    for (double& value : positions()) value += random.uniform(-start_noise, start_noise);
    for (double& value : speeds()) value += random.uniform(-start_noise, start_noise);
    mj_forward(model_.get(), data_.get());
    steps_ = 0;
    observe(observation);
  }

  StepResult step(std::span<const float> action, std::span<float> observation) override {
    double effort = 0.0;
    for (std::size_t i = 0; i < action.size(); ++i) {
      const double torque = std::clamp(static_cast<double>(action[i]), -1.0, 1.0);
      data_->ctrl[i] = torque;
      effort += torque * torque;
    }
    const double before = positions()[0];
    for (int i = 0; i < physics_steps_per_action; ++i) mj_step(model_.get(), data_.get());
    const double seconds = model_->opt.timestep * physics_steps_per_action;
    const double speed = (positions()[0] - before) / seconds;
    observe(observation);
    const bool fell = !upright();
    const double reward = fell ? 0.0 : 1.0 + speed - control_cost * effort;
    return {.reward = static_cast<float>(reward),
            .terminated = fell,
            .truncated = !fell && ++steps_ >= most_steps};
  }

 private:
  std::span<double> positions() { return {data_->qpos, static_cast<std::size_t>(model_->nq)}; }
  std::span<double> speeds() { return {data_->qvel, static_cast<std::size_t>(model_->nv)}; }

  bool upright() {
    // x grows without bound as it hops on; everything else stays small in a sound simulation.
    const auto sound = [](double value) { return std::abs(value) < most_value; };
    const auto rest = positions().subspan(1);
    if (!std::isfinite(positions()[0]) || !std::all_of(rest.begin(), rest.end(), sound) ||
        !std::all_of(speeds().begin(), speeds().end(), sound))
      return false;
    return rest[0] > lowest && std::abs(rest[1]) < most_pitch;
  }

  void observe(std::span<float> observation) {
    const auto to_float = [](double value) {
      return std::isfinite(value) ? static_cast<float>(value) : 0.0F;
    };
    const auto middle =
        std::transform(positions().begin(), positions().end(), observation.begin(), to_float);
    std::transform(speeds().begin(), speeds().end(), middle, to_float);
  }

  MujocoModel model_;
  MujocoData data_;
  int steps_ = 0;
};

}  // namespace

std::variant<EnvironmentFactory, Failure> hopper_factory() {
  auto model = load_mujoco_model("hopper", hopper_model_xml);
  if (auto* failure = std::get_if<Failure>(&model)) return *failure;
  return EnvironmentFactory{
      [shared = std::get<MujocoModel>(model)]() -> std::unique_ptr<Environment> {
        return std::make_unique<Hopper>(shared);
      }};
}

}  // namespace iswitch::rl
