// What every rank of bench/collectives does, whatever moves its gradients: fill, wait for the
// others, all-reduce (timed), verify; one JSON object at the end.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace iswitch::bench {

/// `repeats` all-reduces of a vector of `bytes`.
struct Load {
  std::size_t bytes = 0;
  unsigned repeats = 0;
};

struct RankOptions {
  unsigned rank = 0;
  unsigned size = 0;
  std::vector<Load> loads;
};

/// "4:200,4096:100": bytes (a multiple of 4) and repeats. Nothing where it is not that.
inline std::vector<Load> parse_loads(const std::string& text) {
  std::vector<Load> loads;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    Load load;
    char colon = 0;
    std::istringstream one(item);
    if (!(one >> load.bytes >> colon >> load.repeats) || colon != ':' || load.bytes == 0 ||
        load.bytes % 4 != 0 || load.repeats == 0)
      return {};
    loads.push_back(load);
  }
  return loads;
}

/// A failure as one line; empty: none.
struct Collective {
  /// Sums in place over all ranks.
  std::function<std::string(std::vector<float>&)> all_reduce;
  std::function<std::string()> barrier;
  /// Called before a vector of another size is used, and at the end with an empty one.
  std::function<std::string(std::vector<float>&)> use = [](std::vector<float>&) {
    return std::string();
  };
};

inline double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

/// Whole numbers, so that the sum is exact in any order; different in each repeat.
inline float element(std::size_t i, unsigned rank, unsigned repeat) {
  return static_cast<float>((i * 7 + rank * 13 + repeat * 29) % 97) - 48;
}

/// Exit code. Prints `{"loads": [{"bytes", "microseconds": [...], "cpu_seconds", "wrong"}]}`.
inline int run_rank(const RankOptions& options, const Collective& collective) {
  using Clock = std::chrono::steady_clock;
  const auto failed = [&](const std::string& error) {
    std::fprintf(stderr, "rank %u: %s\n", options.rank, error.c_str());
    return 1;
  };
  nlohmann::json loads = nlohmann::json::array();
  std::uint64_t wrong_in_all = 0;
  for (const Load& load : options.loads) {
    std::vector<float> vector(load.bytes / sizeof(float));
    if (const std::string error = collective.use(vector); !error.empty()) return failed(error);
    nlohmann::json times = nlohmann::json::array();
    double cpu = 0;
    std::uint64_t wrong = 0;
    constexpr unsigned warm_up = 2;
    for (unsigned repeat = 0; repeat < load.repeats + warm_up; ++repeat) {
      for (std::size_t i = 0; i < vector.size(); ++i) vector[i] = element(i, options.rank, repeat);
      if (const std::string error = collective.barrier(); !error.empty()) return failed(error);
      const double cpu_before = cpu_seconds();
      const auto begin = Clock::now();
      if (const std::string error = collective.all_reduce(vector); !error.empty())
        return failed(error);
      const auto end = Clock::now();
      if (repeat >= warm_up) {
        cpu += cpu_seconds() - cpu_before;
        times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
      }
      for (std::size_t i = 0; i < vector.size(); ++i) {
        float sum = 0;
        for (unsigned rank = 0; rank < options.size; ++rank) sum += element(i, rank, repeat);
        if (vector[i] != sum) ++wrong;
      }
    }
    wrong_in_all += wrong;
    loads.push_back(
        {{"bytes", load.bytes}, {"microseconds", times}, {"cpu_seconds", cpu}, {"wrong", wrong}});
  }
  std::vector<float> none;
  if (const std::string error = collective.use(none); !error.empty()) return failed(error);
  std::printf("%s\n", nlohmann::json({{"rank", options.rank}, {"loads", loads}}).dump().c_str());
  std::fflush(stdout);
  return wrong_in_all == 0 ? 0 : failed("wrong sums");
}

}  // namespace iswitch::bench
