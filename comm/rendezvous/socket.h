// Stream sockets with deadlines: nothing here blocks longer than it is told to, except the name
// lookup of the host.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/forks.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::rendezvous {

// Owns a file descriptor; closes it when destroyed. -1 means none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), kept_at_(std::exchange(other.kept_at_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(kept_at_, other.kept_at_);
    return *this;
  }
  ~Fd();
  int get() const { return is_parents() ? -1 : fd_; }
  bool valid() const { return get() >= 0; }
  // The descriptor, which the caller owns from now on.
  int release();

  // Children of fork() close their copy at once, and have none: get() is -1 there.
  void keep_from_children();

 private:
  bool is_parents() const {
    return kept_at_ >= 0 && kept_at_ != forks::count.load(std::memory_order_relaxed);
  }

  int fd_ = -1;
  int kept_at_ = -1;  // forks::count where it was kept from children
};

struct HostPort {
  std::string host;
  int port = 0;
};
// "host:port" or "[v6 address]:port" with a port in 1..65535; kInvalidArgument quotes what it saw.
Result<HostPort> parse_host_port(std::string_view text);
// As parse_host_port() reads it.
std::string to_string(const HostPort& where);

// Whether the first address that `host` stands for is one that only this host reaches, as its own
// name often is in /etc/hosts. kInvalidArgument when it stands for none.
Result<bool> is_loopback(const std::string& host);

// A socket bound to host:port that does not listen. It keeps the port from being handed out to
// anybody who asks for "any port", while a process that asks for exactly this port with
// SO_REUSEADDR (listen_on does) may still listen on it. Port 0 lets the kernel choose.
Result<Fd> reserve_port(const std::string& host, int port);

// A non-blocking listening socket on host:port; port 0 lets the kernel choose.
Result<Fd> listen_on(const std::string& host, int port);

// The port that `fd` is bound to; kInvalidArgument if it is no bound TCP socket.
Result<int> local_port(int fd);

// kInvalidArgument unless `fd` is a TCP socket that listens.
Status check_listening(int fd);

// A connected, non-blocking socket. kPeerLost when nobody listens there (trying again may help),
// kTimedOut at the deadline, kInvalidArgument when the host cannot be resolved.
Result<Fd> connect_to(const HostPort& where, Deadline deadline);

// Begins to connect a socket to a numeric address, non-blocking and with TCP_NODELAY; none, and
// errno, where that fails at once.
Fd begin_connect(const std::string& address, int port);
// How that has ended, once the socket can be written: an errno, or 0.
int connect_error(int fd);

// Waits until `fd` can be read (or written); kTimedOut at the deadline.
Status wait_readable(int fd, Deadline deadline);
Status wait_writable(int fd, Deadline deadline);

// What one read or write did, which never waits: moved some bytes, must wait, or found the end.
struct Moved {
  enum class Kind : unsigned char { kSome, kWait, kClosed } kind = Kind::kWait;
  std::size_t bytes = 0;
  int error = 0;  // errno of a kClosed that was no orderly end
};
Moved read_some(int fd, ByteSpan into);
Moved write_some(int fd, ConstByteSpan from);

// The same until all is written, or some bytes are read: their number. kPeerLost when the
// connection has ended, kTimedOut at the deadline.
Status write_all(int fd, ConstByteSpan bytes, Deadline deadline);
Result<std::size_t> read_more(int fd, ByteSpan into, Deadline deadline);

// A descriptor that can be read once wake() has been called, by any thread, until take_wake() is.
Fd make_waker();
void wake(const Fd& waker);
void take_wake(const Fd& waker);

// Milliseconds from now until `deadline` for poll(2): rounded up, 0 when past, at most a day.
int poll_timeout(Deadline deadline);

}  // namespace gradwire::rendezvous
