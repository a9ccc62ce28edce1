#include "tools/switchctl/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "switchd/admin/folders.h"

namespace iswitch::switchctl {
Connection::Connection(Connection&& other) noexcept
    : fd_(other.fd_), pending_(std::move(other.pending_)) {
  other.fd_ = -1;
}

Connection::~Connection() {
  if (fd_ >= 0) close(fd_);
}

bool Connection::open(const std::string& path, std::string& error) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    error = "the socket path " + path + " is longer than " +
            std::to_string(sizeof address.sun_path - 1) + " bytes";
    return false;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0 || connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int reason = errno;
    error = "no switchd answers at " + path + " (" + std::strerror(reason) + ")";
    error += reason == EACCES ? "; run as the daemon's user or as root"
                              : "; is it running? --socket names another place";
    return false;
  }
  return true;
}

bool Connection::wait(short events, int timeout_ms, std::string& error) const {
  pollfd entry{fd_, events, 0};
  const int ready = poll(&entry, 1, timeout_ms);
  if (ready > 0) return true;
  if (ready < 0 && errno == EINTR) return false;
  error = "switchd did not answer within " + std::to_string(timeout_ms) + " ms";
  return false;
}

std::optional<std::string> Connection::ask(std::string_view request, int timeout_ms,
                                           std::string& error) {
  std::string line(request);
  line += '\n';
  for (std::size_t sent = 0; sent < line.size();) {
    if (!wait(POLLOUT, timeout_ms, error)) return std::nullopt;
    const ssize_t n = send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
      error = std::string("the connection to switchd broke: ") + std::strerror(errno);
      return std::nullopt;
    }
    sent += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    if (const auto end = pending_.find('\n'); end != std::string::npos) {
      std::string reply = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return reply;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    if (!wait(POLLIN, static_cast<int>(std::max<long long>(left, 0)), error)) return std::nullopt;
    char buffer[65536];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
      error = "switchd closed the connection before it answered";
      return std::nullopt;
    }
    if (n > 0) pending_.append(buffer, static_cast<std::size_t>(n));
  }
}

bool Connection::read_stream(std::string& chunk, int timeout_ms, std::string& error) {
  chunk.clear();
  if (!pending_.empty()) {
    chunk.swap(pending_);
    return true;
  }
  pollfd entry{fd_, POLLIN, 0};
  if (poll(&entry, 1, timeout_ms) <= 0) return true;
  chunk.resize(1 << 16);
  const ssize_t n = recv(fd_, chunk.data(), chunk.size(), 0);
  chunk.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  if (n == 0) return false;
  if (n < 0 && errno != EINTR && errno != EAGAIN) {
    error = std::string("the connection to switchd broke: ") + std::strerror(errno);
    return false;
  }
  return true;
}

std::vector<std::string> sockets_found() {
  std::vector<std::string> found;
  for (const std::string& folder : switchd::default_admin_folders()) {
    std::error_code ignored;  // a folder that is not there or not ours simply has no sockets for us
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".sock") found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> socket_candidates(const std::string& name) {
  std::vector<std::string> candidates = switchd::default_admin_folders();
  for (std::string& folder : candidates) folder.append("/").append(name).append(".sock");
  return candidates;
}

}  // namespace iswitch::switchctl
