// The admin socket: accepts, cuts lines, keeps replies in order, drops whoever does not read. What
// a line means is not its business. The control thread's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "switchd/event_loop.h"

namespace iswitch::switchd {

class AdminServer {
 public:
  using ClientId = std::uint64_t;
  /// Answers one request; may be called at once or later, once. The line has no '\n'.
  using Respond = std::function<void(std::string line)>;
  using Handler =
      std::function<void(ClientId client, const std::string& line, const Respond& respond)>;

  static constexpr std::size_t longest_line = 65536;
  static constexpr std::size_t most_clients = 64;
  static constexpr std::size_t most_waiting_bytes = 4u << 20;

  /// `path` is empty for the default places (docs/admin.md). On failure null and one line in
  /// `error`.
  static std::unique_ptr<AdminServer> open(EventLoop& loop, const std::string& path,
                                           const std::string& switch_name, Handler handler,
                                           std::string& error);
  /// Closes every connection and removes the socket.
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  const std::string& path() const { return path_; }

  // ---- a connection that carries a stream after a reply

  /// From now on the client's connection carries what stream() gives; `closed` is called once when
  /// it ends.
  void make_stream(ClientId client, std::function<void()> closed);
  /// False, and nothing taken: the client is gone, or too much waits already.
  bool stream(ClientId client, std::string_view bytes);
  std::size_t waiting(ClientId client) const;
  void close_stream(ClientId client);
  /// Sends what waits, for at most so long.
  void flush_all(Time most);

 private:
  struct Client;
  AdminServer(EventLoop& loop, Handler handler);
  std::string listen_at(const std::string& path);
  void accept_one();
  void on_event(ClientId id, std::uint32_t events);
  bool read_some(Client& client);
  static void discard(int fd);
  void next_request(ClientId id);
  void respond(ClientId id, const std::string& line);
  /// False when the client is gone.
  bool write_some(Client& client);
  void drop(ClientId id);
  Client* find(ClientId id);
  void update(Client& client);

  EventLoop& loop_;
  Handler handler_;
  std::string path_;
  int listener_ = -1;
  ClientId next_id_ = 1;
  std::unordered_map<ClientId, std::unique_ptr<Client>> clients_;
};

}  // namespace iswitch::switchd
