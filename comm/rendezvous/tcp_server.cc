#include "comm/rendezvous/tcp_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/text.h"
#include "comm/descriptors.h"
#include "comm/liveness.h"

namespace gradwire::rendezvous {
Result<std::unique_ptr<TcpServer>> TcpServer::start(Fd listener, std::shared_ptr<JobState> job,
                                                    TcpServerOptions options) {
  GW_TRY(check_listening(listener.get()));
  GW_TRY(comm::make_room_for_descriptors(static_cast<std::size_t>(job->size),
                                         format("rendezvous of %d ranks", job->size)));
  GW_ASSIGN(const int port, local_port(listener.get()));
  listener.keep_from_children();  // a child that lives on would keep the port
  const int flags = ::fcntl(listener.get(), F_GETFL);
  Fd wake = make_waker();
  if (!wake.valid() || flags < 0 || ::fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return Status(Code::kInternal, format("rendezvous server: %s", std::strerror(errno)));
  return std::unique_ptr<TcpServer>(
      new TcpServer(std::move(listener), std::move(wake), std::move(job), options, port));
}

TcpServer::TcpServer(Fd listener, Fd wake, std::shared_ptr<JobState> job, TcpServerOptions options,
                     int port)
    : listener_(std::move(listener)),
      wake_(std::move(wake)),
      job_(std::move(job)),
      options_(options),
      port_(port),
      started_(std::chrono::steady_clock::now()),
      thread_([this] { loop(); }) {}

TcpServer::~TcpServer() {
  if (mark_.in_child()) {
    abandon(thread_);
    abandon(connections_);  // their ranks are still there
    return;
  }
  stopping_ = true;
  wake();
  thread_.join();
}

void TcpServer::loop() {
  std::vector<pollfd> entries;
  while (true) {
    Deadline now = std::chrono::steady_clock::now();
    if (stopping_ && may_end(now)) return;
    entries.assign({{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
    for (const auto& connection : connections_) {
      ServerSession& session = connection->session;
      const int in = session.backlogged() || session.over() ? 0 : POLLIN;
      const int out = session.channel().outgoing().empty() ? 0 : POLLOUT;
      entries.push_back({connection->fd.get(), static_cast<short>(in | out), 0});
    }
    (void)::poll(entries.data(), entries.size(), poll_timeout(next_deadline(now)));
    now = std::chrono::steady_clock::now();

    if (entries[0].revents != 0) take_wake(wake_);
    for (std::size_t i = 0; i < connections_.size(); ++i)
      if ((entries[i + 2].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        read_from(*connections_[i], now);
    // Only now: what the last of them has set may be what the first waits for.
    for (const auto& connection : connections_) {
      connection->session.answer_waiting(now);
      write_to(*connection);
      if (now >= drop_at(*connection)) connection->dead = true;
    }
    std::erase_if(connections_, [](const auto& connection) { return connection->dead; });
    if (entries[1].revents != 0) accept_some(now);
  }
}

void TcpServer::accept_some(Deadline now) {
  for (int i = 0; i < 64; ++i) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const bool out_of_files = !fd.valid() && (errno == EMFILE || errno == ENFILE);
    if (!fd.valid() && !out_of_files) return;
    if (out_of_files || strangers() >= options_.max_strangers) {
      const auto oldest = least_wanted();
      if (oldest == connections_.end()) {
        // Nobody can make room. A short sleep, for the listener stays readable.
        ::poll(nullptr, 0, 50);
        return;
      }
      connections_.erase(oldest);
    }
    if (!fd.valid()) continue;
    fd.keep_from_children();
    const int on = 1;
    (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections_.push_back(std::make_unique<Connection>(std::move(fd), *job_, now));
  }
}

void TcpServer::read_from(Connection& connection, Deadline now) {
  std::array<std::byte, 65536> chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const Moved moved = read_some(connection.fd.get(), chunk);
  if (moved.kind == Moved::Kind::kClosed) connection.dead = true;
  if (moved.kind != Moved::Kind::kSome) return;
  if (connection.session.joined()) connection.heard = now;
  if (!connection.session.receive(ConstByteSpan(chunk).first(moved.bytes), now).ok())
    connection.dead = true;
}

void TcpServer::write_to(Connection& connection) {
  Channel& channel = connection.session.channel();
  const bool was_backlogged = connection.session.backlogged();
  while (!connection.dead && !channel.outgoing().empty()) {
    const Moved moved = write_some(connection.fd.get(), channel.outgoing());
    if (moved.kind == Moved::Kind::kClosed) connection.dead = true;
    if (moved.kind != Moved::Kind::kSome) return;
    channel.consume(moved.bytes);
  }
  if (connection.session.over()) connection.dead = true;
  if (was_backlogged && !connection.dead) {
    connection.dead = !connection.session.receive({}, std::chrono::steady_clock::now()).ok();
    wake();  // for the answers, and for those who wait for what was set
  }
}

// A connection has a short time to join, and as long again to take a refusal.
Deadline TcpServer::drop_at(const Connection& connection) const {
  if (connection.session.joined()) return Deadline::max();
  return connection.since + comm::duration_of(options_.handshake_seconds);
}

Deadline TcpServer::next_deadline(Deadline now) const {
  Deadline next = Deadline::max();
  for (const auto& connection : connections_) {
    next = std::min(next, drop_at(*connection));
    if (const auto waiting = connection->session.next_deadline()) next = std::min(next, *waiting);
  }
  // While stopping, may_end() is asked again now and then: what it waits for is rare and short.
  if (stopping_) next = std::min(next, now + std::chrono::milliseconds(20));
  return next;
}

bool TcpServer::may_end(Deadline now) const {
  const auto patience = comm::duration_of(options_.goodbye_seconds);
  if (job_->roster.count(Roster::Presence::kNever) > 0 && now < started_ + patience) return false;
  return std::ranges::none_of(connections_, [&](const auto& connection) {
    return connection->session.joined() && now < connection->heard + patience;
  });
}

// The oldest that has not joined; those that know the job's name come last.
TcpServer::Connections::iterator TcpServer::least_wanted() {
  const auto silent = std::ranges::find_if(connections_, [](const auto& connection) {
    return !connection->session.joined() && !connection->session.proving();
  });
  if (silent != connections_.end()) return silent;
  return std::ranges::find_if(connections_,
                              [](const auto& connection) { return !connection->session.joined(); });
}

std::size_t TcpServer::strangers() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      connections_, [](const auto& connection) { return !connection->session.joined(); }));
}

}  // namespace gradwire::rendezvous
