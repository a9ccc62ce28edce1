#include "agent/transport/dpdk_library.h"

#include <dlfcn.h>

#include <cstring>

namespace iswitch::agent {

namespace {

/// The folder of the file that this code is in: the shared library's, or the program's.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string file = info.dli_fname;
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? std::string() : file.substr(0, slash + 1);
}

/// Null, and `problem` with what the loader says of the last place.
void* load(std::string& problem) {
  const std::string beside = own_folder();
  const std::string places[] = {beside.empty() ? std::string() : beside + dpdk_library_name,
                                dpdk_library_name,
                                std::string(ISWITCH_LIBRARY_FOLDER "/") + dpdk_library_name};
  for (const std::string& place : places) {
    if (place.empty()) continue;
    // Never unloaded: DPDK's threads run in what it brings along.
    if (void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
      return library;
    }
    const char* said = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one a thread
    const std::string text = said == nullptr ? "no reason" : said;
    // A file that is there and cannot be loaded says more than one that is not.
    const bool absent =
        text.find(std::string(dpdk_library_name) + ": cannot open") == 0 ||
        text.find('/' + std::string(dpdk_library_name) + ": cannot open") != std::string::npos;
    if (problem.empty() || !absent) problem = text;
  }
  return nullptr;
}

}  // namespace

std::variant<std::unique_ptr<FrameDevice>, Error> open_dpdk_device(
    const FrameDeviceOptions& options) {
  std::string problem;
  void* const library = load(problem);
  if (library == nullptr) {
    return device_error("device '" + options.device + "' needs " + dpdk_library_name +
                        ", which cannot be loaded (" + problem +
                        "): install it with this library, and Debian's package dpdk");
  }
  const auto* const entry = static_cast<const DpdkEntry*>(dlsym(library, dpdk_entry_name));
  if (entry == nullptr || std::strcmp(entry->version, ISWITCH_VERSION) != 0) {
    return device_error(std::string(dpdk_library_name) +
                        " is not of the version of this library, " ISWITCH_VERSION
                        ": install both from one build");
  }
  return entry->open(options);
}

}  // namespace iswitch::agent
