#include "switchd/pipeline/notices.h"

namespace iswitch::pipeline {

void Notices::tell(Admission& job, const datapath::Notice& notice, Time now) {
  give(job.told[static_cast<std::size_t>(notice.kind)][notice.member], notice, now);
}

void Notices::tell_stranger(const datapath::Notice& notice, Time now) {
  // The MAC is left out: it is no part of who a member is.
  std::uint64_t key = std::uint64_t{notice.source.ip.value} << 32 |
                      std::uint64_t{notice.source.udp_port} << 16 | notice.job;
  key ^= std::uint64_t{notice.ingress} << 24;
  const std::uint64_t hash = key * 0x9E37'79B9'7F4A'7C15u;
  static_assert(std::tuple_size_v<decltype(sources_)> == 1u << 8);
  give(sources_[hash >> (64 - 8)], notice, now);
}

void Notices::give(Time& last, const datapath::Notice& notice, Time now) {
  if (now - last < interval || count_ == pending_.size()) {
    counters_.add(Counter::notice_coalesced);
    return;
  }
  last = now;
  pending_[count_++] = notice;
  counters_.add(Counter::notice_sent);
}

}  // namespace iswitch::pipeline
