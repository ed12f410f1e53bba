#include "comm/tcp/peers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace gradwire::tcp {
namespace {

Status failure(const char* call) {
  return {Code::kInternal, format("tcp: %s: %s", call, std::strerror(errno))};
}

std::uint64_t prefix_of(std::uint64_t epoch, int source) {
  return epoch << 56 | static_cast<std::uint64_t>(source) << 40;
}

// epoll_wait() counts in milliseconds.
void sleep_shortly(int poll, Deadline until) {
  const auto left = until - std::chrono::steady_clock::now();
  if (left <= left.zero() || left >= std::chrono::milliseconds(1)) return;
  const timespec time{0, std::chrono::nanoseconds(left).count()};
  pollfd entry{poll, POLLIN, 0};
  (void)::ppoll(&entry, 1, &time, nullptr);
}

}  // namespace

Peers::Peers(int rank, int size) : rank_(rank), active_(size), heard_(size) {
  for (int rank = 0; rank < size; ++rank) peers_.push_back(std::make_unique<Peer>());
}

Peers::~Peers() {
  for (const auto& peer : peers_) peer->control.close();
}

Status Peers::start(std::uint64_t epoch) {
  poll_ = rendezvous::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll_.valid()) return failure("epoll_create1");
  wake_ = rendezvous::make_waker();
  if (!wake_.valid()) return failure("eventfd");
  rebuild(epoch);
  return watch(wake_.get(), 0, Line::kWake, EPOLLIN);
}

Status Peers::watch(int fd, int rank, Line line, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<std::uint64_t>(rank) << 8 | static_cast<std::uint64_t>(line);
  return ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? Status() : failure("epoll_ctl");
}

Status Peers::meet(std::unique_ptr<Meeting> meeting) {
  meeting_ = std::move(meeting);
  return watch(meeting_->fd(), 0, Line::kMeeting, EPOLLIN);
}

void Peers::connect(int rank, bool bulk) {
  Peer& peer = at(rank);
  if (!meeting_) return;
  if (!peer.control.is_open()) {
    peer.wants_bulk = peer.wants_bulk || bulk;
    meeting_->call(rank, LinkKind::kControl);
  } else if (bulk && !peer.in.is_open()) {
    meeting_->call(rank, LinkKind::kBulk);
  }
}

Result<std::vector<Meeting::News>> Peers::take_news(Deadline now) {
  if (!meeting_ready_ && now < next_event()) return std::vector<Meeting::News>();
  meeting_ready_ = false;
  return meeting_->advance(now);
}

// Edges, so that neither a full socket nor one that is left alone has to be taken off the list.
Status Peers::open(int rank, LinkKind kind, rendezvous::Fd fd) {
  constexpr std::uint32_t kBoth = EPOLLIN | EPOLLOUT | EPOLLET;
  Peer& peer = at(rank);
  fd.keep_from_children();
  if (kind == LinkKind::kControl) {
    GW_TRY(watch(fd.get(), rank, Line::kControl, kBoth));
    peer.control.open(std::move(fd));
    heard_.add(rank);
    if (std::exchange(peer.wants_bulk, false)) connect(rank, true);
    return {};
  }
  GW_TRY(watch(fd.get(), rank, Line::kBulk, kBoth | EPOLLRDHUP));
  // Each direction ends for itself.
  const auto shared = std::make_shared<rendezvous::Fd>(std::move(fd));
  peer.out.open(shared);
  peer.in.open(shared);
  active_.add(rank);
  return {};
}

// What a rank that has no connection with this one does not need to hear.
void Peers::send(int rank, const comm::Control& message) {
  using Kind = comm::Control::Kind;
  const bool idle = message.kind == Kind::kVerdict || message.kind == Kind::kGoodbye ||
                    message.kind == Kind::kFarewell;
  if (!connected(rank)) {
    if (idle) return;
    connect(rank, false);
  }
  at(rank).control.send(message);
}

void Peers::rebuild(std::uint64_t epoch) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    at(rank).out.rebuild(prefix_of(epoch, rank_));
    at(rank).in.rebuild(prefix_of(epoch, rank));
    active_.add(rank);
  }
}

Status Peers::look(Deadline until) {
  std::array<epoll_event, 64> events;
  sleep_shortly(poll_.get(), until);
  const int count = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()),
                                 rendezvous::poll_timeout(until));
  if (count < 0 && errno != EINTR) return failure("epoll_wait");
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const bool ended = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    const auto line = static_cast<Line>(event.data.u64 & 0xff);
    if (line == Line::kWake) {
      rendezvous::take_wake(wake_);
      continue;
    }
    if (line == Line::kMeeting) {
      meeting_ready_ = true;
      continue;
    }
    const int rank = static_cast<int>(event.data.u64 >> 8);
    Peer& peer = at(rank);
    if (line == Line::kBulk) {
      if (ended || (event.events & EPOLLIN) != 0) peer.in.notice(ended);
      if ((event.events & EPOLLOUT) != 0) peer.out.unblock();
      peer.bulk_ended = peer.bulk_ended || ended;
      active_.add(rank);
    } else {
      heard_.add(rank);
      if (!peer.control.flushed()) peer.control.flush();
    }
  }
  return {};
}

void Peers::cut(int rank) {
  at(rank).out.close();
  at(rank).in.close();
  at(rank).control.close();
  give_up(rank);
}

}  // namespace gradwire::tcp
