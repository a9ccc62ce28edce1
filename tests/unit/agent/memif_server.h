// The other end of memif, in the test's process: greets, takes the client's memory, and then does
// with the rings what the test says, right or wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/transport/memif_layout.h"

namespace iswitch::test {

using Frame = std::vector<std::uint8_t>;

class MemifServer {
 public:
  struct Options {
    std::uint32_t id = 0;
    std::string secret{};
    std::uint16_t version = agent::memif::version;
    unsigned most_log2_ring = 14;
    bool silent = false;  ///< accepts and says nothing
  };

  explicit MemifServer(Options options);
  MemifServer() : MemifServer(Options{}) {}
  ~MemifServer();
  MemifServer(const MemifServer&) = delete;
  MemifServer& operator=(const MemifServer&) = delete;

  const std::string& path() const { return path_; }
  /// Answers to clients, on a thread, until one is through with the handshake.
  void accept_one();
  /// Waits for that, for two seconds.
  bool connected();
  /// As when the switch ends.
  void drop();
  /// The client has closed its end, and nobody else has it.
  bool client_is_gone() const;

  /// What the client has sent next.
  std::optional<Frame> receive();
  /// False: the client has lent no buffer. In several pieces for more than one.
  bool send(const std::vector<Frame>& pieces);
  bool send(const Frame& frame) { return send(std::vector<Frame>{frame}); }
  /// The slot that the next frame goes into.
  agent::memif::Slot& next_slot();
  agent::memif::Ring& to_client();
  agent::memif::Ring& to_server();
  /// Frames that the client has sent and receive() has not taken.
  std::size_t waiting();
  /// Pages of the client's memory that nobody has used yet.
  std::size_t unused_pages() const;
  std::uint32_t slots() const { return 1u << log2_slots_; }

 private:
  void serve();
  void serve_one();
  std::uint8_t* at(std::uint32_t offset) { return memory_ + offset; }

  Options options_;
  std::string folder_, path_;
  int listener_ = -1;
  int client_ = -1;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> connected_{false};
  std::uint8_t* memory_ = nullptr;
  std::size_t memory_bytes_ = 0;
  int to_server_event_ = -1, to_client_event_ = -1;
  std::uint32_t to_server_at_ = 0, to_client_at_ = 0;
  unsigned log2_slots_ = 0;
  std::uint16_t read_ = 0;
};

}  // namespace iswitch::test
