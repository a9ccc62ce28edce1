#include "switchd/admin/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "switchd/admin/folders.h"
#include "switchd/dataplane/machine.h"
#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

constexpr std::string_view refusal_many =
    "{\"ok\":false,\"error\":\"too many connections to the admin socket; close some\"}\n";
constexpr std::string_view refusal_long =
    "{\"ok\":false,\"error\":\"a request line is longer than 65536 bytes\"}\n";

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

bool somebody_listens(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool answers =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      (errno != ECONNREFUSED && errno != ENOENT);
  close(fd);
  return answers;
}

/// Holds a folder so that two daemons do not both find a stale socket and replace it.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ >= 0) flock(fd_, LOCK_EX);
  }
  ~FolderLock() {
    if (fd_ >= 0) close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace

struct AdminServer::Client {
  ClientId id = 0;
  int fd = -1;
  std::string input;
  std::string output;
  bool busy = false;     ///< a request is being carried out
  bool ended = false;    ///< the peer sends no more
  bool leaving = false;  ///< close when the output is out
  bool streaming = false;
  std::function<void()> closed;
  ~Client() {
    if (fd >= 0) close(fd);
  }
};

AdminServer::AdminServer(EventLoop& loop, Handler handler)
    : loop_(loop), handler_(std::move(handler)) {}

std::unique_ptr<AdminServer> AdminServer::open(EventLoop& loop, const std::string& path,
                                               const std::string& switch_name, Handler handler,
                                               std::string& error) {
  std::unique_ptr<AdminServer> server(new AdminServer(loop, std::move(handler)));
  server->path_ = path;
  if (path.empty()) {
    const std::string folder = usable_admin_folder(error);
    if (folder.empty()) return nullptr;
    server->path_ = text(folder, '/', switch_name, ".sock");
  }
  error = server->listen_at(server->path_);
  if (!error.empty()) return nullptr;
  AdminServer* self = server.get();
  if (!loop.add(self->listener_, EPOLLIN, [self](std::uint32_t) { self->accept_one(); })) {
    error = "the admin socket cannot be waited on; raise the limit of open files";
    return nullptr;
  }
  return server;
}

std::string AdminServer::listen_at(const std::string& path) {
  const sockaddr_un address = address_of(path);
  if (path.size() >= sizeof address.sun_path) {
    return text("admin socket ", path, ": the path is longer than ", sizeof address.sun_path - 1,
                " bytes");
  }
  const std::string folder = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  mkdir(folder.c_str(), 0755);
  const FolderLock lock(folder);
  if (somebody_listens(address)) {
    return text("admin socket ", path,
                ": another switchd listens there; end it, or give this one another admin.socket or "
                "switch.name");
  }
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return text("admin socket ", path, ": there is something that is not a socket; remove it");
    }
    unlink(path.c_str());
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const mode_t mask = umask(0177);
  const bool bound =
      fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int bind_error = errno;
  umask(mask);
  if (!bound || ::listen(fd, SOMAXCONN) != 0) {
    if (fd >= 0) close(fd);
    return text("admin socket ", path, ": ", std::strerror(bound ? errno : bind_error),
                "; make its folder writable, or leave admin.socket out");
  }
  listener_ = fd;
  return {};
}

AdminServer::~AdminServer() {
  while (!clients_.empty()) drop(clients_.begin()->first);
  if (listener_ < 0) return;
  loop_.remove(listener_);
  close(listener_);
  unlink(path_.c_str());
}

AdminServer::Client* AdminServer::find(ClientId id) {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second.get();
}

void AdminServer::accept_one() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  if (clients_.size() >= most_clients) {
    [[maybe_unused]] const ssize_t n =
        send(fd, refusal_many.data(), refusal_many.size(), MSG_NOSIGNAL);
    close(fd);
    return;
  }
  auto client = std::make_unique<Client>();
  client->id = next_id_++;
  client->fd = fd;
  const ClientId id = client->id;
  if (!loop_.add(fd, EPOLLIN, [this, id](std::uint32_t events) { on_event(id, events); })) return;
  clients_.emplace(id, std::move(client));
}

void AdminServer::on_event(ClientId id, std::uint32_t events) {
  Client* client = find(id);
  if (client == nullptr) return;
  if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (client->streaming || (events & EPOLLIN) == 0)) {
    return drop(id);
  }
  if ((events & EPOLLIN) != 0 && !read_some(*client)) return drop(id);
  if ((events & EPOLLOUT) != 0 && !write_some(*client)) return drop(id);
  next_request(id);
}

bool AdminServer::read_some(Client& client) {
  std::array<char, 16384> buffer;
  // What is not asked for yet stays in the socket once a line and more are here.
  while (client.input.size() <= longest_line) {
    const ssize_t n = recv(client.fd, buffer.data(), buffer.size(), 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) {
      client.ended = true;
      return true;
    }
    if (!client.streaming) client.input.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return true;
}

// Closed with something unread, a socket fails at the other end before the reply has been read.
void AdminServer::discard(int fd) {
  std::array<char, 16384> buffer;
  for (int i = 0; i < 64; ++i) {  // a mebibyte
    if (recv(fd, buffer.data(), buffer.size(), 0) <= 0) return;
  }
}

void AdminServer::next_request(ClientId id) {
  for (Client* client = find(id); client != nullptr; client = find(id)) {
    if (client->busy || client->streaming || client->leaving) return update(*client);
    const std::size_t end = client->input.find('\n');
    if (end > longest_line) {  // npos too: no whole line yet
      if (client->input.size() > longest_line) {
        client->output += refusal_long;
        client->leaving = true;
        discard(client->fd);
      } else if (client->ended) {
        client->leaving = true;
      }
      if (!write_some(*client)) return drop(id);
      return update(*client);
    }
    const std::string line = client->input.substr(0, end);
    client->input.erase(0, end + 1);
    client->busy = true;
    handler_(id, line, [this, id](const std::string& reply) { respond(id, reply); });
  }
}

void AdminServer::respond(ClientId id, const std::string& line) {
  Client* client = find(id);
  if (client == nullptr) return;
  client->busy = false;
  client->output += line;
  client->output += '\n';
  if (!write_some(*client)) return drop(id);
  if (client->output.size() > most_waiting_bytes) return drop(id);
  // Called from within next_request's handler, or later: then the next line must be looked at.
  update(*client);
  if (!client->input.empty() || client->ended) {
    loop_.change(client->fd, EPOLLIN | EPOLLOUT);  // comes back through on_event
  }
}

bool AdminServer::write_some(Client& client) {
  std::size_t sent = 0;
  while (sent < client.output.size()) {
    const ssize_t n =
        send(client.fd, client.output.data() + sent, client.output.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  client.output.erase(0, sent);
  return !(client.leaving && client.output.empty());
}

void AdminServer::update(Client& client) {
  std::uint32_t events = 0;
  if (!client.ended && !client.leaving && client.input.size() <= longest_line) events |= EPOLLIN;
  if (!client.output.empty()) events |= EPOLLOUT;
  loop_.change(client.fd, events);
}

void AdminServer::drop(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const std::unique_ptr<Client> client = std::move(found->second);
  clients_.erase(found);
  loop_.remove(client->fd);
  if (client->closed) client->closed();
}

void AdminServer::make_stream(ClientId id, std::function<void()> closed) {
  Client* client = find(id);
  if (client == nullptr) return closed();
  client->streaming = true;
  client->closed = std::move(closed);
}

bool AdminServer::stream(ClientId id, std::string_view bytes) {
  Client* client = find(id);
  if (client == nullptr || client->output.size() + bytes.size() > most_waiting_bytes) return false;
  client->output += bytes;
  if (!write_some(*client)) {
    drop(id);
    return false;
  }
  update(*client);
  return true;
}

std::size_t AdminServer::waiting(ClientId id) const {
  const auto found = clients_.find(id);
  return found == clients_.end() ? 0 : found->second->output.size();
}

void AdminServer::close_stream(ClientId id) { drop(id); }

void AdminServer::flush_all(Time most) {
  const Time deadline = monotonic_now() + most;
  for (;;) {
    bool wait = false;
    std::vector<ClientId> gone;
    for (auto& [id, client] : clients_) {
      if (!write_some(*client)) gone.push_back(id);
      wait = wait || !client->output.empty();
    }
    for (const ClientId id : gone) drop(id);
    if (!wait || monotonic_now() >= deadline) return;
    usleep(1000);
  }
}

}  // namespace iswitch::switchd
