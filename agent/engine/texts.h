// The one-line texts of errors: what happened, where, what to do.
#pragma once

#include <cstdint>
#include <string>

#include "agent/engine/engine.h"

namespace iswitch::agent::text {

/// "member 2", "members 2, 3 and this member (1)".
std::string members(wire::MemberMask mask, wire::MemberId self);

std::string join_failed(const EngineOptions& options, const std::string& problem);
std::string forming(const EngineOptions& options, unsigned members_now, unsigned members_expected);
std::string no_answer_to_join(const EngineOptions& options);
/// A Join that the switch refused. `problem`: what exactly does not fit, where that is known.
Error refusal(const EngineOptions& options, wire::Status status, const std::string& problem = {});
/// What a switch that finds all tags wrong lets one conclude.
std::string another_key();

/// "segment 17, round 42".
std::string slot(std::uint32_t segment, std::uint32_t round);

/// "1.5 s", "20 ms".
std::string duration(Time time);

}  // namespace iswitch::agent::text
