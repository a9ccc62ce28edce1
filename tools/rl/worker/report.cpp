#include "tools/rl/worker/report.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace iswitch::rl {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_curve_points = 500;

Json to_json(const ProgressRow& row) {
  return {
      {"iteration", row.iteration},   {"updates", row.updates},       {"seconds", row.seconds},
      {"return", row.episode_return}, {"length", row.episode_length}, {"episodes", row.episodes},
      {"steps", row.steps},           {"compute_s", row.compute},     {"exchange_s", row.exchange},
      {"wait_s", row.wait},           {"exchanges", row.exchanges},   {"bytes", row.bytes}};
}

Failure cannot_write(const std::string& name) {
  return {FailureKind::machine, "cannot write " + name + ": " + std::strerror(errno)};
}

/// Every n-th row, and the last.
Json curve(const std::vector<ProgressRow>& rows) {
  Json points = Json::array();
  const std::size_t stride = rows.size() / most_curve_points + 1;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (i % stride == 0 || i + 1 == rows.size()) points.push_back(to_json(rows[i]));
  return points;
}

}  // namespace

Failure ProgressFile::open(const std::string& name) {
  if (name.empty()) return {};
  file_.reset(name == "-" ? stdout : std::fopen(name.c_str(), "w"));
  if (!file_) return cannot_write(name);
  return {};
}

void ProgressFile::write(const ProgressRow& row) {
  if (!file_) return;
  const std::string line = to_json(row).dump() + "\n";
  std::fwrite(line.data(), 1, line.size(), file_.get());
  std::fflush(file_.get());
}

Failure write_figures(const WorkerOptions& options, const RunFigures& figures) {
  if (options.figures_file.empty()) return {};
  const ProgressRow last = figures.rows.empty() ? ProgressRow{} : figures.rows.back();
  const double seconds = last.seconds > 0.0 ? last.seconds : 1.0;
  const Json document = {
      {"algorithm", options.algorithm},
      {"environment", options.environment},
      {"exchange", options.exchange},
      {"rank", figures.rank},
      {"size", figures.size},
      {"seed", options.seed},
      {"parameters", figures.parameters.all()},
      {"gradient_bytes", figures.gradient_bytes},
      {"generations", figures.generations},
      {"seconds", last.seconds},
      {"cpu_seconds", figures.cpu_seconds},
      {"iterations", last.iteration},
      {"updates", last.updates},
      {"updates_per_second", static_cast<double>(last.updates) / seconds},
      {"iterations_per_second", static_cast<double>(last.iteration) / seconds},
      {"steps", last.steps},
      {"episodes", last.episodes},
      {"return", last.episode_return},
      {"compute_share", last.compute / seconds},
      {"exchange_share", last.exchange / seconds},
      {"wait_share", last.wait / seconds},
      {"exchanged_bytes", last.bytes},
      {"exchange_details", Json::parse(figures.exchange_details, nullptr, false)},
      {"equal_weights", figures.equal_weights},
      {"weights_sha256", figures.weights_digest},
      {"curve", curve(figures.rows)}};
  std::ofstream file(options.figures_file);
  file << document.dump(1) << "\n";
  file.close();
  if (!file) return cannot_write(options.figures_file);
  return {};
}

std::string describe(const ProgressRow& row) {
  const double seconds = row.seconds > 0.0 ? row.seconds : 1.0;
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(),
                "%6.1f s  iteration %5llu  %6.1f updates/s  return %8.1f  length %6.1f  "
                "exchange %4.1f %% (of it waiting %4.1f %%)",
                row.seconds, static_cast<unsigned long long>(row.iteration),
                static_cast<double>(row.updates) / seconds, row.episode_return, row.episode_length,
                100.0 * row.exchange / seconds, 100.0 * row.wait / seconds);
  return line.data();
}

}  // namespace iswitch::rl
