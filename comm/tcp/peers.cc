#include "comm/tcp/peers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "comm/process_state.h"

namespace gradwire::tcp {
namespace {

Status failure(const char* call) {
  return {Code::kInternal, format("tcp: %s: %s", call, std::strerror(errno))};
}

}  // namespace

Peers::Peers(int size) : active_(size), heard_(size) {
  for (int rank = 0; rank < size; ++rank) peers_.push_back(std::make_unique<Peer>());
}

Peers::~Peers() {
  for (const auto& peer : peers_) peer->control.close();
}

Status Peers::start() {
  poll_ = rendezvous::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll_.valid()) return failure("epoll_create1");
  wake_ = rendezvous::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_.valid()) return failure("eventfd");
  return watch(wake_.get(), 0, Line::kWake, EPOLLIN);
}

Status Peers::watch(int fd, int rank, Line line, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<std::uint64_t>(rank) << 8 | static_cast<std::uint64_t>(line);
  return ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? Status() : failure("epoll_ctl");
}

namespace {

std::uint64_t prefix_of(std::uint64_t epoch, int source) {
  return epoch << 56 | static_cast<std::uint64_t>(source) << 40;
}

}  // namespace

// Edges, so that neither a full socket nor one that is left alone has to be taken off the list.
Status Peers::open(std::vector<Links> links, int own_rank, std::uint64_t epoch) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == own_rank) continue;
    Links& mine = links[static_cast<std::size_t>(rank)];
    constexpr std::uint32_t kBoth = EPOLLIN | EPOLLOUT | EPOLLET;
    GW_TRY(watch(mine.bulk.get(), rank, Line::kBulk, kBoth | EPOLLRDHUP));
    GW_TRY(watch(mine.control.get(), rank, Line::kControl, kBoth));
    // Each direction ends for itself.
    rendezvous::Fd in(::fcntl(mine.bulk.get(), F_DUPFD_CLOEXEC, 0));
    if (!in.valid()) return failure("fcntl");
    for (rendezvous::Fd* fd : {&mine.bulk, &in, &mine.control}) fd->keep_from_children();
    at(rank).out.open(std::move(mine.bulk), prefix_of(epoch, own_rank));
    at(rank).in.open(std::move(in), rank, prefix_of(epoch, rank));
    at(rank).control.open(std::move(mine.control));
    active_.add(rank);
    heard_.add(rank);
  }
  return {};
}

void Peers::rebuild(int own_rank, std::uint64_t epoch) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == own_rank) continue;
    at(rank).out.rebuild(prefix_of(epoch, own_rank));
    at(rank).in.rebuild(prefix_of(epoch, rank));
    active_.add(rank);
  }
}

bool Peers::surely_gone(int rank) const {
  return at(rank).pid != 0 && comm::has_ended_or_stopped(at(rank).pid);
}

namespace {

// epoll_wait() counts in milliseconds.
void sleep_shortly(int poll, Deadline until) {
  const auto left = until - std::chrono::steady_clock::now();
  if (left <= left.zero() || left >= std::chrono::milliseconds(1)) return;
  const timespec time{0, std::chrono::nanoseconds(left).count()};
  pollfd entry{poll, POLLIN, 0};
  (void)::ppoll(&entry, 1, &time, nullptr);
}

}  // namespace

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
      std::uint64_t ignored = 0;
      (void)!::read(wake_.get(), &ignored, sizeof ignored);
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

void Peers::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // fails only when it is already awake 2^64 times
}

void Peers::cut(int rank) {
  at(rank).out.close();
  at(rank).in.close();
  at(rank).control.close();
}

std::uint64_t Peers::control_bytes_sent() const {
  std::uint64_t sum = 0;
  for (const auto& peer : peers_) sum += peer->control.bytes_sent();
  return sum;
}

std::uint64_t Peers::control_messages_sent() const {
  std::uint64_t sum = 0;
  for (const auto& peer : peers_) sum += peer->control.messages_sent();
  return sum;
}

}  // namespace gradwire::tcp
