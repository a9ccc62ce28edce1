#include "switchd/device.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <system_error>

namespace iswitch::switchd {
namespace {

constexpr std::uint32_t most_frames = 512;
constexpr std::uint32_t least_frames = 16;
// What the kernel puts before a frame in a PACKET_MMAP ring (struct tpacket2_hdr, sockaddr_ll,
// alignment, Ethernet header): 80 bytes up to the network header; and a VLAN tag.
constexpr std::uint32_t ring_overhead = 84;

bool is_hex(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isxdigit(static_cast<unsigned char>(c)) != 0;
  });
}

/// [dddd:]bb:dd.f with the domain put in, lower case; empty for anything else.
std::string pci_address(std::string_view text) {
  std::string whole(text);
  std::transform(whole.begin(), whole.end(), whole.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  if (std::count(whole.begin(), whole.end(), ':') == 1) whole.insert(0, "0000:");
  const bool right = whole.size() == 12 && is_hex(whole.substr(0, 4)) && whole[4] == ':' &&
                     is_hex(whole.substr(5, 2)) && whole[7] == ':' && is_hex(whole.substr(8, 2)) &&
                     whole[10] == '.' && whole[11] >= '0' && whole[11] <= '7';
  return right ? whole : std::string();
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

struct Geometry {
  std::uint32_t frame_bytes;
  std::uint32_t block_bytes;
};

/// Blocks are whole pages and hold whole frames.
Geometry geometry(std::uint32_t mtu) {
  const std::uint32_t least = mtu + ring_overhead;
  if (least <= 2048) return {2048, 4096};
  if (least <= 4096) return {4096, 4096};
  if (least <= 8192) return {8192, 8192};
  if (least <= 9216) return {9216, 36864};
  return {10240, 20480};
}

}  // namespace

std::optional<Device> Device::parse(std::string_view text) {
  if (text.empty() || text.size() > 255 || !is_printable(text)) return std::nullopt;
  Device device;
  std::size_t start = 0;
  for (bool first = true; start <= text.size(); first = false) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string_view piece = text.substr(start, end - start);
    if (piece.empty()) return std::nullopt;
    if (first) {
      const std::string pci = pci_address(piece);
      device.name = pci.empty() ? std::string(piece) : pci;
      if (pci.empty() && (std::isalpha(static_cast<unsigned char>(piece.front())) == 0 ||
                          piece.find_first_of(":=/.") != std::string_view::npos)) {
        return std::nullopt;
      }
    } else {
      const std::size_t equals = std::min(piece.find('='), piece.size());
      device.arguments.emplace_back(
          std::string(piece.substr(0, equals)),
          equals < piece.size() ? std::string(piece.substr(equals + 1)) : std::string());
    }
    start = end + 1;
  }
  const bool needs_interface = device.is("net_af_packet") || device.is("net_af_xdp");
  if (needs_interface && device.kernel_interface().empty()) return std::nullopt;
  return device;
}

bool Device::is_pci() const { return !pci_address(name).empty(); }

bool Device::is(std::string_view driver) const {
  if (name.compare(0, driver.size(), driver) != 0) return false;
  return name.size() == driver.size() || name[driver.size()] == '_' ||
         std::isdigit(static_cast<unsigned char>(name[driver.size()])) != 0;
}

const std::string* Device::argument(std::string_view key) const {
  const auto found = std::find_if(arguments.begin(), arguments.end(),
                                  [&](const auto& argument) { return argument.first == key; });
  return found == arguments.end() ? nullptr : &found->second;
}

std::uint32_t Device::queues(std::uint32_t lcores) const {
  const bool fixed = is("net_af_packet") || is("net_af_xdp");
  if (!fixed) return is_pci() || is("net_null") || is("net_ring") || is("net_tap") ? lcores : 1;
  const std::string* given = argument(is("net_af_packet") ? "qpairs" : "queue_count");
  std::uint32_t number = 1;
  if (given != nullptr) std::from_chars(given->data(), given->data() + given->size(), number);
  return std::clamp(number, 1u, 64u);
}

std::uint32_t Device::kept_buffers() const {
  // DPDK 22.11's net_af_xdp shares the pool with the kernel: fill ring, receive ring.
  return is("net_af_xdp") ? 2 * 2048 : 0;
}

std::uint32_t Device::largest_frame(std::uint32_t mtu) const {
  constexpr std::uint32_t ethernet_room = 18;  // header and a check sequence that some ports leave
  std::uint32_t bytes = mtu + ethernet_room;
  const std::string* ring_frame = argument("framesz");
  if (!is("net_af_packet") || ring_frame == nullptr) return bytes;
  std::uint32_t frame = 0;
  const auto* const end = ring_frame->data() + ring_frame->size();
  if (std::from_chars(ring_frame->data(), end, frame).ec == std::errc{} && frame <= 65536) {
    bytes = std::max(bytes, frame);
  }
  return bytes;
}

std::string Device::kernel_interface() const {
  if (!is("net_af_packet") && !is("net_af_xdp")) return {};
  const std::string* iface = argument("iface");
  return iface == nullptr ? std::string() : *iface;
}

std::vector<std::string> Device::identities() const {
  std::vector<std::string> out{name};
  const std::string iface = kernel_interface();
  if (!iface.empty()) out.push_back("interface " + iface);
  return out;
}

std::string Device::text() const {
  std::string out = name;
  for (const auto& [key, value] : arguments) {
    out += ',';
    out += key;
    if (!value.empty()) out += '=' + value;
  }
  return out;
}

std::uint64_t af_packet_least_bytes(std::uint32_t mtu) {
  const Geometry shape = geometry(mtu);
  return std::uint64_t{2} * least_frames * shape.frame_bytes;
}

std::optional<AfPacketRing> af_packet_ring(std::uint32_t mtu, std::uint64_t locked_bytes) {
  const Geometry shape = geometry(mtu);
  const std::uint64_t frames_per_block = shape.block_bytes / shape.frame_bytes;
  for (std::uint32_t frames = most_frames; frames >= least_frames; frames /= 2) {
    const std::uint64_t blocks = (frames + frames_per_block - 1) / frames_per_block;
    if (2 * blocks * shape.block_bytes <= locked_bytes) {
      return AfPacketRing{shape.frame_bytes, shape.block_bytes, frames};
    }
  }
  return std::nullopt;
}

void complete_af_packet(Device& device, const AfPacketRing& ring) {
  // The three belong together: a user who says one of them has thought about all.
  for (const char* key : {"framesz", "blocksz", "framecnt"}) {
    if (device.argument(key) != nullptr) return;
  }
  device.arguments.emplace_back("framesz", std::to_string(ring.frame_bytes));
  device.arguments.emplace_back("blocksz", std::to_string(ring.block_bytes));
  device.arguments.emplace_back("framecnt", std::to_string(ring.frames));
}

}  // namespace iswitch::switchd
