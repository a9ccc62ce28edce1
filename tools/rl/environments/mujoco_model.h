// Owns a MuJoCo model and its states. The only file that knows how models are loaded from text.
#pragma once

#include <mujoco/mujoco.h>

#include <memory>
#include <string_view>
#include <variant>

#include "tools/rl/core/failure.h"

namespace iswitch::rl {

struct DeleteMujoco {
  void operator()(mjModel* model) const { mj_deleteModel(model); }
  void operator()(mjData* data) const { mj_deleteData(data); }
};
using MujocoData = std::unique_ptr<mjData, DeleteMujoco>;
/// Read only once loaded: shared by all environments of a kind.
using MujocoModel = std::shared_ptr<const mjModel>;

/// Compiles MJCF text. `name` is for the failure's text.
std::variant<MujocoModel, Failure> load_mujoco_model(std::string_view name, std::string_view xml);

}  // namespace iswitch::rl
