#include "comm/rendezvous/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/text.h"

namespace gradwire::rendezvous {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<AddressList> resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failure != 0)
    return Status(Code::kInvalidArgument,
                  format("cannot resolve host '%s' (%s; expected a host name or an address)",
                         host.c_str(), gai_strerror(failure)));
  return AddressList(found, &freeaddrinfo);
}

Fd open_socket(const addrinfo& address) {
  Fd fd(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (fd.valid()) (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

Status wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR)
      return {Code::kInternal, format("poll: %s", std::strerror(errno))};
    if (std::chrono::steady_clock::now() >= deadline)
      return {Code::kTimedOut, "the connection was silent"};
  }
}

Moved moved(ssize_t count) {
  if (count > 0) return {Moved::Kind::kSome, static_cast<std::size_t>(count), 0};
  if (count == 0) return {Moved::Kind::kClosed, 0, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
  return {Moved::Kind::kClosed, 0, errno};
}

}  // namespace

Fd::~Fd() {
  const int fd = release();
  if (fd >= 0) ::close(fd);
}

int Fd::release() {
  const int fd = std::exchange(fd_, -1);
  if (kept_at_ < 0) return fd;
  const bool parents = is_parents();
  kept_at_ = -1;
  if (parents) return -1;
  leave_to_children(fd);
  return fd;
}

void Fd::keep_from_children() {
  if (fd_ < 0 || kept_at_ >= 0) return;
  close_in_children(fd_);
  kept_at_ = forks::count.load(std::memory_order_relaxed);
}

Fd make_waker() { return Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

void wake(const Fd& waker) {
  const std::uint64_t one = 1;
  (void)!::write(waker.get(), &one, sizeof one);  // fails only when it is already awake 2^64 times
}

void take_wake(const Fd& waker) {
  std::uint64_t count = 0;
  (void)!::read(waker.get(), &count, sizeof count);
}

int poll_timeout(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  constexpr std::chrono::milliseconds kDay = std::chrono::hours(24);
  if (left <= std::chrono::milliseconds::zero()) return 0;
  return static_cast<int>((left < kDay ? left : kDay).count());
}

Result<HostPort> parse_host_port(std::string_view text) {
  const Status bad(Code::kInvalidArgument,
                   format("rendezvous address '%.*s' (expected host:port, port 1..65535)",
                          static_cast<int>(text.size()), text.data()));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad;
  const std::optional<std::int64_t> port = to_int(text.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) return bad;
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad;
  }
  return HostPort{std::string(host), static_cast<int>(*port)};
}

std::string to_string(const HostPort& where) {
  const bool v6 = where.host.find(':') != std::string::npos;
  return (v6 ? "[" + where.host + "]" : where.host) + ":" + std::to_string(where.port);
}

Result<bool> is_loopback(const std::string& host) {
  GW_ASSIGN(const AddressList list, resolve(host, 0, 0));
  const sockaddr* first = list->ai_addr;
  if (first->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(first);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(first);
  return first->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

Result<Fd> reserve_port(const std::string& host, int port) {
  GW_ASSIGN(AddressList list, resolve(host, port, AI_PASSIVE));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    Fd fd = open_socket(*at);
    const int on = 1;
    if (fd.valid() && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0)
      return fd;
    error = errno;
  }
  return Status(Code::kInvalidArgument,
                format("cannot bind %s:%d (%s; expected a free port on an address of this host)",
                       host.c_str(), port, std::strerror(error)));
}

Result<Fd> listen_on(const std::string& host, int port) {
  GW_ASSIGN(Fd fd, reserve_port(host, port));
  if (::listen(fd.get(), SOMAXCONN) != 0)
    return Status(Code::kInvalidArgument,
                  format("cannot listen on %s:%d (%s; expected a free port)", host.c_str(), port,
                         std::strerror(errno)));
  return fd;
}

Result<int> local_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    if (address.ss_family == AF_INET)
      return int{ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port)};
    if (address.ss_family == AF_INET6)
      return int{ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port)};
  }
  return Status(Code::kInvalidArgument,
                format("file descriptor %d is no TCP socket (expected a listening one)", fd));
}

Status check_listening(int fd) {
  int listening = 0;
  socklen_t size = sizeof listening;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0)
    return {Code::kInvalidArgument,
            format("file descriptor %d does not listen (expected a listening TCP socket)", fd)};
  return {};
}

Result<Fd> connect_to(const HostPort& where, Deadline deadline) {
  GW_ASSIGN(AddressList list, resolve(where.host, where.port, 0));
  int error = ECONNREFUSED;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    Fd fd = open_socket(*at);
    if (!fd.valid()) {
      error = errno;
      continue;
    }
    error = ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      GW_TRY(wait_writable(fd.get(), deadline));
      error = connect_error(fd.get());
    }
    if (error == 0) return fd;
  }
  return Status(Code::kPeerLost, format("no answer at %s:%d (%s)", where.host.c_str(), where.port,
                                        std::strerror(error)));
}

Fd begin_connect(const std::string& address, int port) {
  const auto list = resolve(address, port, AI_NUMERICHOST);
  if (!list.has_value()) return Fd();
  const addrinfo& at = *list.value();
  Fd fd = open_socket(at);
  const bool begun =
      fd.valid() && (::connect(fd.get(), at.ai_addr, at.ai_addrlen) == 0 || errno == EINPROGRESS);
  return begun ? std::move(fd) : Fd();
}

int connect_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

Status wait_readable(int fd, Deadline deadline) { return wait_for(fd, POLLIN, deadline); }
Status wait_writable(int fd, Deadline deadline) { return wait_for(fd, POLLOUT, deadline); }

Moved read_some(int fd, ByteSpan into) {
  return moved(::recv(fd, into.data(), into.size(), MSG_DONTWAIT));
}
Moved write_some(int fd, ConstByteSpan from) {
  return moved(::send(fd, from.data(), from.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

Status write_all(int fd, ConstByteSpan bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const Moved moved = write_some(fd, bytes);
    if (moved.kind == Moved::Kind::kClosed) return {Code::kPeerLost, "the connection was closed"};
    bytes = bytes.subspan(moved.bytes);
    if (moved.kind == Moved::Kind::kWait) GW_TRY(wait_writable(fd, deadline));
  }
  return {};
}

Result<std::size_t> read_more(int fd, ByteSpan into, Deadline deadline) {
  while (true) {
    const Moved moved = read_some(fd, into);
    if (moved.kind == Moved::Kind::kSome) return moved.bytes;
    if (moved.kind == Moved::Kind::kClosed)
      return Status(Code::kPeerLost, "the connection was closed");
    GW_TRY(wait_readable(fd, deadline));
  }
}

}  // namespace gradwire::rendezvous
