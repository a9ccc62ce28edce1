// A rank of Gloo over TCP.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <memory>

#include "bench/collectives/rank.h"

int main(int argc, char** argv) {
  using namespace iswitch;
  bench::RankOptions rank;
  std::string loads;
  std::string store;
  std::string address;
  std::string algorithm;
  CLI::App app("one rank of bench/collectives: Gloo");
  app.add_option("--rank", rank.rank)->required();
  app.add_option("--size", rank.size)->required();
  app.add_option("--loads", loads)->required();
  app.add_option("--store", store, "folder that all ranks see")->required();
  app.add_option("--address", address, "of this host")->required();
  app.add_option("--algorithm", algorithm)
      ->required()
      ->check(CLI::IsMember({"ring", "halving-doubling"}));
  CLI11_PARSE(app, argc, argv);
  rank.loads = bench::parse_loads(loads);
  try {
    gloo::transport::tcp::attr where;
    where.hostname = address;
    auto device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank.rank),
                                                               static_cast<int>(rank.size));
    gloo::rendezvous::FileStore files(store);
    context->connectFullMesh(files, device);

    std::unique_ptr<gloo::Algorithm> halving_doubling;
    const auto guarded = [](const auto& step) -> std::string {
      try {
        step();
        return {};
      } catch (const std::exception& error) {
        return error.what();
      }
    };
    bench::Collective collective;
    if (algorithm == "ring") {
      collective.all_reduce = [&](std::vector<float>& vector) {
        return guarded([&] {
          gloo::AllreduceOptions options(context);
          options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
          options.setOutput(vector.data(), vector.size());
          void (*add)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;
          options.setReduceFunction(add);
          gloo::allreduce(options);
        });
      };
    } else {
      collective.use = [&](std::vector<float>& vector) {
        return guarded([&] {
          halving_doubling.reset();
          if (vector.empty()) return;
          halving_doubling = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
              context, std::vector<float*>{vector.data()}, static_cast<int>(vector.size()));
        });
      };
      collective.all_reduce = [&](std::vector<float>&) {
        return guarded([&] { halving_doubling->run(); });
      };
    }
    collective.barrier = [&] {
      return guarded([&] {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
      });
    };
    return bench::run_rank(rank, collective);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %u: gloo: %s\n", rank.rank, error.what());
    return 1;
  }
}
