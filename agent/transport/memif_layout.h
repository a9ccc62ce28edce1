// memif version 2: packet rings in memory that two processes share, set up over a local socket. The
// side that connects (the client) makes the memory. Layouts as on the wire, little-endian.
#pragma once

#include <array>
#include <cstdint>

namespace iswitch::agent::memif {

inline constexpr std::uint16_t version = 0x0200;
inline constexpr std::uint32_t ring_cookie = 0x3E31F20;
inline constexpr unsigned largest_log2_ring = 14;

enum class Kind : std::uint16_t {
  none = 0,
  ack = 1,
  hello = 2,
  init = 3,
  add_region = 4,
  add_ring = 5,
  connect = 6,
  connected = 7,
  disconnect = 8
};

#pragma pack(push, 1)
struct Hello {
  char name[32];
  std::uint16_t least_version, most_version;
  std::uint16_t most_regions;
  std::uint16_t most_server_rings, most_client_rings;
  std::uint8_t most_log2_ring;
};
struct Init {
  std::uint16_t version;
  std::uint32_t id;
  std::uint8_t mode;  ///< 0: Ethernet
  char secret[24];
  char name[32];
};
/// Comes with the memory's descriptor.
struct AddRegion {
  std::uint16_t index;
  std::uint64_t bytes;
};
/// Comes with an eventfd.
struct AddRing {
  std::uint16_t flags;  ///< 1: from the client to the server
  std::uint16_t index;
  std::uint16_t region;
  std::uint32_t offset;
  std::uint8_t log2_slots;
  std::uint16_t private_bytes;
};
struct Connect {
  char interface[32];
};
struct Disconnect {
  std::uint32_t code;
  char reason[96];
};
struct Message {
  Kind kind = Kind::none;
  union {
    Hello hello;
    Init init;
    AddRegion add_region;
    AddRing add_ring;
    Connect connect;
    Disconnect disconnect;
    std::array<std::uint8_t, 126> bytes{};
  };
};

/// A buffer; `next`: the frame goes on in the next slot.
struct Slot {
  static constexpr std::uint16_t next = 1;
  std::uint16_t flags;
  std::uint16_t region;
  std::uint32_t length;
  std::uint32_t offset;
  std::uint32_t metadata;
};
#pragma pack(pop)
static_assert(sizeof(Message) == 128 && sizeof(Slot) == 16 && sizeof(Hello) == 43 &&
              sizeof(Init) == 63 && sizeof(AddRegion) == 10 && sizeof(AddRing) == 13);

/// Followed by the slots. Client to server: the client advances `head` past the frames it has
/// written, the server `tail` past those it has read. Server to client: the client advances `head`
/// past the buffers it lends, the server `tail` past those it has filled.
struct Ring {
  static constexpr std::uint16_t no_interrupts = 1;
  alignas(64) std::uint32_t cookie;
  std::uint16_t flags;
  std::uint16_t head;
  alignas(64) std::uint16_t tail;

  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
};
static_assert(sizeof(Ring) == 128);

}  // namespace iswitch::agent::memif
