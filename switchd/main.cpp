// switchd: a switch that sums gradients. Exit codes: 0 ended in order, 1 the machine does not allow
// it or the end was not in order, 2 the config or the command line is wrong.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "switchd/config.h"
#include "switchd/daemon.h"
#include "switchd/log.h"
#include "switchd/pipeline/kernels.h"
#include "switchd/version.h"

namespace {

using iswitch::JsonError;
using iswitch::switchd::Config;
using iswitch::switchd::Daemon;
using iswitch::switchd::LogLevel;

constexpr int ended_in_order = 0;
constexpr int machine_error = 1;
constexpr int config_error = 2;

int run(const Config& config) {
  if (!iswitch::pipeline::float_environment_is_right()) {
    log(LogLevel::error,
        "floating-point environment: sums must round to nearest and keep subnormals, but this "
        "process "
        "started otherwise; start switchd from a plain shell");
    return machine_error;
  }
  std::string error;
  const std::unique_ptr<Daemon> daemon = Daemon::start(config, error);
  if (daemon) error = daemon->run();
  if (error.empty()) return ended_in_order;
  log(LogLevel::error, error);
  return machine_error;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A switch that sums gradients and switches ordinary traffic.", "switchd");
  std::string path;
  bool check = false;
  std::string level;
  app.add_option("--config", path, "configuration file (JSON)")->required();
  app.add_flag("--check-config", check, "print every error in the configuration and end");
  app.set_version_flag("--version", std::string("switchd ") + iswitch::switchd::version);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? ended_in_order : config_error;
  }

  const auto loaded = iswitch::switchd::load_config(path);
  if (!loaded.ok()) {
    for (const JsonError& error : loaded.errors)
      std::fprintf(stderr, "%s: %s\n", path.c_str(), error.line().c_str());
    return config_error;
  }
  if (check) {
    std::printf("%s: right\n", path.c_str());
    return ended_in_order;
  }
  iswitch::switchd::start_log(loaded.value.log_level);
  return run(loaded.value);
}
