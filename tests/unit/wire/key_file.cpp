#include "wire/key_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace iswitch;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;

/// A folder of this test's own, gone at its end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "iswitch-key-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const std::string& content, unsigned mode = 0600) const {
    const fs::path path = path_ / "key";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    REQUIRE(chmod(path.c_str(), mode) == 0);
    return path.string();
  }
  std::string name(const char* what) const { return (path_ / what).string(); }

 private:
  fs::path path_;
};

std::string error_of(const std::string& path) {
  std::vector<std::uint8_t> key = {42};
  std::string error = wire::read_key_file(path, key);
  CHECK(error.find('\n') == std::string::npos);
  if (!error.empty()) CHECK(key == std::vector<std::uint8_t>{42});
  return error;
}

}  // namespace

TEST_CASE("a key is the file's bytes, nothing trimmed", "[key_file]") {
  const Folder folder;
  for (const std::size_t size : {16u, 17u, 1023u, 1024u}) {
    std::string content(size, 'k');
    content[3] = '\0';
    content.back() = '\n';
    std::vector<std::uint8_t> key;
    CHECK(wire::read_key_file(folder.file(content), key).empty());
    CHECK(key == std::vector<std::uint8_t>(content.begin(), content.end()));
  }
}

TEST_CASE("a key of another length is refused", "[key_file]") {
  const Folder folder;
  CHECK_THAT(error_of(folder.file("")), Contains("16 to 1024"));
  CHECK_THAT(error_of(folder.file(std::string(15, 'k'))), Contains("holds 15"));
  CHECK_THAT(error_of(folder.file(std::string(1025, 'k'))), Contains("holds more"));
  CHECK_THAT(error_of(folder.file(std::string(100000, 'k'))), Contains("holds more"));
}

TEST_CASE("a key file that group or others can read is refused", "[key_file]") {
  const Folder folder;
  const std::string content(32, 'k');
  for (const unsigned mode : {0600u, 0400u, 0700u})
    CHECK(error_of(folder.file(content, mode)).empty());
  for (const unsigned mode : {0640u, 0604u, 0644u, 0660u, 0666u})
    CHECK_THAT(error_of(folder.file(content, mode)), Contains("chmod 600"));
}

TEST_CASE("what is no regular file is refused, and a FIFO does not hang", "[key_file]") {
  const Folder folder;
  CHECK_THAT(error_of(folder.name("missing")), Contains("No such file"));
  CHECK_FALSE(error_of(folder.name(".")).empty());
  REQUIRE(mkfifo(folder.name("fifo").c_str(), 0600) == 0);
  CHECK_THAT(error_of(folder.name("fifo")), Contains("regular file"));
}
