// DPDK 22.11 counts interrupt handles of one's own as not yet stable.
#define ALLOW_EXPERIMENTAL_API
#include "switchd/dataplane/interrupts.h"

#include <rte_alarm.h>
#include <rte_interrupts.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <time.h>  // NOLINT(modernize-deprecated-headers): clock_gettime is POSIX
#include <unistd.h>

#include <cerrno>

namespace iswitch::switchd {
namespace {

constexpr time_t patience_seconds = 10;

struct Call {
  const std::function<void()>& work;
  sem_t done;
};

void carry_out(void* argument) {
  auto* const call = static_cast<Call*>(argument);
  call->work();
  sem_post(&call->done);
}

bool wait_for(sem_t& done) {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += patience_seconds;
  int outcome = 0;
  do {
    outcome = sem_clockwait(&done, CLOCK_MONOTONIC, &until);
  } while (outcome != 0 && errno == EINTR);
  return outcome == 0;
}

sem_t rests;

[[noreturn]] void rest(void* /*unused*/) {
  sem_post(&rests);
  while (true) pause();
}

}  // namespace

void on_interrupt_thread(const std::function<void()>& work) {
  Call call{work, {}};
  sem_init(&call.done, 0, 0);
  const bool set = rte_eal_alarm_set(1, &carry_out, &call) == 0;
  if (!set) {
    work();
  } else if (!wait_for(call.done)) {
    // Cancelled, it is run here; where it has begun after all, the cancelling waits for its end.
    if (rte_eal_alarm_cancel(&carry_out, &call) > 0) work();
  }
  sem_destroy(&call.done);
}

void rest_interrupt_thread() {
  // Not by an alarm: the cleanup would wait for its end.
  static rte_intr_handle* const handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  const int ready = eventfd(1, EFD_CLOEXEC);
  if (handle == nullptr || ready < 0) return;
  sem_init(&rests, 0, 0);
  if (rte_intr_fd_set(handle, ready) == 0 && rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) == 0 &&
      rte_intr_callback_register(handle, &rest, nullptr) == 0)
    static_cast<void>(wait_for(rests));
}

}  // namespace iswitch::switchd
