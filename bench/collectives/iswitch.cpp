// A rank whose gradients are summed by switchd.
#include <iswitch/agent.h>

#include <CLI/CLI.hpp>

#include "bench/collectives/rank.h"

int main(int argc, char** argv) {
  using namespace iswitch;
  bench::RankOptions rank;
  AgentOptions options;
  std::string loads;
  CLI::App app("one rank of bench/collectives: iSwitch");
  app.add_option("--rank", rank.rank)->required();
  app.add_option("--size", rank.size)->required();
  app.add_option("--loads", loads)->required();
  app.add_option("--switch", options.switch_address)->required();
  app.add_option("--job", options.job)->required();
  app.add_option("--device", options.device);
  app.add_option("--local-address", options.local_address);
  CLI11_PARSE(app, argc, argv);
  rank.loads = bench::parse_loads(loads);
  options.rank = static_cast<std::uint16_t>(rank.rank);
  auto joined = Agent::join(options);
  if (!joined) {
    std::fprintf(stderr, "rank %u: %s\n", rank.rank, joined.error().text.c_str());
    return 1;
  }
  Agent& agent = **joined;
  bench::Collective collective;
  collective.all_reduce = [&](std::vector<float>& vector) {
    return agent.all_reduce(vector, vector).wait().text;
  };
  collective.barrier = [&] { return agent.barrier().wait().text; };
  const int code = bench::run_rank(rank, collective);
  agent.leave();
  return code;
}
