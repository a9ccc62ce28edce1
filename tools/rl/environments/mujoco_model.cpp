#include "tools/rl/environments/mujoco_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace iswitch::rl {

std::variant<MujocoModel, Failure> load_mujoco_model(std::string_view name, std::string_view xml) {
  constexpr const char* file = "model.xml";
  const auto files = std::make_unique<mjVFS>();  // two megabytes: not for the stack
  mj_defaultVFS(files.get());
  if (mj_makeEmptyFileVFS(files.get(), file, static_cast<int>(xml.size())) != 0)
    return Failure{FailureKind::machine,
                   "MuJoCo has no room for the model of " + std::string(name)};
  std::memcpy(files->filedata[mj_findFileVFS(files.get(), file)], xml.data(), xml.size());
  std::array<char, 1000> error{};
  mjModel* model = mj_loadXML(file, files.get(), error.data(), static_cast<int>(error.size()));
  mj_deleteVFS(files.get());
  if (model == nullptr) {
    std::string text(error.data());
    std::replace(text.begin(), text.end(), '\n', ' ');
    return Failure{FailureKind::machine,
                   "MuJoCo refuses the model of " + std::string(name) + ": " + text};
  }
  return MujocoModel(model, DeleteMujoco{});
}

}  // namespace iswitch::rl
