// What workers of an asynchronous run ask each other, over TCP: how far one is, and its weights.
// Meant for a network that is trusted like the training itself: whoever reaches the port may read
// weights, nobody may write anything.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "tools/rl/core/failure.h"

namespace iswitch::rl {

struct PeerStatus {
  std::uint32_t rank = 0;
  std::uint32_t base_round = 0;  ///< that its weights follow, or for which it waits
  bool live = false;             ///< it has weights to give
  bool waiting = false;          ///< it looks for weights
  bool finished = false;         ///< it computes no gradients any more
  bool quiet = false;            ///< nor is any of its gradients under way
  bool settled = false;          ///< it would end with these numbers and weights
  std::uint64_t updates = 0;     ///< steps in its weights
  // Of one moment: which updates it has and, once it is quiet, the weights that come of them.
  std::array<std::uint8_t, 32> numbers{};
  std::array<std::uint8_t, 32> weights{};
  bool operator==(const PeerStatus&) const = default;
};

/// Answers the others. `status` and `snapshot` are called on its thread.
class PeerServer {
 public:
  struct Answers {
    std::function<PeerStatus()> status;
    std::function<std::vector<std::uint8_t>()> snapshot;  ///< empty: there is none now
  };
  /// Listens on "IPv4:port".
  static std::variant<std::unique_ptr<PeerServer>, Failure> listen(const std::string& address,
                                                                   Answers answers);
  ~PeerServer();
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;

 private:
  PeerServer(int listener, int wake, Answers answers);
  void run();
  void serve(int connection);

  int listener_, wake_;
  Answers answers_;
  std::thread thread_;
};

/// Nothing when it does not answer within `time`.
std::optional<PeerStatus> ask_status(const std::string& address, std::chrono::milliseconds time);
/// Likewise; empty when it has none to give now.
std::optional<std::vector<std::uint8_t>> ask_snapshot(const std::string& address,
                                                      std::chrono::milliseconds time);

/// Empty, or what is wrong with "IPv4:port".
std::string peer_address_problem(const std::string& address);

}  // namespace iswitch::rl
