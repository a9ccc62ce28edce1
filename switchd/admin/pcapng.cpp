#include "switchd/admin/pcapng.h"

#include <cstring>
#include <type_traits>

namespace iswitch::switchd::pcapng {
namespace {

// Readers tell the writer's byte order from the section header's magic, so this machine's order
// does.
template <class T>
void put(std::string& out, T value) {
  static_assert(std::is_integral_v<T>);
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void pad(std::string& out, std::size_t size) { out.append((4 - size % 4) % 4, '\0'); }

void option(std::string& out, std::uint16_t code, std::string_view value) {
  put<std::uint16_t>(out, code);
  put<std::uint16_t>(out, static_cast<std::uint16_t>(value.size()));
  out += value;
  pad(out, value.size());
}

template <class T>
void number_option(std::string& out, std::uint16_t code, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  option(out, code, {bytes, sizeof value});
}

void end_of_options(std::string& out) { put<std::uint32_t>(out, 0); }

void time(std::string& out, std::uint64_t unix_nanoseconds) {
  put(out, static_cast<std::uint32_t>(unix_nanoseconds >> 32));
  put(out, static_cast<std::uint32_t>(unix_nanoseconds));
}

/// A block's length stands at both of its ends.
class Block {
 public:
  Block(std::string& out, std::uint32_t type) : out_(out), start_(out.size()) {
    put(out_, type);
    put<std::uint32_t>(out_, 0);
  }
  ~Block() {
    const auto length = static_cast<std::uint32_t>(out_.size() + 4 - start_);
    put(out_, length);
    std::memcpy(out_.data() + start_ + 4, &length, sizeof length);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  std::string& out_;
  std::size_t start_;
};

}  // namespace

void section_header(std::string& out, std::string_view application) {
  const Block block(out, 0x0A0D0D0A);
  put<std::uint32_t>(out, 0x1A2B3C4D);
  put<std::uint16_t>(out, 1);
  put<std::uint16_t>(out, 0);
  put<std::int64_t>(out, -1);   // length unknown
  option(out, 4, application);  // shb_userappl
  end_of_options(out);
}

void interface(std::string& out, std::string_view name, std::uint32_t snap) {
  const Block block(out, 1);
  put<std::uint16_t>(out, 1);  // LINKTYPE_ETHERNET
  put<std::uint16_t>(out, 0);
  put<std::uint32_t>(out, snap);
  option(out, 2, name);                    // if_name
  number_option(out, 9, std::uint8_t{9});  // if_tsresol: 10^-9 s
  end_of_options(out);
}

void packet(std::string& out, const Packet& packet) {
  const Block block(out, 6);
  put(out, packet.interface);
  time(out, packet.unix_nanoseconds);
  put(out, static_cast<std::uint32_t>(packet.bytes.size()));
  put(out, packet.original_bytes);
  out.append(reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size());
  pad(out, packet.bytes.size());
  number_option(out, 2, static_cast<std::uint32_t>(packet.direction));  // epb_flags
  end_of_options(out);
}

void statistics(std::string& out, const Statistics& statistics) {
  const Block block(out, 5);
  put(out, statistics.interface);
  time(out, statistics.unix_nanoseconds);
  number_option(out, 4, statistics.seen);     // isb_ifrecv
  number_option(out, 5, statistics.dropped);  // isb_ifdrop
  end_of_options(out);
}

}  // namespace iswitch::switchd::pcapng
