// A rank of MPI; which transport it uses is mpirun's to say. Its report goes to a file of its own
// in a folder: mpirun mixes what ranks print, in pieces of 4 KiB.
//
// usage: collective-mpi LOADS FOLDER
#include <mpi.h>

#include "bench/collectives/rank.h"

int main(int argc, char** argv) {
  using namespace iswitch;
  MPI_Init(&argc, &argv);
  int number = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &number);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bench::RankOptions rank{static_cast<unsigned>(number), static_cast<unsigned>(size),
                          bench::parse_loads(argc > 1 ? argv[1] : "")};
  bench::Collective collective;
  collective.all_reduce = [](std::vector<float>& vector) {
    const int code = MPI_Allreduce(MPI_IN_PLACE, vector.data(), static_cast<int>(vector.size()),
                                   MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return code == MPI_SUCCESS ? std::string() : "MPI_Allreduce: " + std::to_string(code);
  };
  collective.barrier = [] {
    const int code = MPI_Barrier(MPI_COMM_WORLD);
    return code == MPI_SUCCESS ? std::string() : "MPI_Barrier: " + std::to_string(code);
  };
  const std::string report =
      std::string(argc > 2 ? argv[2] : ".") + "/rank-" + std::to_string(number) + ".json";
  if (std::freopen(report.c_str(), "w", stdout) == nullptr) {
    std::perror(report.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const int code = bench::run_rank(rank, collective);
  MPI_Finalize();
  return code;
}
