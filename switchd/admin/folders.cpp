#include "switchd/admin/folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

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

std::string usable_admin_folder(std::string& error) {
  if (std::string folder = "/run/iswitch"; usable(folder, 0755)) return folder;
  const char* user = std::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe)
  if (user != nullptr && *user == '/') {
    if (std::string folder = text(user, "/iswitch"); usable(folder, 0700)) return folder;
  }
  std::string folder = text("/tmp/iswitch-", geteuid());
  if (usable(folder, 0700) && is_private(folder)) return folder;
  error = text(
      "no folder for the admin socket: /run/iswitch and XDG_RUNTIME_DIR are not writable, and ",
      folder, " is not a private folder of this user; set admin.socket");
  return {};
}

}  // namespace iswitch::switchd
