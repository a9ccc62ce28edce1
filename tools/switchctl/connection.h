// The client's end of the admin socket (docs/admin.md): one line out, one line in, each with a
// deadline.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace iswitch::switchctl {

class Connection {
 public:
  Connection() = default;
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&&) = delete;
  ~Connection();

  /// `error` is one line when it fails.
  bool open(const std::string& path, std::string& error);
  /// Sends `request` and a newline and gives the reply line without its newline.
  std::optional<std::string> ask(std::string_view request, int timeout_ms, std::string& error);
  /// After a reply that starts a stream: what came behind the line already, then more. Waits at
  /// most timeout_ms; gives false when the other side has closed. `chunk` may be empty.
  bool read_stream(std::string& chunk, int timeout_ms, std::string& error);
  int descriptor() const { return fd_; }

 private:
  bool wait(short events, int timeout_ms, std::string& error) const;
  int fd_ = -1;
  std::string pending_;
};

/// The sockets that exist in the places where switchd puts them by default.
std::vector<std::string> sockets_found();
/// Where a switch called `name` is looked for, most likely first.
std::vector<std::string> socket_candidates(const std::string& name);

}  // namespace iswitch::switchctl
