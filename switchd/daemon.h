// The control thread: brings dataplane, control and admin up, carries messages between them, and
// takes everything down in order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "switchd/config.h"

namespace iswitch::switchd {

class Daemon {
 public:
  /// Null and one line in `error` when the machine does not allow it; then nothing is left behind.
  /// SIGTERM and SIGINT are blocked from here on and read by run(). `config` is kept.
  static std::unique_ptr<Daemon> start(const Config& config, std::string& error);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Until SIGTERM or SIGINT; then ends in order: agents told, rings drained, ports closed, pools
  /// checked. Empty when all of that went well, else one line.
  std::string run();

 private:
  struct State;
  explicit Daemon(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace iswitch::switchd
