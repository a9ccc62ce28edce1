// The tasks themselves: physics that hold, episodes that end, nothing random but the seed.
#include <mujoco/mujoco.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tools/rl/environments/environment_set.h"
#include "tools/rl/environments/mujoco_model.h"
#include "tools/rl/environments/registry.h"
#include "tools/rl/hopper_model.h"

using namespace iswitch::rl;

namespace {

EnvironmentFactory factory(const char* name) {
  auto made = environment_factory(name);
  REQUIRE(std::holds_alternative<EnvironmentFactory>(made));
  return std::get<EnvironmentFactory>(made);
}

struct Model {
  MujocoModel shared;
  MujocoData data;

  Model() {
    auto loaded = load_mujoco_model("hopper", hopper_model_xml);
    REQUIRE(std::holds_alternative<MujocoModel>(loaded));
    shared = std::get<MujocoModel>(loaded);
    data.reset(mj_makeData(shared.get()));
  }
};

}  // namespace

TEST_CASE("hopper: 12 observations, 3 actions") {
  const auto hopper = factory("hopper")();
  CHECK(hopper->observation_shape() == std::vector<std::int64_t>{12});
  CHECK(hopper->action_space().size == 3);
  CHECK_FALSE(hopper->action_space().discrete);
}

TEST_CASE("hopper falls freely with the acceleration of gravity") {
  Model model;
  mjData& data = *model.data;
  data.qpos[1] = 5.0;
  mj_forward(model.shared.get(), &data);
  const double top = data.subtree_com[2];
  const double seconds = 0.4;
  while (data.time < seconds - 1e-9) mj_step(model.shared.get(), &data);
  mj_forward(model.shared.get(), &data);
  CHECK(top - data.subtree_com[2] == Approx(0.5 * 9.81 * data.time * data.time).epsilon(0.02));
  CHECK(mj_getTotalmass(model.shared.get()) > 5.0);
  CHECK(mj_getTotalmass(model.shared.get()) < 30.0);
}

TEST_CASE("hopper without torque loses energy and comes to rest above the floor") {
  Model model;
  const std::unique_ptr<mjModel, DeleteMujoco> counting(mj_copyModel(nullptr, model.shared.get()));
  counting->opt.enableflags |= mjENBL_ENERGY;
  mjData& data = *model.data;
  data.qpos[1] = 0.3;
  data.qpos[2] = 0.1;
  mj_forward(counting.get(), &data);
  const double start = data.energy[0] + data.energy[1];
  double most = start;
  while (data.time < 6.0) {
    mj_step(counting.get(), &data);
    most = std::max(most, data.energy[0] + data.energy[1]);
  }
  CHECK(most < start + 0.02 * std::abs(start));
  CHECK(data.energy[0] + data.energy[1] < 0.5 * start);
  CHECK(std::abs(data.energy[1]) < 1.0);  // at rest
  for (int body = 1; body < counting->nbody; ++body) CHECK(data.xipos[3 * body + 2] > 0.0);
}

TEST_CASE("hopper: a fall ends the episode and earns nothing for that step") {
  const auto hopper = factory("hopper")();
  Random random(1, 0, 0);
  std::vector<float> seen(12);
  hopper->reset(random, seen);
  CHECK(std::abs(seen[1]) < 0.01F);
  const std::vector<float> bend{1.0F, -1.0F, 0.0F};
  int steps = 0;
  StepResult result;
  while (!result.terminated && !result.truncated) {
    result = hopper->step(bend, seen);
    ++steps;
    for (const float value : seen) CHECK(std::isfinite(value));
  }
  CHECK(result.terminated);
  CHECK_FALSE(result.truncated);
  CHECK(result.reward == 0.0F);
  CHECK(steps > 3);
  CHECK(steps < 200);
  CHECK((seen[1] < -0.4F || std::abs(seen[2]) > 0.4F));
}

TEST_CASE("hopper: the same seed gives the same episode, actions out of range are clipped") {
  const auto play = [](std::uint64_t seed, float huge) {
    const auto hopper = factory("hopper")();
    Random random(seed, 0, 0), noise(seed, 1, 0);
    std::vector<float> seen(12), all;
    hopper->reset(random, seen);
    for (int step = 0; step < 30; ++step) {
      const std::vector<float> action{static_cast<float>(noise.uniform(-1, 1)), huge, -huge};
      const StepResult result = hopper->step(action, seen);
      all.insert(all.end(), seen.begin(), seen.end());
      all.push_back(result.reward);
    }
    return all;
  };
  CHECK(play(3, 1.0F) == play(3, 1.0F));
  CHECK(play(3, 1.0F) == play(3, std::numeric_limits<float>::infinity()));
  CHECK(play(3, 1.0F) != play(4, 1.0F));
}

TEST_CASE("cartpole: a sensible hand holds the pole up to the time limit, none lets it fall") {
  const auto pole = factory("cartpole")();
  Random random(1, 0, 0);
  std::vector<float> seen(4);
  const auto play = [&](auto hand) {
    pole->reset(random, seen);
    for (int step = 1;; ++step) {
      const std::vector<float> action{hand() ? 1.0F : 0.0F};
      const StepResult result = pole->step(action, seen);
      if (result.truncated) CHECK(step == 500);
      if (result.terminated || result.truncated) return step;
    }
  };
  CHECK(play([&] { return seen[2] + 0.5F * seen[3] + 0.05F * seen[0] + 0.1F * seen[1] > 0.0F; }) ==
        500);
  CHECK(play([] { return true; }) < 20);
}

TEST_CASE("an environment set: what an environment does does not depend on who has it") {
  const auto make = factory("hopper");
  EnvironmentSet both(make, 4, 2, 7), second(make, 5, 1, 7);
  std::vector<float> actions(6);
  std::size_t episodes = 0;
  for (int step = 0; step < 200; ++step) {
    for (std::size_t i = 0; i < 3; ++i) actions[i] = static_cast<float>(both.noise(0).normal());
    for (std::size_t i = 3; i < 6; ++i) actions[i] = static_cast<float>(both.noise(1).normal());
    std::vector<float> own(3);
    for (float& value : own) value = static_cast<float>(second.noise(0).normal());
    REQUIRE(std::equal(own.begin(), own.end(), actions.begin() + 3));
    both.step(actions);
    second.step(own);
    const auto seen = both.observations().subspan(12);
    REQUIRE(std::equal(seen.begin(), seen.end(), second.observations().begin()));
  }
  const auto finished = second.take_finished();
  CHECK(finished.size() > 1);
  for (const FinishedEpisode& episode : finished) episodes += episode.steps;
  CHECK(episodes <= 200);
  CHECK(both.take_finished().size() >= finished.size());
  CHECK(both.take_finished().empty());
}

TEST_CASE("an unknown environment and a model that is none are refused in one line") {
  auto unknown = environment_factory("hoper");
  REQUIRE(std::holds_alternative<Failure>(unknown));
  CHECK(std::get<Failure>(unknown).kind == FailureKind::usage);
  auto broken =
      load_mujoco_model("broken", "<mujoco><worldbody><geom size=\"-1\"/></worldbody></mujoco>");
  REQUIRE(std::holds_alternative<Failure>(broken));
  CHECK(std::get<Failure>(broken).text.find('\n') == std::string::npos);
  CHECK(std::get<Failure>(broken).text.find("broken") != std::string::npos);
}
