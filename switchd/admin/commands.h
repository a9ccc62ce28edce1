// What a request line on the admin socket means (docs/admin.md). The control thread's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "switchd/admin/capture.h"
#include "switchd/admin/server.h"
#include "switchd/config.h"
#include "switchd/control/control.h"
#include "switchd/dataplane/dataplane.h"

namespace iswitch::switchd {

/// What commands look at and act on; all of it outlives them.
struct AdminParts {
  const Config& config;
  Dataplane& dataplane;
  control::Control& control;
  Captures& captures;
  const std::vector<unsigned>& busy_percent;  ///< by lcore, of the last second
  Time started_at = 0;
  /// Carries out what a call of control wants done.
  std::function<void(control::Effects&)> carry_out;
  /// Ends the daemon in order; it comes back, or another one in its place.
  std::function<void()> pause;
};

class Commands {
 public:
  explicit Commands(AdminParts parts);
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  void handle(AdminServer::ClientId client, const std::string& line,
              const AdminServer::Respond& respond);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace iswitch::switchd
