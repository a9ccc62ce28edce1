// What switchd answers, as tables for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace iswitch::switchctl {

std::string status_text(const nlohmann::json& reply);
std::string ports_text(const nlohmann::json& reply);
std::string jobs_text(const nlohmann::json& reply);
std::string members_text(const nlohmann::json& reply);
std::string slots_text(const nlohmann::json& reply);
/// Counters that are zero are left out unless `all`.
std::string counters_text(const nlohmann::json& reply, bool all);

}  // namespace iswitch::switchctl
