// What crossed links, as pcapng files: one a cable, both directions, in virtual time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/sim/run.h"

namespace iswitch::sim {

class PcapFiles final : public LinkTap {
 public:
  PcapFiles();
  ~PcapFiles();
  PcapFiles(const PcapFiles&) = delete;
  PcapFiles& operator=(const PcapFiles&) = delete;

  /// `wanted`: "LINK=FILE" or a directory for all links (made if it is not there). Before the run;
  /// an error is one line.
  std::string open(Run& run, const std::vector<std::string>& wanted);
  /// What is still in memory goes to the files; an error is one line.
  std::string close();

  void crossed(Time at, unsigned tag, Bytes frame) override;

 private:
  struct File;
  std::string add(Run& run, std::size_t cable, const std::string& link, const std::string& path);
  std::vector<std::unique_ptr<File>> files_;  // by cable; null: not wanted
};

}  // namespace iswitch::sim
