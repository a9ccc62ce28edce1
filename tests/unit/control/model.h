// What a job's membership must be, written a second time and plainly: no orders, no waiting.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "tests/unit/control/harness.h"

namespace control_test {

using PlaceKey = std::tuple<std::uint32_t, std::uint16_t, datapath::PortId>;
inline PlaceKey place_key(const Client& client) {
  return {client.endpoint.ip.value, client.endpoint.udp_port, client.ingress};
}
inline PlaceKey place_key(const Sent& sent) {
  return {sent.to.ip.value, sent.to.udp_port, sent.port};
}

class Model {
 public:
  explicit Model(const JobConfig& config) : config_(config) {}

  struct Row {
    PlaceKey place;
    std::uint32_t incarnation = 0;
    Time last_heard = 0;
  };
  struct Request {
    wire::ControlHeader header;
    wire::JoinBody join;
    std::uint16_t threshold = 0;
    bool slot_complete = false;  ///< FBcast: what the datapath will find
  };
  /// What must happen to a request that arrives.
  struct Verdict {
    bool fresh = false;     ///< done, and answered with `status` sooner or later
    bool absorbed = false;  ///< nothing comes of it now
    Status status = Status::ok;
    bool resets = false;  ///< the answer's base_round is newer than the one of now
  };
  Verdict receive(const PlaceKey& from, const Request& request, Time now);
  void replied(const PlaceKey& from, const wire::ControlHeader& header, Status status);
  void heard(const PlaceKey& from, Time now);
  void evict(MemberId id);
  void tick(Time now);

  std::optional<MemberId> id_at(const PlaceKey& place) const;

  std::map<MemberId, Row> rows;
  bool formed = false;
  bool halted = false;
  std::uint16_t threshold = 0;
  std::uint64_t clearings = 0;  ///< times that its slots may have had to be cleared

 private:
  struct Last {
    wire::ControlHeader header;
    std::optional<Status> answered;
  };
  Verdict join(const PlaceKey& from, const wire::JoinBody& body, Time now);
  std::optional<MemberId> free_or_silent(MemberId wanted, Time now) const;
  void remove(MemberId id);

  JobConfig config_;
  std::map<PlaceKey, Last> last_;
};

}  // namespace control_test
