// A rank that is in two jobs of one switch: one that fails at once when the switch is lost, and
// one that keeps what a restart without loss needs. It all-reduces in both by turns, in blocks.
#include <iswitch/agent.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/collectives/rank.h"

namespace {

using namespace iswitch;
using Clock = std::chrono::steady_clock;

struct Options {
  unsigned rank = 0, size = 0;
  std::string switch_address, local_address;
  std::vector<std::string> devices;  ///< empty, or one for each job
  std::size_t bytes = 0;
  unsigned blocks = 0, operations = 0;  ///< blocks of each kind, operations in a block
  bool swap = false;                    ///< the jobs of the two kinds
};

/// One of the two memberships, and what its operations took.
struct Kind {
  std::unique_ptr<Agent> agent;
  nlohmann::json microseconds = nlohmann::json::array();  ///< of each operation, block by block
  nlohmann::json cpu_seconds = nlohmann::json::array();   ///< of each block
};

/// Empty, or a line.
std::string run_block(const Options& options, Kind& kind, std::vector<float>& vector) {
  nlohmann::json times = nlohmann::json::array();
  double cpu = 0;
  // The first one finds the caches as the other kind left them, and does not count.
  for (unsigned i = 0; i <= options.operations; ++i) {
    for (std::size_t e = 0; e < vector.size(); ++e) vector[e] = bench::element(e, options.rank, i);
    if (const AgentError error = kind.agent->barrier().wait()) return error.text;
    const double cpu_before = bench::cpu_seconds();
    const auto begin = Clock::now();
    if (const AgentError error = kind.agent->all_reduce(vector, vector).wait()) return error.text;
    const auto end = Clock::now();
    if (i > 0) {
      cpu += bench::cpu_seconds() - cpu_before;
      times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    }
    for (std::size_t e = 0; e < vector.size(); ++e) {
      float sum = 0;
      for (unsigned rank = 0; rank < options.size; ++rank) sum += bench::element(e, rank, i);
      if (vector[e] != sum) return "a wrong sum";
    }
  }
  kind.microseconds.push_back(std::move(times));
  kind.cpu_seconds.push_back(cpu);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("one rank of bench/resume");
  app.add_option("--rank", options.rank)->required();
  app.add_option("--size", options.size)->required();
  app.add_option("--switch", options.switch_address)->required();
  app.add_option("--local-address", options.local_address);
  app.add_option("--device", options.devices);
  app.add_option("--bytes", options.bytes)->required()->check(CLI::PositiveNumber);
  app.add_option("--blocks", options.blocks)->required();
  app.add_option("--operations", options.operations)->required();
  app.add_flag("--swap", options.swap);
  CLI11_PARSE(app, argc, argv);
  const auto failed = [&](const std::string& error) {
    std::fprintf(stderr, "rank %u: %s\n", options.rank, error.c_str());
    return 1;
  };

  std::vector<float> vector(options.bytes / sizeof(float));
  Kind kinds[2];
  for (std::size_t i = 0; i < 2; ++i) {
    AgentOptions membership;
    membership.switch_address = options.switch_address;
    membership.local_address = options.local_address;
    if (i < options.devices.size()) membership.device = options.devices[i];
    membership.job = i == (options.swap ? 1U : 0U) ? 1 : 2;
    membership.rank = static_cast<std::uint16_t>(options.rank);
    if (i == 0) membership.resume_within = std::chrono::milliseconds(0);
    auto joined = Agent::join(membership);
    if (!joined) return failed(joined.error().text);
    kinds[i].agent = std::move(*joined);
  }
  for (unsigned block = 0; block < options.blocks; ++block) {
    for (const unsigned i : {block % 2, 1 - block % 2})
      if (const std::string error = run_block(options, kinds[i], vector); !error.empty())
        return failed(error);
  }
  nlohmann::json out = nlohmann::json::array();
  for (const Kind& kind : kinds)
    out.push_back({{"microseconds", kind.microseconds}, {"cpu_seconds", kind.cpu_seconds}});
  std::printf("%s\n", out.dump().c_str());
  for (Kind& kind : kinds) kind.agent->leave();
  return 0;
}
