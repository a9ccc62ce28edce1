#include "agent/patience.h"

#include <algorithm>

namespace iswitch::agent {

void Patience::begin(Time now) {
  began_ = now;
  others_ = 0;
  offer_at_ = untaken_ >= alone_after ? now + between_offers : now;
  waits_ = slept_ = computed_ = false;
}

Patience::Next Patience::after_look(Time now) {
  waits_ = true;
  if (slept_ || now - began_ - others_ >= own_ || now - began_ >= most) {
    slept_ = true;
    return Next::sleep;
  }
  if (now < offer_at_) return Next::look;
  offer_at_ = untaken_ >= alone_after ? now + between_offers : now;
  return Next::offer;
}

void Patience::offered(Time took) {
  if (took < taken_from) {
    untaken_ = std::min(untaken_ + 1, alone_after);
    return;
  }
  untaken_ = 0;
  others_ += took;
  if (took >= computes_from) computed_ = true;
}

void Patience::found(Time now) {
  if (waits_) learn(!slept_ && !computed_);
  begin(now);
}

void Patience::learn(bool in_time) {
  if (in_time) {
    own_ = std::min(most_own, own_ + most_own / 8);
    return;
  }
  own_ = ++sleeps_ % trial_every == 0 ? most_own : own_ / 2;
  if (own_ < least_own) own_ = 0;
}

}  // namespace iswitch::agent
