// How whoever waits for a transport that polls spends the time until something comes. Pure: time
// comes in.
//
// A look costs less than a tenth of a microsecond, offering the core (sched_yield) one, and
// sleeping until the switch interrupts some ten with the waking. What is best depends on who else
// wants the core:
//
//  - nobody: looking again and again sees a result first;
//  - those that are waited for, since there are fewer cores than workers and switches: each
//    microsecond of looking is one that they wait. They get the core soonest by being offered it,
//    and give it back likewise;
//  - somebody in another group of processes (a container, a service, a session): the kernel shares
//    the core among groups first, and an offer within one's own changes nothing for the others.
//    Only sleeping does. So it does when somebody computes on the core for long: whoever sleeps and
//    is woken goes first then, whoever has offered the core waits until its time slice is over.
//
// How long an offer takes tells the first case from the second, and how waits end tells the third:
// the time of one's own that a wait may cost before it becomes a sleep grows while waits end within
// it, and goes to nothing while they do not. Now and then it is tried again.
#pragma once

#include "wire/units.h"

namespace iswitch::agent {

class Patience {
 public:
  enum class Next : std::uint8_t { look, offer, sleep };

  /// The most that a wait costs before it is a sleep: own time, and all of it.
  static constexpr Time most_own = 50 * microsecond;
  static constexpr Time most = 2 * millisecond;
  /// Looks that go before an offer where nobody took the last ones.
  static constexpr Time between_offers = 4 * microsecond;

  /// Something has come, or something that will be answered was sent.
  void begin(Time now);
  /// A look has found nothing.
  Next after_look(Time now);
  /// The core was offered, and came back so much later.
  void offered(Time took);
  /// A look has found something. Begins the next wait.
  void found(Time now);

 private:
  /// Offers that come back later were taken: there and back takes longer than asking the kernel.
  static constexpr Time taken_from = 2'500;
  /// Whoever had the core for so long did not wait for us.
  static constexpr Time computes_from = 500 * microsecond;
  /// Own time that is not worth a system call.
  static constexpr Time least_own = microsecond;
  static constexpr unsigned alone_after = 16;  // offers that nobody took
  static constexpr unsigned trial_every = 64;  // sleeps

  void learn(bool in_time);

  Time own_ = most_own;  // what a wait may cost now
  unsigned sleeps_ = 0;
  unsigned untaken_ = 0;

  // The present wait.
  Time began_ = 0;
  Time others_ = 0;  // what others took of it
  Time offer_at_ = 0;
  bool waits_ = false;  // a look has found nothing
  bool slept_ = false;
  bool computed_ = false;  // somebody did
};

}  // namespace iswitch::agent
