// The connection of a memif client: the local socket, the shared memory and the two rings in it.
#pragma once

#include <cstdint>
#include <string>

#include "agent/transport/memif_layout.h"
#include "wire/units.h"

namespace iswitch::agent::memif {

struct ChannelOptions {
  std::string socket;  ///< path; with `abstract_name` a name without a file
  bool abstract_name = false;
  std::uint32_t id = 0;  ///< of the server's interface
  std::string secret;
  unsigned log2_slots = 10;
  std::uint32_t buffer_bytes = 0;  ///< a multiple of 64, `headroom` not counted
  std::string name;                ///< ours, for the server's log
};

class Channel {
 public:
  /// Before the place at which the server writes into a buffer lent to it.
  static constexpr std::uint32_t headroom = 64;

  explicit Channel(ChannelOptions options);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Connects, taking `patience` at most. Empty when all is well, else why not.
  std::string connect(Time patience);
  void disconnect();
  bool connected() const { return connected_; }
  /// The last connect() found a server that did not want it.
  bool refused() const { return refused_; }
  /// Looks whether the server is still there; disconnects when it is not.
  void check();

  std::uint32_t slots() const { return 1u << options_.log2_slots; }
  std::uint32_t buffer_bytes() const { return options_.buffer_bytes; }
  Ring& to_server() const { return *reinterpret_cast<Ring*>(memory_); }
  Ring& to_client() const { return *reinterpret_cast<Ring*>(memory_ + ring_bytes()); }
  std::uint8_t* to_server_buffer(std::uint32_t slot) const { return buffer(slot); }
  /// After the headroom.
  std::uint8_t* to_client_buffer(std::uint32_t slot) const {
    return buffer(slots() + slot) + headroom;
  }
  /// Wakes a server that sleeps.
  void notify_server() const;
  /// Takes back what has made fd() readable.
  void clear_interrupt() const;
  /// Readable: the server has interrupted, or the connection has changed.
  int fd() const { return epoll_; }

 private:
  std::uint32_t ring_bytes() const;
  std::uint32_t stride() const { return options_.buffer_bytes + headroom; }
  std::uint8_t* buffer(std::uint32_t number) const {
    return memory_ + 2 * std::size_t{ring_bytes()} + std::size_t{number} * stride();
  }
  std::string open_socket();
  std::string make_memory();
  void fill_rings();
  std::string shake_hands(Time deadline);
  std::string send(const Message& message, int descriptor);
  std::string expect(Kind kind, Time deadline, Message& message);
  std::string exchange(Message message, int descriptor, Time deadline);

  ChannelOptions options_;
  int socket_ = -1;
  int memory_fd_ = -1;
  int to_server_event_ = -1;
  int to_client_event_ = -1;
  int epoll_ = -1;
  std::uint8_t* memory_ = nullptr;
  std::size_t memory_bytes_ = 0;
  bool connected_ = false;
  bool refused_ = false;
};

}  // namespace iswitch::agent::memif
