// Where the admin socket lives when the config does not say (docs/admin.md): for the daemon, which
// makes it, and for switchctl, which looks for it.
#pragma once

#include <string>
#include <vector>

namespace iswitch::switchd {

/// The places in the order in which they are tried, whether they exist or not.
std::vector<std::string> default_admin_folders();

/// The first default folder that can be written to, made if need be; empty and a line in `error`
/// when there is none.
std::string usable_admin_folder(std::string& error);

}  // namespace iswitch::switchd
