// Work for EAL's interrupt thread.
#pragma once

#include <functional>

namespace iswitch::switchd {

/// Runs `work` on the interrupt thread, between two interrupts, and waits until it is done. Where
/// that thread does not come to it within some seconds, here.
void on_interrupt_thread(const std::function<void()>& work);

/// It does nothing any more from here on, until the process ends. EAL's cleanup takes its memory
/// away without asking it, and drivers leave handles registered with it.
void rest_interrupt_thread();

}  // namespace iswitch::switchd
