// A parameter server over TCP, and its workers: each sends its vector, the server adds the pieces
// as they come and sends the sum to all. With --serve it is the server.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "bench/collectives/rank.h"

namespace {

using namespace iswitch;

constexpr int deadline_ms = 60'000;
constexpr std::size_t piece_bytes = 64 << 10;

std::string failure(const char* step) { return std::string(step) + ": " + std::strerror(errno); }

sockaddr_in address_of(const std::string& ip, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, ip.c_str(), &address.sin_addr);
  return address;
}

void prepare(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval limit{deadline_ms / 1000, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool read_all(int fd, void* data, std::size_t size) {
  return recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

bool write_all(int fd, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

/// Sends and receives `data` at the same time: the server answers the first pieces while the last
/// ones are still on their way.
std::string exchange(int fd, float* data, std::size_t bytes) {
  auto* raw = reinterpret_cast<char*>(data);
  std::size_t sent = 0;
  std::size_t received = 0;
  while (received < bytes) {
    pollfd ready{fd, static_cast<short>(POLLIN | (sent < bytes ? POLLOUT : 0)), 0};
    if (poll(&ready, 1, deadline_ms) <= 0) return "the parameter server does not answer";
    if ((ready.revents & POLLOUT) != 0) {
      const ssize_t n = send(fd, raw + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<std::size_t>(n);
      if (n < 0 && errno != EAGAIN) return failure("send");
    }
    if ((ready.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      // Only what has been sent can come back, so nothing unsent is written over.
      const ssize_t n = recv(fd, raw + received, sent - received, MSG_DONTWAIT);
      if (n > 0) received += static_cast<std::size_t>(n);
      if (n == 0 && sent > received) return "the parameter server has closed the connection";
      if (n < 0 && errno != EAGAIN) return failure("recv");
    }
  }
  return {};
}

/// Until the workers have closed their connections.
int serve(const std::string& ip, std::uint16_t port, unsigned workers) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in own = address_of(ip, port);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
      listen(listener, 64) != 0) {
    std::fprintf(stderr, "parameter server: %s\n", failure("listen").c_str());
    return 1;
  }
  std::printf("listening\n");
  std::fflush(stdout);
  std::vector<int> peers;
  while (peers.size() < workers) {
    pollfd ready{listener, POLLIN, 0};
    if (poll(&ready, 1, deadline_ms) <= 0) return 1;
    peers.push_back(accept(listener, nullptr, nullptr));
    prepare(peers.back());
  }
  std::vector<float> piece(piece_bytes / sizeof(float));
  std::vector<float> sum(piece.size());
  while (true) {
    std::uint64_t bytes = 0;
    for (const int peer : peers) {
      if (!read_all(peer, &bytes, sizeof bytes)) return 0;  // they are through
    }
    for (std::uint64_t done = 0; done < bytes; done += piece_bytes) {
      const std::size_t now = std::min<std::uint64_t>(piece_bytes, bytes - done);
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (const int peer : peers) {
        if (!read_all(peer, piece.data(), now)) return 1;
        for (std::size_t i = 0; i < now / sizeof(float); ++i) sum[i] += piece[i];
      }
      for (const int peer : peers)
        if (!write_all(peer, sum.data(), now)) return 1;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::RankOptions rank;
  std::string loads;
  std::string server;
  std::uint16_t port = 17300;
  bool serves = false;
  CLI::App app("one rank of bench/collectives: a parameter server over TCP");
  app.add_option("--rank", rank.rank);
  app.add_option("--size", rank.size)->required();
  app.add_option("--loads", loads);
  app.add_option("--server", server, "IPv4 of the server")->required();
  app.add_option("--port", port);
  app.add_flag("--serve", serves);
  CLI11_PARSE(app, argc, argv);
  if (serves) return serve(server, port, rank.size);

  rank.loads = bench::parse_loads(loads);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = address_of(server, port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    std::fprintf(stderr, "rank %u: %s\n", rank.rank, failure("connect").c_str());
    return 1;
  }
  prepare(fd);
  bench::Collective collective;
  collective.all_reduce = [fd](std::vector<float>& vector) {
    const std::uint64_t bytes = vector.size() * sizeof(float);
    if (!write_all(fd, &bytes, sizeof bytes)) return failure("send");
    return exchange(fd, vector.data(), bytes);
  };
  collective.barrier = [&] {
    std::vector<float> one(1);
    return collective.all_reduce(one);
  };
  const int code = bench::run_rank(rank, collective);
  close(fd);
  return code;
}
