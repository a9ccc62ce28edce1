#include "wire/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace iswitch::wire {

namespace {

class File {
 public:
  /// O_NONBLOCK: a FIFO must not hang the caller.
  explicit File(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

std::string cannot_read(int error) {
  return "cannot be read: " + std::generic_category().message(error);
}

std::string octal(unsigned mode) {
  std::string text = "0000";
  for (int digit = 3; digit >= 0; --digit, mode >>= 3)
    text[static_cast<std::size_t>(digit)] += mode & 7;
  return text;
}

}  // namespace

std::string read_key_file(const std::string& path, std::vector<std::uint8_t>& key) {
  const File file(path);
  struct stat status {};
  // The opened file is checked, not its name.
  if (file.fd() < 0 || fstat(file.fd(), &status) != 0) return cannot_read(errno);
  if (!S_ISREG(status.st_mode)) return "must be a regular file";
  const unsigned mode = status.st_mode & 07777u;
  if ((mode & 077) != 0) {
    return "has mode " + octal(mode) + " and must not be accessible by group or others: chmod 600";
  }
  std::array<std::uint8_t, max_key_bytes + 1> buffer{};
  std::size_t size = 0;
  while (size < buffer.size()) {
    const ssize_t count = read(file.fd(), buffer.data() + size, buffer.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot_read(errno);
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  if (size < min_key_bytes || size > max_key_bytes) {
    return "must hold " + std::to_string(min_key_bytes) + " to " + std::to_string(max_key_bytes) +
           " bytes and holds " + (size > max_key_bytes ? "more" : std::to_string(size));
  }
  key.assign(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(size));
  return {};
}

}  // namespace iswitch::wire
