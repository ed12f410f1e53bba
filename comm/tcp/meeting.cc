#include "comm/tcp/meeting.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/text.h"
#include "comm/descriptors.h"

namespace gradwire::tcp {
namespace {

using rendezvous::Fd;
using rendezvous::Moved;

constexpr auto kGreetingTime = std::chrono::seconds(3);
constexpr auto kRetry = std::chrono::milliseconds(50);
constexpr auto kLongestWait = std::chrono::milliseconds(100);
constexpr std::size_t kMostGuests = 256;
constexpr int kAcceptsAtOnce = 64;
constexpr std::uint8_t kBarred = 0xff;

// Greetings are far smaller than any socket's buffer: one that does not go at once goes nowhere.
bool send_all(const Fd& fd, ConstByteSpan bytes) {
  const Moved moved = rendezvous::write_some(fd.get(), bytes);
  return moved.kind == Moved::Kind::kSome && moved.bytes == bytes.size();
}

// Reads on until `in` holds `wanted` bytes and not one more: what follows belongs to others.
Moved::Kind read_up_to(const Fd& fd, std::vector<std::byte>& in, std::size_t wanted) {
  while (in.size() < wanted) {
    std::byte chunk[64];
    const std::size_t room = std::min(wanted - in.size(), sizeof chunk);
    const Moved moved = rendezvous::read_some(fd.get(), ByteSpan(chunk, room));
    if (moved.kind != Moved::Kind::kSome) return moved.kind;
    in.insert(in.end(), chunk, chunk + moved.bytes);
  }
  return Moved::Kind::kSome;
}

bool is_want_of_descriptors(int error) { return error == EMFILE || error == ENFILE; }

Status make_room() { return comm::make_room_for_descriptors(1, "tcp: a connection to a rank"); }

bool ready(const Fd& fd, short events) {
  pollfd entry{fd.get(), events, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

Meeting::Meeting(int rank, std::vector<PeerAddress> peers, std::vector<Fd> listeners)
    : rank_(rank),
      peers_(std::move(peers)),
      listeners_(std::move(listeners)),
      made_(peers_.size()) {
  made_[static_cast<std::size_t>(rank)] = kBarred;
  for (Fd& listener : listeners_) listener.keep_from_children();
}

Status Meeting::start() {
  poll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll_.valid()) {
    return {Code::kInternal, format("tcp: epoll_create1: %s", std::strerror(errno))};
  }
  for (const Fd& listener : listeners_) watch(listener.get(), EPOLLIN, false);
  return {};
}

// What is not watched, for want of memory in the kernel, is looked at when something else is.
void Meeting::watch(int fd, std::uint32_t events, bool known) const {
  epoll_event event{};
  event.events = events;
  (void)::epoll_ctl(poll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
}

const Meeting::Call* Meeting::find(int rank, LinkKind kind) const {
  const auto is_it = [&](const Call& call) { return call.peer == rank && call.kind == kind; };
  const auto found = std::ranges::find_if(calls_, is_it);
  return found == calls_.end() ? nullptr : &*found;
}

void Meeting::call(int rank, LinkKind kind) {
  if (made(rank, kind) || find(rank, kind) != nullptr) return;
  Call& call = calls_.emplace_back();
  call.peer = rank;
  call.kind = kind;
  next_event_ = Deadline();  // the next advance() begins it
}

void Meeting::bar(int rank) {
  made_[static_cast<std::size_t>(rank)] = kBarred;
  std::erase_if(calls_, [&](const Call& call) { return call.peer == rank; });
}

std::string Meeting::missing(std::span<const int> ranks) const {
  for (const int rank : ranks) {
    if (made(rank, LinkKind::kBulk) && made(rank, LinkKind::kControl)) continue;
    return format("rank %d (%s port %d): %s", rank, peer(rank).host.c_str(), peer(rank).port,
                  rank < rank_ ? "it did not call" : "it did not answer");
  }
  return {};
}

Result<std::vector<Meeting::News>> Meeting::run(std::span<const int> ranks, Deadline deadline,
                                                double timeout_seconds) {
  for (const int rank : ranks) {
    if (rank < rank_) continue;
    call(rank, LinkKind::kBulk);
    call(rank, LinkKind::kControl);
  }
  std::vector<News> links;
  while (true) {
    const Deadline now = std::chrono::steady_clock::now();
    GW_ASSIGN(std::vector<News> news, advance(now));
    for (News& one : news) {
      if (one.fd.valid()) links.push_back(std::move(one));
    }
    const std::string who = missing(ranks);
    if (who.empty()) return links;
    if (now >= deadline) {
      return Status(Code::kTimedOut, format("tcp: no connection within %.1f s with %s",
                                            timeout_seconds, who.c_str()));
    }
    epoll_event event{};
    const Deadline until = std::min({deadline, next_event_, now + kLongestWait});
    (void)::epoll_wait(poll_.get(), &event, 1, rendezvous::poll_timeout(until));
  }
}

Result<std::vector<Meeting::News>> Meeting::advance(Deadline now) {
  for (Call& call : calls_) advance(call, now);
  std::erase_if(calls_, [&](const Call& call) { return made(call.peer, call.kind); });
  accept_guests(now);
  for (Guest& guest : guests_) {
    advance(guest);
    if (now >= guest.until) guest.gone = true;
  }
  std::erase_if(guests_, [](const Guest& guest) { return guest.gone; });
  next_event_ = Deadline::max();
  for (const Guest& guest : guests_) next_event_ = std::min(next_event_, guest.until);
  for (const Call& call : calls_) {
    if (call.stage == Call::Stage::kWelcome) continue;
    next_event_ = std::min(next_event_, call.fd.valid() ? call.until : call.again_at);
  }
  if (std::exchange(exhausted_, false)) {
    const Status room = make_room();
    if (!room.ok()) return room;
  }
  return std::exchange(news_, {});
}

void Meeting::accept_guests(Deadline now) {
  for (const Fd& listener : listeners_) {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        const bool crowded = is_want_of_descriptors(errno);
        exhausted_ = exhausted_ || (crowded && guests_.empty());
        if (crowded && !guests_.empty()) guests_.pop_front();
        if (crowded || errno == ECONNABORTED || errno == EINTR) continue;
        break;
      }
      fd.keep_from_children();
      const int on = 1;
      (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (guests_.size() == kMostGuests) guests_.pop_front();
      guests_.emplace_back().fd = std::move(fd);
      guests_.back().until = now + kGreetingTime;
      watch(guests_.back().fd.get(), EPOLLIN, false);
    }
  }
}

void Meeting::advance(Call& call, Deadline now) {
  using Stage = Call::Stage;
  if (call.stage == Stage::kIdle) {
    if (now >= call.again_at) connect(call, now);
    return;
  }
  if (call.stage == Stage::kConnecting) {
    if (!ready(call.fd, POLLOUT)) {
      if (now >= call.until) give_up(call, now, 0);  // a queue there may be full
      return;
    }
    const int error = rendezvous::connect_error(call.fd.get());
    if (error != 0 || !say_hello(call)) give_up(call, now, error);
    return;
  }
  const bool challenged = call.stage == Stage::kChallenge;
  const std::size_t wanted = challenged ? kChallengeBytes : kWelcome.size();
  const Moved::Kind moved = read_up_to(call.fd, call.in, wanted);
  // What has come counts, however long this process was kept from reading it. Who has this rank's
  // proof may take the connection for made.
  const bool late = moved == Moved::Kind::kWait && challenged && now >= call.until;
  const bool wrong = moved == Moved::Kind::kSome && !answer_challenge(call);
  if (late || wrong || moved == Moved::Kind::kClosed) give_up(call, now, 0);
}

void Meeting::give_up(Call& call, Deadline now, int error) {
  call.stage = Call::Stage::kIdle;
  call.fd = Fd();
  call.again_at = now + kRetry;
  news_.push_back({.rank = call.peer, .kind = call.kind, .fd = Fd(), .error = error});
}

void Meeting::connect(Call& call, Deadline now) {
  call.in.clear();
  call.until = now + kGreetingTime;
  call.fd = rendezvous::begin_connect(peer(call.peer).host, peer(call.peer).port);
  if (!call.fd.valid()) {
    exhausted_ = exhausted_ || is_want_of_descriptors(errno);
    return give_up(call, now, errno);
  }
  call.fd.keep_from_children();
  call.stage = Call::Stage::kConnecting;
  watch(call.fd.get(), EPOLLOUT, false);
}

bool Meeting::say_hello(Call& call) {
  call.hello = encode(Hello{
      .kind = call.kind, .from = rank_, .to = call.peer, .nonce = rendezvous::random_nonce()});
  call.stage = Call::Stage::kChallenge;
  watch(call.fd.get(), EPOLLIN, true);
  return send_all(call.fd, call.hello);
}

// Its challenge, or its welcome, has come. False: it is none.
bool Meeting::answer_challenge(Call& call) {
  if (call.stage == Call::Stage::kChallenge) {
    const rendezvous::Mac& key = peer(call.peer).key;
    const bool known = is_challenge(key, call.hello, call.in);
    if (!known || !send_all(call.fd, make_proof(key, call.hello, call.in))) return false;
    call.stage = Call::Stage::kWelcome;
    call.in.clear();
    return true;
  }
  if (!std::ranges::equal(call.in, rendezvous::bytes_of_text(kWelcome))) return false;
  make(call.peer, call.kind, std::move(call.fd));
  return true;
}

void Meeting::make(int rank, LinkKind kind, Fd fd) {
  (void)::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
  made_[static_cast<std::size_t>(rank)] |= static_cast<std::uint8_t>(kind);
  news_.push_back({.rank = rank, .kind = kind, .fd = std::move(fd)});
}

// Of two calls the lower rank's counts.
bool Meeting::welcomes(int rank, LinkKind kind) const {
  if (rank >= static_cast<int>(peers_.size()) || made(rank, kind)) return false;
  const Call* const own = find(rank, kind);
  return own == nullptr || own->stage == Call::Stage::kIdle || rank < rank_;
}

void Meeting::advance(Guest& guest) {
  const bool greeted = !guest.hello.empty();
  const auto moved = read_up_to(guest.fd, guest.in, greeted ? kProofBytes : kHelloBytes);
  if (moved == Moved::Kind::kClosed) guest.gone = true;
  if (moved != Moved::Kind::kSome) return;
  greeted ? admit(guest) : challenge(guest);
  guest.in.clear();
}

void Meeting::challenge(Guest& guest) {
  const auto hello = decode_hello(guest.in);
  const bool fits = hello && hello->to == rank_ && welcomes(hello->from, hello->kind);
  guest.hello = guest.in;
  guest.challenge = make_challenge(peer(rank_).key, guest.hello, rendezvous::random_nonce());
  guest.gone = !fits || !send_all(guest.fd, guest.challenge);
}

void Meeting::admit(Guest& guest) {
  const auto hello = decode_hello(guest.hello);
  guest.gone = true;
  if (!hello || !is_proof(peer(rank_).key, guest.hello, guest.challenge, guest.in)) return;
  if (!welcomes(hello->from, hello->kind) ||
      !send_all(guest.fd, rendezvous::bytes_of_text(kWelcome)))
    return;
  make(hello->from, hello->kind, std::move(guest.fd));
  std::erase_if(calls_, [&](const Call& call) { return made(call.peer, call.kind); });
}

}  // namespace gradwire::tcp
