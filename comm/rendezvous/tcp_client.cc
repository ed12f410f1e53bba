#include "comm/rendezvous/tcp_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/key_table.h"

namespace gradwire::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kOneTry(5);   // for one connection that answers nothing
constexpr std::chrono::seconds kOnePort(1);  // the same, where there are other ports to look at
// The server tells why a get() was in vain, in time that starts when the request arrives there.
constexpr std::chrono::seconds kGrace(2);

std::string text_of(ConstByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<std::shared_ptr<KeyValueStore>> TcpClient::join(const HostPort& where, int ports,
                                                       const TcpStoreOptions& options,
                                                       Deadline deadline) {
  const auto start = Clock::now();
  const std::string span = ports == 1 ? "" : format("-%d", where.port + ports - 1);
  const std::string context = format("rank %d: rendezvous at %s:%d%s", options.rank,
                                     where.host.c_str(), where.port, span.c_str());
  std::chrono::milliseconds pause(10);
  while (true) {
    auto joined = try_once(where, ports, options, deadline);
    if (joined.has_value()) return joined;
    const Status failure = joined.error();
    if (failure.code() != Code::kPeerLost && failure.code() != Code::kTimedOut)
      return failure.with_context(context);
    if (Clock::now() + pause >= deadline) {
      const std::chrono::duration<double> waited = Clock::now() - start;
      return Status(
          Code::kTimedOut,
          format("%s: rank 0 did not answer within %.1f s (last try: %s)", context.c_str(),
                 waited.count(), std::string(failure.message()).c_str()));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

Result<std::shared_ptr<KeyValueStore>> TcpClient::greet(Fd fd, const HostPort& where,
                                                        const TcpStoreOptions& options,
                                                        Deadline deadline) {
  GW_ASSIGN(Channel channel, shake_hands(fd.get(), options, deadline));
  return std::shared_ptr<KeyValueStore>(std::make_shared<TcpClient>(
      std::move(fd), std::move(channel), to_string(where), options.rank));
}

Result<std::shared_ptr<KeyValueStore>> TcpClient::try_once(const HostPort& where, int ports,
                                                           const TcpStoreOptions& options,
                                                           Deadline deadline) {
  if (ports == 1) {
    const Deadline until = std::min<Deadline>(deadline, Clock::now() + kOneTry);
    GW_ASSIGN(Fd fd, connect_to(where, until));
    return greet(std::move(fd), where, options, until);
  }
  // Whoever else answers, with whatever, is passed over: the next port may be ours, or this one be
  // ours later. The last one that refused says why, should it stay at that.
  Status refused(Code::kPeerLost, "no answer at any of the ports");
  for (int next = 0; next < ports && Clock::now() < deadline; ++next) {
    const HostPort here{where.host, where.port + next};
    const Deadline until = std::min<Deadline>(deadline, Clock::now() + kOnePort);
    Result<Fd> fd = connect_to(here, until);
    if (!fd.has_value() && fd.error().code() == Code::kPeerLost) continue;
    if (!fd.has_value()) return fd.error();
    auto joined = greet(std::move(fd).value(), here, options, until);
    if (joined.has_value()) return joined;
    refused = Status(Code::kPeerLost, format("port %d: %s", here.port,
                                             std::string(joined.error().message()).c_str()));
  }
  return refused;
}

TcpClient::TcpClient(Fd fd, Channel channel, std::string where, int rank)
    : fd_(std::move(fd)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      channel_(std::move(channel)),
      where_(std::move(where)),
      rank_(rank) {
  GW_CHECK(wake_.valid());
  fd_.keep_from_children();
}

TcpClient::~TcpClient() {
  if (!fd_.valid()) return;  // a child of fork(): the parent says goodbye
  std::unique_lock lock(mutex_);
  channel_.send(Kind::kBye, {});
  const Deadline until = Clock::now() + std::chrono::seconds(1);
  while (failed_.ok() && !channel_.outgoing().empty() && Clock::now() < until) pump(lock, until);
}

int TcpClient::port() const {
  const Result<HostPort> where = parse_host_port(where_);
  return where.has_value() ? where.value().port : 0;
}

Status TcpClient::set(std::string_view key, ConstByteSpan value, Deadline deadline) {
  GW_TRY(check_limits(key, value.size()));
  const std::uint32_t id = new_id();
  const Set message{id, std::string(key), {value.begin(), value.end()}};
  GW_ASSIGN(const Reply reply, ask(Kind::kSet, id, encode(message), deadline));
  if (reply.code == Code::kOk) return {};
  return {reply.code, format("rank %d: %s", rank_, text_of(reply.data).c_str())};
}

Result<std::vector<std::byte>> TcpClient::get(std::string_view key, Deadline deadline) {
  GW_TRY(check_limits(key, 0));
  const auto start = Clock::now();
  const std::uint32_t id = new_id();
  const Get message{id, static_cast<std::uint32_t>(poll_timeout(deadline)), std::string(key)};
  const Deadline latest = std::max<Deadline>(start, deadline) + kGrace;
  Result<Reply> reply = ask(Kind::kGet, id, encode(message), latest);
  if (!reply.has_value()) {
    if (reply.error().code() != Code::kTimedOut) return reply.error();
    const std::chrono::duration<double> waited = Clock::now() - start;
    return never_set(key, waited.count(), "rank 0 at " + where_ + " does not answer")
        .with_context(format("rank %d", rank_));
  }
  if (reply.value().code == Code::kOk) return std::move(reply.value().data);
  return Status(reply.value().code,
                format("rank %d: %s", rank_, text_of(reply.value().data).c_str()));
}

std::uint32_t TcpClient::new_id() {
  const std::lock_guard lock(mutex_);
  return ++last_id_;
}

Result<Reply> TcpClient::ask(Kind kind, std::uint32_t id, ConstByteSpan body, Deadline deadline) {
  std::unique_lock lock(mutex_);
  open_[id];
  channel_.send(kind, body);
  const std::uint64_t one = 1;
  if (pumping_) (void)!::write(wake_.get(), &one, sizeof one);
  while (true) {
    if (open_[id]) {
      Reply reply = std::move(*open_[id]);
      open_.erase(id);
      return reply;
    }
    if (failed_.ok() && Clock::now() < deadline) {
      if (pumping_) {
        progressed_.wait_until(lock, deadline);
      } else {
        pump(lock, deadline);
      }
      continue;
    }
    open_.erase(id);
    if (!failed_.ok()) return failed_;
    return Status(Code::kTimedOut,
                  format("rank %d: rendezvous at %s does not answer", rank_, where_.c_str()));
  }
}

Status TcpClient::closed(const Moved& moved) const {
  return {Code::kPeerLost,
          format("rank %d: rank 0 closed its rendezvous at %s%s%s", rank_, where_.c_str(),
                 moved.error != 0 ? ": " : "", moved.error != 0 ? std::strerror(moved.error) : "")};
}

void TcpClient::fail(Status status) {
  if (failed_.ok()) failed_ = std::move(status);
}

void TcpClient::pump(std::unique_lock<std::mutex>& lock, Deadline until) {
  const int events = channel_.outgoing().empty() ? POLLIN : POLLIN | POLLOUT;
  pollfd entries[2] = {{fd_.get(), static_cast<short>(events), 0}, {wake_.get(), POLLIN, 0}};
  pumping_ = true;
  lock.unlock();
  (void)::poll(entries, 2, poll_timeout(until));
  lock.lock();
  pumping_ = false;
  std::uint64_t count = 0;
  if (entries[1].revents != 0) (void)!::read(wake_.get(), &count, sizeof count);
  if (!channel_.outgoing().empty()) {
    const Moved moved = write_some(fd_.get(), channel_.outgoing());
    channel_.consume(moved.bytes);
    if (moved.kind == Moved::Kind::kClosed) fail(closed(moved));
  }
  if ((entries[0].revents & ~POLLOUT) != 0) {
    std::array<std::byte, 65536> chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const Moved moved = read_some(fd_.get(), chunk);
    channel_.receive(ConstByteSpan(chunk).first(moved.bytes));
    if (const Status status = take_replies(); !status.ok())
      fail(status.with_context(format("rank %d: rendezvous at %s", rank_, where_.c_str())));
    if (moved.kind == Moved::Kind::kClosed) fail(closed(moved));
  }
  progressed_.notify_all();
}

Status TcpClient::take_replies() {
  while (true) {
    GW_ASSIGN(const auto frame, channel_.next());
    if (!frame) return {};
    if (frame->kind != Kind::kReply)
      return {Code::kCorruptPayload, "rank 0 sent an unexpected message"};
    GW_ASSIGN(Reply reply, parse_reply(frame->body));
    const auto asked = open_.find(reply.id);  // late answers to given-up requests: dropped
    if (asked != open_.end()) asked->second = std::move(reply);
  }
}

}  // namespace gradwire::rendezvous
