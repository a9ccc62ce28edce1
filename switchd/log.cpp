#include "switchd/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <string>

namespace iswitch::switchd {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::trace:
      return spdlog::level::trace;
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void start_log(LogLevel level) {
  auto logger = std::make_shared<spdlog::logger>("switchd",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  logger->set_level(spdlog_level(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

bool log_enabled(LogLevel level) {
  return spdlog::default_logger_raw()->should_log(spdlog_level(level));
}

void log_line(LogLevel level, std::string_view line) {
  std::string clean(line);
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  spdlog::default_logger_raw()->log(spdlog_level(level), clean);
}

void flush_log() { spdlog::default_logger_raw()->flush(); }

}  // namespace iswitch::switchd
