#include "switchd/admin/folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

const std::string system_folder = "/run/iswitch";

std::optional<std::string> session_folder() {
  const char* user = std::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe)
  if (user == nullptr || *user != '/') return std::nullopt;
  return text(user, "/iswitch");
}

std::string user_folder() { return text("/tmp/iswitch-", geteuid()); }

bool usable(const std::string& folder, mode_t mode) {
  mkdir(folder.c_str(), mode);
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         access(folder.c_str(), W_OK | X_OK) == 0;
}

/// Ours alone: somebody else could put another socket there.
bool is_private(const std::string& folder) {
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && status.st_uid == geteuid() &&
         (status.st_mode & 077) == 0;
}

}  // namespace

std::vector<std::string> default_admin_folders() {
  std::vector<std::string> folders{system_folder};
  if (auto session = session_folder()) folders.push_back(std::move(*session));
  folders.push_back(user_folder());
  return folders;
}

std::string usable_admin_folder(std::string& error) {
  if (usable(system_folder, 0755)) return system_folder;
  if (auto session = session_folder(); session && usable(*session, 0700)) return *session;
  std::string folder = user_folder();
  if (usable(folder, 0700) && is_private(folder)) return folder;
  error = text(
      "no folder for the admin socket: /run/iswitch and XDG_RUNTIME_DIR are not writable, and ",
      folder, " is not a private folder of this user; set admin.socket");
  return {};
}

}  // namespace iswitch::switchd
