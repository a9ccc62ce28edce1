// Whether a child can run its job as its parent does (protocol.md section 6).
#pragma once

#include <string>

#include "switchd/control/control.h"

namespace iswitch::control {

/// What of the parent's job does not fit into what this switch's config says and its memory was
/// planned for: one line that names the difference and what to do; empty when all fits.
std::string misfit(const JobConfig& own, const wire::ReplyBody& parents, wire::Ipv4 parent);

/// The job as it is to be installed here, of a parent's that fits.
datapath::JobSpec fitted(const JobConfig& own, const wire::ReplyBody& parents);

/// What a refused Join means; `parents` says what the job is like there.
std::string refusal_text(const JobConfig& own, const wire::ReplyBody& parents, wire::Ipv4 parent);

}  // namespace iswitch::control
