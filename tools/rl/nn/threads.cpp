#include "tools/rl/nn/threads.h"

#include <ATen/Parallel.h>

/// There only where OpenBLAS is the BLAS in use; it has threads of its own that libtorch does not
/// know.
extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace iswitch::rl {

void use_one_thread() {
  at::set_num_threads(1);
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
}

}  // namespace iswitch::rl
