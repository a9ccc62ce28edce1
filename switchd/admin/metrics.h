// The Prometheus text endpoint, off by default (admin.metrics of the config). prometheus-cpp stays
// in the .cpp; without it a config that asks for the endpoint is refused.
#pragma once

#include <memory>
#include <string>

#include "switchd/admin/capture.h"
#include "switchd/config.h"
#include "switchd/control/control.h"
#include "switchd/dataplane/dataplane.h"

namespace iswitch::switchd {

class Metrics {
 public:
  /// Null without an error where the config does not ask for it.
  static std::unique_ptr<Metrics> start(const Config& config, std::string& error);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Control thread, now and then: what scrapes are answered with until the next call. The exporter
  /// has threads of its own, which only ever see this copy.
  void publish(const Dataplane& dataplane, const control::Control& control,
               const Captures& captures);

 private:
  struct State;
  explicit Metrics(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace iswitch::switchd
