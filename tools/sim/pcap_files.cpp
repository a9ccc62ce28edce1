#include "tools/sim/pcap_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "switchd/admin/pcapng.h"

namespace iswitch::sim {

namespace pcapng = switchd::pcapng;

namespace {
constexpr std::uint64_t epoch = 1'800'000'000'000'000'000;  // of virtual time 0, as hosts see it
constexpr std::uint32_t snap = 65535;
constexpr std::size_t flush_bytes = 1 << 20;
}  // namespace

struct PcapFiles::File {
  std::string path;
  std::FILE* file = nullptr;
  std::string waiting;
  bool broken = false;
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (file != nullptr) std::fclose(file);
  }
  void flush() {
    if (std::fwrite(waiting.data(), 1, waiting.size(), file) != waiting.size()) broken = true;
    waiting.clear();
  }
};

PcapFiles::PcapFiles() = default;
PcapFiles::~PcapFiles() = default;

std::string PcapFiles::add(Run& run, std::size_t cable, const std::string& link,
                           const std::string& path) {
  auto file = std::make_unique<File>();
  file->path = path;
  file->file = std::fopen(path.c_str(), "wb");
  if (file->file == nullptr) return path + ": cannot be written: " + std::strerror(errno);
  pcapng::section_header(file->waiting, "iswitch-sim");
  pcapng::interface(file->waiting, link, snap);
  files_[cable] = std::move(file);
  run.tap(cable, *this);
  return {};
}

std::string PcapFiles::open(Run& run, const std::vector<std::string>& wanted) {
  const std::vector<std::string> cables = run.cables();
  files_.resize(cables.size());
  for (const std::string& item : wanted) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) {
      std::error_code error;
      std::filesystem::create_directories(item, error);
      if (error) return item + ": cannot be made: " + error.message();
      for (std::size_t i = 0; i < cables.size(); ++i) {
        std::string problem = add(run, i, cables[i], item + "/" + cables[i] + ".pcapng");
        if (!problem.empty()) return problem;
      }
      continue;
    }
    const std::string link = item.substr(0, equals);
    const auto found = std::find(cables.begin(), cables.end(), link);
    if (found == cables.end()) {
      return link +
             ": no such link; a link has the name of the worker or the switch at its lower end";
    }
    std::string problem =
        add(run, static_cast<std::size_t>(found - cables.begin()), link, item.substr(equals + 1));
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string PcapFiles::close() {
  for (auto& file : files_) {
    if (!file) continue;
    file->flush();
    const bool closed = std::fclose(std::exchange(file->file, nullptr)) == 0;
    if (!closed || file->broken) return file->path + ": could not be written whole";
  }
  return {};
}

// Directions are those of the cable's upper end: up comes in there.
void PcapFiles::crossed(Time at, unsigned tag, Bytes frame) {
  File& file = *files_[tag / 2];
  pcapng::Packet packet;
  packet.unix_nanoseconds = epoch + static_cast<std::uint64_t>(at);
  packet.direction =
      tag % 2 == 0 ? pcapng::PacketDirection::inbound : pcapng::PacketDirection::outbound;
  packet.original_bytes = static_cast<std::uint32_t>(frame.size());
  packet.bytes = frame;
  pcapng::packet(file.waiting, packet);
  if (file.waiting.size() >= flush_bytes) file.flush();
}

}  // namespace iswitch::sim
