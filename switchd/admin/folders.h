// Where the admin socket lives when the config does not say (docs/admin.md).
#pragma once

#include <string>

namespace iswitch::switchd {

/// The first default folder that can be written to, made if need be; empty and a line in `error`
/// when there is none.
std::string usable_admin_folder(std::string& error);

}  // namespace iswitch::switchd
