// Seeds of the fuzz targets from the golden frames: write-seeds DIRECTORY STAMP makes
// DIRECTORY/frame (whole frames) and DIRECTORY/control (their UDP payloads).
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "golden/golden.h"

namespace {

namespace fs = std::filesystem;
using namespace iswitch;

void write_file(const fs::path& path, Bytes bytes) {
  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
}

void write_seeds(const fs::path& directory) {
  fs::create_directories(directory / "frame");
  fs::create_directories(directory / "control");
  for (const golden::Frame& frame : golden::wire_set().frames) {
    write_file(directory / "frame" / frame.name, frame.view());
    if (frame.bytes.size() > wire::encapsulation_bytes)
      write_file(directory / "control" / frame.name,
                 frame.view().subspan(wire::encapsulation_bytes));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: write-seeds DIRECTORY STAMP\n";
    return 2;
  }
  try {
    write_seeds(argv[1]);
    write_file(argv[2], {});
  } catch (const std::exception& error) {
    std::cerr << "write-seeds: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
