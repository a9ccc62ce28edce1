// The daemon's log. spdlog stays behind this header: it compiles slowly.
//
// Levels: error and warning are for what an operator must act on (a port went away, buffers
// leaked); info tells what happened in the life of the daemon, and what traffic was refused, at a
// bounded rate (docs/counters.md); debug is for developers and for DPDK's own lines.
#pragma once

#include <string_view>

#include "switchd/config.h"
#include "switchd/text.h"

namespace iswitch::switchd {

/// stderr, until told otherwise at level info. Call before any thread exists.
void start_log(LogLevel level);
bool log_enabled(LogLevel level);
/// One line; control characters in it are replaced. May be called from any thread.
void log_line(LogLevel level, std::string_view line);
void flush_log();

template <class... Pieces>
void log(LogLevel level, const Pieces&... pieces) {
  if (log_enabled(level)) log_line(level, text(pieces...));
}

}  // namespace iswitch::switchd
