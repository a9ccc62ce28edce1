// DPDK 22.11 counts interrupt handles of one's own as not yet stable.
#define ALLOW_EXPERIMENTAL_API
#include "switchd/dataplane/interrupts.h"

#include <rte_alarm.h>
#include <rte_interrupts.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace iswitch::switchd {
namespace {

constexpr std::chrono::seconds patience{10};

/// What the interrupt thread has come to.
class Reached {
 public:
  void tell() {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, patience, [this] { return told_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool told_ = false;
};

struct Call {
  /// Written before the alarm is set and read behind it; EAL's locks are none that a sanitizer
  /// sees.
  std::atomic<const std::function<void()>*> work{nullptr};
  Reached end;
};

void carry_out(void* argument) {
  auto* const call = static_cast<Call*>(argument);
  (*call->work.load(std::memory_order_acquire))();
  call->end.tell();
}

[[noreturn]] void rest(void* reached) {
  static_cast<Reached*>(reached)->tell();
  while (true) pause();
}

}  // namespace

void on_interrupt_thread(const std::function<void()>& work) {
  Call call;
  call.work.store(&work, std::memory_order_release);
  if (rte_eal_alarm_set(1, &carry_out, &call) != 0) return work();
  if (call.end.wait()) return;
  // Cancelled, it is run here; where it has begun after all, the cancelling waits for its end.
  if (rte_eal_alarm_cancel(&carry_out, &call) > 0) work();
}

void rest_interrupt_thread() {
  // Not by an alarm: the cleanup would wait for its end. What the thread may look at stays.
  static rte_intr_handle* const handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  static Reached reached;
  const int ready = eventfd(1, EFD_CLOEXEC);
  if (handle == nullptr || ready < 0) return;
  if (rte_intr_fd_set(handle, ready) == 0 && rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) == 0 &&
      rte_intr_callback_register(handle, &rest, &reached) == 0)
    static_cast<void>(reached.wait());
}

}  // namespace iswitch::switchd
