#include "switchd/admin/metrics.h"

#ifdef ISWITCH_HAVE_PROMETHEUS

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <exception>
#include <mutex>
#include <vector>

#include "switchd/admin/counters.h"
#include "switchd/text.h"
#include "wire/control.h"

namespace iswitch::switchd {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

/// The latest copy of the numbers. publish() writes, the exporter's threads read.
class Board : public prometheus::Collectable {
 public:
  std::vector<MetricFamily> Collect() const override {
    const std::lock_guard lock(mutex_);
    return families_;
  }
  void set(std::vector<MetricFamily> families) {
    const std::lock_guard lock(mutex_);
    families_ = std::move(families);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<MetricFamily> families_;
};

ClientMetric sample(double value, std::vector<ClientMetric::Label> labels, MetricType type) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return metric;
}

MetricFamily family(std::string name, std::string help, MetricType type) {
  MetricFamily out;
  out.name = std::move(name);
  out.help = std::move(help);
  out.type = type;
  return out;
}

void add_ports(const Dataplane& dataplane, std::vector<MetricFamily>& out) {
  MetricFamily up = family("iswitch_port_up", "1 when the port's link is up", MetricType::Gauge);
  MetricFamily frames =
      family("iswitch_port_frames_total", "Frames of a port", MetricType::Counter);
  MetricFamily bytes = family("iswitch_port_bytes_total", "Bytes of a port", MetricType::Counter);
  for (std::size_t i = 0; i < dataplane.ports().size(); ++i) {
    const std::string& name = dataplane.ports()[i]->config().name;
    up.metric.push_back(
        sample(dataplane.link(i) == Link::up ? 1 : 0, {{"port", name}}, MetricType::Gauge));
    const auto add = [&](MetricFamily& to, const char* direction,
                         pipeline::Tally PortCounters::*counter) {
      to.metric.push_back(sample(static_cast<double>(port_sum(dataplane, i, counter)),
                                 {{"port", name}, {"direction", direction}}, MetricType::Counter));
    };
    add(frames, "rx", &PortCounters::rx_frames);
    add(frames, "tx", &PortCounters::tx_frames);
    add(bytes, "rx", &PortCounters::rx_bytes);
    add(bytes, "tx", &PortCounters::tx_bytes);
  }
  out.push_back(std::move(up));
  out.push_back(std::move(frames));
  out.push_back(std::move(bytes));
}

void add_jobs(const control::Control& control, std::vector<MetricFamily>& out) {
  MetricFamily running = family("iswitch_job_running", "1 when the job runs", MetricType::Gauge);
  MetricFamily members =
      family("iswitch_job_members", "Members that have joined", MetricType::Gauge);
  MetricFamily parent =
      family("iswitch_parent_up", "1 when the job's parent answers and runs it", MetricType::Gauge);
  for (const control::JobView& job : control.jobs()) {
    const std::string id = text(job.config.id);
    running.metric.push_back(
        sample(job.state == wire::JobState::running ? 1 : 0, {{"job", id}}, MetricType::Gauge));
    members.metric.push_back(
        sample(static_cast<double>(job.members.size()), {{"job", id}}, MetricType::Gauge));
    if (!job.parent) continue;
    const bool up = job.parent->state == control::ParentView::State::running;
    parent.metric.push_back(sample(up ? 1 : 0, {{"job", id}}, MetricType::Gauge));
  }
  if (!parent.metric.empty()) out.push_back(std::move(parent));
  out.push_back(std::move(running));
  out.push_back(std::move(members));
}

}  // namespace

struct Metrics::State {
  std::shared_ptr<Board> board = std::make_shared<Board>();
  std::unique_ptr<prometheus::Exposer> exposer;
};

Metrics::Metrics(std::unique_ptr<State> state) : state_(std::move(state)) {}
Metrics::~Metrics() = default;

std::unique_ptr<Metrics> Metrics::start(const Config& config, std::string& error) {
  if (config.metrics.empty()) return nullptr;
  auto state = std::make_unique<State>();
  try {
    state->exposer = std::make_unique<prometheus::Exposer>(config.metrics, 1);
  } catch (const std::exception& problem) {
    error = text("metrics endpoint ", config.metrics, ": ", problem.what(),
                 "; choose another admin.metrics or leave it out");
    return nullptr;
  }
  state->exposer->RegisterCollectable(state->board);
  return std::unique_ptr<Metrics>(new Metrics(std::move(state)));
}

void Metrics::publish(const Dataplane& dataplane, const control::Control& control,
                      const Captures& captures) {
  std::vector<MetricFamily> families;
  for (const CounterValue& counter : all_counters(dataplane, control.counters(), captures)) {
    MetricFamily out = family(text("iswitch_", counter.name, "_total"), "See docs/counters.md",
                              MetricType::Counter);
    out.metric.push_back(sample(static_cast<double>(counter.value), {}, MetricType::Counter));
    families.push_back(std::move(out));
  }
  add_ports(dataplane, families);
  add_jobs(control, families);
  state_->board->set(std::move(families));
}

}  // namespace iswitch::switchd

#else

namespace iswitch::switchd {

struct Metrics::State {};
Metrics::Metrics(std::unique_ptr<State> state) : state_(std::move(state)) {}
Metrics::~Metrics() = default;

std::unique_ptr<Metrics> Metrics::start(const Config& config, std::string& error) {
  if (!config.metrics.empty()) {
    error =
        "metrics endpoint: this switchd was built without prometheus-cpp; leave admin.metrics out";
  }
  return nullptr;
}

void Metrics::publish(const Dataplane& /*dataplane*/, const control::Control& /*control*/,
                      const Captures& /*captures*/) {}

}  // namespace iswitch::switchd

#endif
