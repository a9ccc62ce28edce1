#include "tools/sim/splitter.h"

#include <algorithm>
#include <utility>

#include "wire/frame.h"

namespace iswitch::sim {

void Splitter::handle(const Event& event) {
  const FrameRef frame = FrameRef::attach(event.object);
  ++arrived_;
  const Bytes bytes = frame.view();
  const auto addressed = [&](const Behind& behind) {
    const auto& mac = behind.host->spec().endpoint.mac.bytes;
    return bytes.size() >= wire::ethernet_bytes &&
           std::equal(mac.begin(), mac.end(), bytes.begin());
  };
  const auto give = [&](Behind& behind) {
    ++behind.given;
    Event copy = event;
    copy.handler = behind.host;
    copy.value = 0;
    copy.object = FrameRef(frame).detach();
    behind.host->handle(copy);
  };
  const auto found = std::find_if(hosts_.begin(), hosts_.end(), addressed);
  if (found != hosts_.end()) return give(*found);
  for (Behind& behind : hosts_) give(behind);
}

std::uint64_t Splitter::given(const HostNode& host) const {
  for (const Behind& behind : hosts_) {
    if (behind.host == &host) return behind.given;
  }
  return 0;
}

}  // namespace iswitch::sim
