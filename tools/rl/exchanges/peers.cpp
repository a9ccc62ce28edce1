#include "tools/rl/exchanges/peers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

namespace iswitch::rl {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// A request is four bytes that say what; an answer is its length in eight bytes (big-endian), then
// that many.
constexpr std::array<char, 4> status_request{'s', 't', 'a', '1'};
constexpr std::array<char, 4> snapshot_request{'w', 'g', 't', '1'};
constexpr std::uint64_t most_answer = std::uint64_t{1} << 34;
constexpr auto serve_time = 10s;

/// Closes what it holds.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::optional<sockaddr_in> parse(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc{} || parsed.ptr != end || port == 0 ||
      inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1)
    return std::nullopt;
  address.sin_port = htons(port);
  return address;
}

std::string errno_text() { return std::generic_category().message(errno); }

bool wait_for(int fd, short events, Clock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd polled{fd, events, 0};
    const int ready = poll(&polled, 1, static_cast<int>(std::clamp<long>(left.count(), 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (Clock::now() >= until) return false;
  }
}

bool send_all(int fd, std::span<const std::uint8_t> bytes, Clock::time_point until) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if ((errno != EAGAIN && errno != EINTR) || !wait_for(fd, POLLOUT, until)) {
      return false;
    }
  }
  return true;
}

bool receive_all(int fd, std::span<std::uint8_t> bytes, Clock::time_point until) {
  while (!bytes.empty()) {
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR) || !wait_for(fd, POLLIN, until)) {
      return false;
    }
  }
  return true;
}

template <class Number>
void put(std::vector<std::uint8_t>& out, Number value) {
  for (unsigned i = sizeof value; i > 0; --i)
    out.push_back(static_cast<std::uint8_t>(value >> (8 * (i - 1))));
}

template <class Number>
Number get(std::span<const std::uint8_t>& in) {
  Number value = 0;
  for (unsigned i = 0; i < sizeof value; ++i) value = static_cast<Number>(value << 8 | in[i]);
  in = in.subspan(sizeof value);
  return value;
}

constexpr std::size_t status_bytes = 4 + 4 + 4 + 8 + 32 + 32;

std::vector<std::uint8_t> encode(const PeerStatus& status) {
  std::vector<std::uint8_t> out;
  put(out, status.rank);
  put(out, status.base_round);
  put(out, static_cast<std::uint32_t>((status.live ? 1U : 0U) | (status.waiting ? 2U : 0U) |
                                      (status.finished ? 4U : 0U) | (status.quiet ? 8U : 0U) |
                                      (status.settled ? 16U : 0U)));
  put(out, status.updates);
  out.insert(out.end(), status.numbers.begin(), status.numbers.end());
  out.insert(out.end(), status.weights.begin(), status.weights.end());
  return out;
}

PeerStatus decode(std::span<const std::uint8_t> in) {
  PeerStatus status;
  status.rank = get<std::uint32_t>(in);
  status.base_round = get<std::uint32_t>(in);
  const auto flags = get<std::uint32_t>(in);
  status.live = (flags & 1) != 0;
  status.waiting = (flags & 2) != 0;
  status.finished = (flags & 4) != 0;
  status.quiet = (flags & 8) != 0;
  status.settled = (flags & 16) != 0;
  status.updates = get<std::uint64_t>(in);
  std::copy_n(in.begin(), 32, status.numbers.begin());
  std::copy_n(in.begin() + 32, 32, status.weights.begin());
  return status;
}

std::optional<std::vector<std::uint8_t>> ask(const std::string& address,
                                             std::span<const char> request,
                                             std::chrono::milliseconds time) {
  const auto until = Clock::now() + time;
  const auto to = parse(address);
  if (!to) return std::nullopt;
  const Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return std::nullopt;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*to), sizeof *to) != 0) {
    if (errno != EINPROGRESS || !wait_for(fd.get(), POLLOUT, until)) return std::nullopt;
    int problem = 0;
    socklen_t size = sizeof problem;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &problem, &size) != 0 || problem != 0)
      return std::nullopt;
  }
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(request.data()),
                                            request.size());
  std::array<std::uint8_t, 8> head{};
  if (!send_all(fd.get(), bytes, until) || !receive_all(fd.get(), head, until)) return std::nullopt;
  std::span<const std::uint8_t> rest(head);
  const auto size = get<std::uint64_t>(rest);
  if (size > most_answer) return std::nullopt;
  std::vector<std::uint8_t> answer;
  // Grown as it comes: a length alone is not worth the memory.
  constexpr std::uint64_t step = 1U << 20;
  while (answer.size() < size) {
    const std::size_t before = answer.size();
    answer.resize(before + static_cast<std::size_t>(std::min(step, size - before)));
    if (!receive_all(fd.get(), std::span(answer).subspan(before), until)) return std::nullopt;
  }
  return answer;
}

}  // namespace

std::string peer_address_problem(const std::string& address) {
  return parse(address) ? "" : "'" + address + "' is not IPv4:port, such as 10.77.0.1:17300";
}

std::optional<PeerStatus> ask_status(const std::string& address, std::chrono::milliseconds time) {
  const auto answer = ask(address, status_request, time);
  if (!answer || answer->size() != status_bytes) return std::nullopt;
  return decode(*answer);
}

std::optional<std::vector<std::uint8_t>> ask_snapshot(const std::string& address,
                                                      std::chrono::milliseconds time) {
  return ask(address, snapshot_request, time);
}

std::variant<std::unique_ptr<PeerServer>, Failure> PeerServer::listen(const std::string& address,
                                                                      Answers answers) {
  const auto at = parse(address);
  if (!at) return Failure{FailureKind::usage, "--peers: " + peer_address_problem(address)};
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int on = 1;
  if (listener.get() >= 0) setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listener.get() < 0 || wake.get() < 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&*at), sizeof *at) != 0 ||
      ::listen(listener.get(), 64) != 0)
    return Failure{FailureKind::machine,
                   "cannot listen for the other workers on " + address + ": " + errno_text()};
  std::unique_ptr<PeerServer> server(
      new PeerServer(listener.release(), wake.release(), std::move(answers)));
  try {
    server->thread_ = std::thread([raw = server.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return Failure{FailureKind::machine,
                   std::string("cannot start a thread for the other workers: ") + error.what()};
  }
  return server;
}

PeerServer::PeerServer(int listener, int wake, Answers answers)
    : listener_(listener), wake_(wake), answers_(std::move(answers)) {}

PeerServer::~PeerServer() {
  const std::uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof one));
  if (thread_.joinable()) thread_.join();
  close(listener_);
  close(wake_);
}

void PeerServer::run() {
  while (true) {
    std::array<pollfd, 2> polled{pollfd{listener_, POLLIN, 0}, pollfd{wake_, POLLIN, 0}};
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[1].revents != 0) return;
    const Descriptor connection(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() >= 0) serve(connection.get());
  }
}

/// One question a connection; one at a time, since answers are short and peers few.
void PeerServer::serve(int connection) {
  const auto until = Clock::now() + serve_time;
  std::array<std::uint8_t, 4> request{};
  if (!receive_all(connection, request, std::min(until, Clock::now() + 1s))) return;
  std::vector<std::uint8_t> answer;
  if (std::memcmp(request.data(), status_request.data(), request.size()) == 0)
    answer = encode(answers_.status());
  else if (std::memcmp(request.data(), snapshot_request.data(), request.size()) == 0)
    answer = answers_.snapshot();
  else
    return;
  std::vector<std::uint8_t> head;
  put(head, static_cast<std::uint64_t>(answer.size()));
  if (send_all(connection, head, until)) static_cast<void>(send_all(connection, answer, until));
}

}  // namespace iswitch::rl
