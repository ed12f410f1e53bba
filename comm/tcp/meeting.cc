#include "comm/tcp/meeting.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <utility>

#include "base/text.h"

namespace gradwire::tcp {
namespace {

using rendezvous::Fd;
using rendezvous::Moved;

constexpr auto kGreetingTime = std::chrono::seconds(3);
constexpr auto kRetry = std::chrono::milliseconds(50);
constexpr auto kLongestWait = std::chrono::milliseconds(100);
constexpr std::size_t kMostGuests = 256;
constexpr int kAcceptsAtOnce = 64;

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

// A connection in the making; none if that failed at once.
Fd start_connect(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return Fd();
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  Fd fd(::socket(found->ai_family, found->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Fd();
  const int on = 1;
  (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)
    return Fd();
  return fd;
}

bool connected(const Fd& fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

bool ready(const Fd& fd, short events) {
  pollfd entry{fd.get(), events, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

Meeting::Meeting(int rank, std::vector<PeerAddress> peers, std::vector<Fd> listeners)
    : rank_(rank),
      peers_(std::move(peers)),
      listeners_(std::move(listeners)),
      links_(peers_.size()) {
  for (Fd& listener : listeners_) listener.keep_from_children();
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (peer <= rank_) continue;
    for (const LinkKind kind : {LinkKind::kBulk, LinkKind::kControl}) {
      calls_.emplace_back().peer = peer;
      calls_.back().kind = kind;
    }
  }
}

bool Meeting::complete() const {
  for (int peer = 0; peer < static_cast<int>(links_.size()); ++peer) {
    const Links& links = links_[static_cast<std::size_t>(peer)];
    if (peer == rank_) continue;
    if (!links.bulk.valid() || !links.control.valid()) return false;
  }
  return true;
}

std::string Meeting::missing() const {
  for (int peer = 0; peer < static_cast<int>(links_.size()); ++peer) {
    const Links& links = links_[static_cast<std::size_t>(peer)];
    if (peer == rank_ || (links.bulk.valid() && links.control.valid())) continue;
    const PeerAddress& address = peers_[static_cast<std::size_t>(peer)];
    return format("rank %d (%s port %d): %s", peer, address.host.c_str(), address.port,
                  peer < rank_ ? "it did not call" : "it did not answer");
  }
  return "nobody";
}

Result<std::vector<Links>> Meeting::run(Deadline deadline, double timeout_seconds) {
  while (!complete()) {
    const Deadline now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return Status(Code::kTimedOut, format("tcp: no connection within %.1f s with %s",
                                            timeout_seconds, missing().c_str()));
    }
    for (Call& call : calls_) advance(call, now);
    accept_guests(now);
    for (Guest& guest : guests_) {
      advance(guest);
      if (now >= guest.until) guest.gone = true;
    }
    std::erase_if(guests_, [](const Guest& guest) { return guest.gone; });
    if (!complete()) wait(now, deadline);
  }
  listeners_.clear();
  guests_.clear();
  return std::move(links_);
}

void Meeting::wait(Deadline now, Deadline deadline) {
  std::vector<pollfd> fds;
  for (const Fd& listener : listeners_) fds.push_back({listener.get(), POLLIN, 0});
  for (const Guest& guest : guests_) fds.push_back({guest.fd.get(), POLLIN, 0});
  Deadline until = std::min(deadline, now + kLongestWait);
  for (const Call& call : calls_) {
    if (call.stage == Call::Stage::kIdle) until = std::min(until, call.again_at);
    if (!call.fd.valid()) continue;
    const bool connecting = call.stage == Call::Stage::kConnecting;
    fds.push_back({call.fd.get(), static_cast<short>(connecting ? POLLOUT : POLLIN), 0});
  }
  (void)::poll(fds.data(), fds.size(), rendezvous::poll_timeout(until));
}

void Meeting::accept_guests(Deadline now) {
  for (const Fd& listener : listeners_) {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        const bool crowded = errno == EMFILE || errno == ENFILE;
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
    }
  }
}

void Meeting::advance(Call& call, Deadline now) {
  using Stage = Call::Stage;
  if (call.stage == Stage::kDone) return;
  if (call.stage == Stage::kIdle) {
    if (now >= call.again_at) connect(call, now);
    return;
  }
  bool failed = false;
  bool late = now >= call.until;
  if (call.stage == Stage::kConnecting && ready(call.fd, POLLOUT)) {
    failed = !connected(call.fd);
    late = false;
    if (!failed) say_hello(call);
  } else if (call.stage == Stage::kChallenge || call.stage == Stage::kWelcome) {
    const std::size_t wanted = call.stage == Stage::kChallenge ? kChallengeBytes : kWelcome.size();
    const Moved::Kind moved = read_up_to(call.fd, call.in, wanted);
    failed = moved == Moved::Kind::kClosed;
    // What has come counts, however long this process was kept from reading it.
    late = late && moved == Moved::Kind::kWait;
    if (moved == Moved::Kind::kSome) answer_challenge(call);
  }
  if (!failed && !late && call.stage != Stage::kIdle) return;
  call.stage = Stage::kIdle;
  call.fd = Fd();
  call.again_at = now + kRetry;
}

void Meeting::connect(Call& call, Deadline now) {
  call.in.clear();
  call.until = now + kGreetingTime;
  call.again_at = now + kRetry;
  call.fd = start_connect(peer(call.peer).host, peer(call.peer).port);
  call.fd.keep_from_children();
  if (call.fd.valid()) call.stage = Call::Stage::kConnecting;
}

void Meeting::say_hello(Call& call) {
  call.hello = encode(Hello{
      .kind = call.kind, .from = rank_, .to = call.peer, .nonce = rendezvous::random_nonce()});
  call.stage = send_all(call.fd, call.hello) ? Call::Stage::kChallenge : Call::Stage::kIdle;
}

// Its challenge, or its welcome, has come.
void Meeting::answer_challenge(Call& call) {
  using Stage = Call::Stage;
  if (call.stage == Stage::kChallenge) {
    const rendezvous::Mac& key = peer(call.peer).key;
    const bool known = is_challenge(key, call.hello, call.in);
    call.stage = known && send_all(call.fd, make_proof(key, call.hello, call.in)) ? Stage::kWelcome
                                                                                  : Stage::kIdle;
    call.in.clear();
    return;
  }
  const auto expected = std::as_bytes(std::span(kWelcome.data(), kWelcome.size()));
  if (!std::ranges::equal(call.in, expected)) {
    call.stage = Stage::kIdle;
    return;
  }
  call.stage = Stage::kDone;
  (call.kind == LinkKind::kBulk ? link(call.peer).bulk : link(call.peer).control) =
      std::move(call.fd);
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
  const bool fits = hello && hello->to == rank_ && hello->from < rank_;
  guest.hello = guest.in;
  guest.challenge = make_challenge(peer(rank_).key, guest.hello, rendezvous::random_nonce());
  guest.gone = !fits || !send_all(guest.fd, guest.challenge);
}

// Of a rank that calls twice the later call counts: it has given the earlier one up.
void Meeting::admit(Guest& guest) {
  const auto hello = decode_hello(guest.hello);
  const auto welcome = std::as_bytes(std::span(kWelcome.data(), kWelcome.size()));
  guest.gone = true;
  if (!hello || !is_proof(peer(rank_).key, guest.hello, guest.challenge, guest.in)) return;
  if (!send_all(guest.fd, welcome)) return;
  Links& links = link(hello->from);
  (hello->kind == LinkKind::kBulk ? links.bulk : links.control) = std::move(guest.fd);
}

}  // namespace gradwire::tcp
