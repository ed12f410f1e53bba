// The asking half of the TCP store.
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/rendezvous/key_table.h"
#include "comm/rendezvous/server_session.h"
#include "comm/rendezvous/tcp_store.h"

namespace gradwire::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kOneTry(5);   // for one connection that answers nothing
constexpr std::chrono::seconds kOnePort(1);  // the same, where there are other ports to look at
// The server tells why a get() was in vain, in time that starts when the request arrives there.
constexpr std::chrono::seconds kGrace(2);

Status flush(int fd, Channel& channel, Deadline deadline) {
  GW_TRY(write_all(fd, channel.outgoing(), deadline));
  channel.consume(channel.outgoing().size());
  return {};
}

// The next message, which must be of `wanted`; a refusal becomes the error it stands for.
Result<Frame> expect(int fd, Channel& channel, Kind wanted, Deadline deadline) {
  while (true) {
    GW_ASSIGN(auto frame, channel.next());
    if (frame && frame->kind == wanted) return *std::move(frame);
    if (frame && frame->kind == Kind::kRefuse) {
      GW_ASSIGN(const Refuse refusal, parse_refuse(frame->body));
      return Status(refusal.again ? Code::kPeerLost : refusal.code, "refused: " + refusal.reason);
    }
    if (frame)
      return Status(Code::kCorruptPayload,
                    format("message %d (expected %d)", static_cast<int>(frame->kind),
                           static_cast<int>(wanted)));
    std::array<std::byte, 4096> chunk{};
    const auto bytes = read_more(fd, chunk, deadline);
    if (!bytes.has_value()) return bytes.error().with_context("handshake");
    channel.receive(ConstByteSpan(chunk).first(bytes.value()));
  }
}

Result<Channel> talk(int fd, const TcpStoreOptions& options, Deadline deadline) {
  const bool sealed = !options.secret.empty();
  const Hello hello{kVersion,
                    sealed,
                    static_cast<std::uint32_t>(options.rank),
                    static_cast<std::uint32_t>(options.size),
                    random_nonce(),
                    options.job};
  Channel channel;
  channel.send(Kind::kHello, encode(hello));
  GW_TRY(flush(fd, channel, deadline));

  GW_ASSIGN(const Frame answer, expect(fd, channel, Kind::kChallenge, deadline));
  GW_ASSIGN(const Challenge challenge, parse_challenge(answer.body));
  if (challenge.sealed != sealed)
    return Status(Code::kCorruptPayload, "the server refuses to use the secret");
  SessionKeys keys;
  if (sealed) keys = derive_keys(options.secret, hello, challenge);
  channel.send(Kind::kProof, encode(Proof{keys.client_proof}));
  GW_TRY(flush(fd, channel, deadline));

  GW_ASSIGN(const Frame welcome, expect(fd, channel, Kind::kWelcome, deadline));
  GW_ASSIGN(const Proof proof, parse_proof(welcome.body));
  if (!equal(proof.mac, keys.server_proof))
    return Status(Code::kCorruptPayload, "the server does not know the secret");
  if (sealed) channel.seal(keys.to_server, keys.to_client);
  channel.allow_large();
  return channel;
}

class TcpClient final : public TcpStore {
 public:
  TcpClient(Fd fd, Channel channel, HostPort where, int rank);
  TcpClient(const TcpClient&) = delete;
  TcpClient& operator=(const TcpClient&) = delete;
  ~TcpClient() override;

  Status set(std::string_view key, ConstByteSpan value, Deadline deadline) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;
  HostPort where() const override { return where_; }

 private:
  // Sends a request, of a new id, and waits for the reply that carries that. Whichever caller finds
  // nobody reading reads for all; the others sleep.
  template <typename Message>
  Result<Reply> ask(Kind kind, Message message, Deadline deadline);
  // One turn at the socket, called and left with the lock held, which it gives up while it sleeps.
  void pump(std::unique_lock<std::mutex>& lock, Deadline until);
  Status take_replies();
  void fail(Status status);
  Status closed(const Moved& moved) const;

  Fd fd_;
  const Fd wake_;  // ends the sleep of the one who pumps
  std::mutex mutex_;
  std::condition_variable progressed_;
  Channel channel_;
  const HostPort where_;
  const int rank_;
  bool pumping_ = false;
  std::uint32_t last_id_ = 0;
  std::map<std::uint32_t, std::optional<Reply>> open_;  // asked; with the answer once it is there
  Status failed_;                                       // of the connection; sticky
};

TcpClient::TcpClient(Fd fd, Channel channel, HostPort where, int rank)
    : fd_(std::move(fd)),
      wake_(make_waker()),
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

Status TcpClient::set(std::string_view key, ConstByteSpan value, Deadline deadline) {
  GW_TRY(check_limits(key, value.size()));
  GW_ASSIGN(const Reply reply,
            ask(Kind::kSet, Set{0, std::string(key), {value.begin(), value.end()}}, deadline));
  if (reply.code == Code::kOk) return {};
  return {reply.code, format("rank %d: %s", rank_, text_of_bytes(reply.data).c_str())};
}

Result<std::vector<std::byte>> TcpClient::get(std::string_view key, Deadline deadline) {
  GW_TRY(check_limits(key, 0));
  const auto start = Clock::now();
  const Get message{0, static_cast<std::uint32_t>(poll_timeout(deadline)), std::string(key)};
  const Deadline latest = std::max<Deadline>(start, deadline) + kGrace;
  Result<Reply> reply = ask(Kind::kGet, message, latest);
  if (!reply.has_value()) {
    if (reply.error().code() != Code::kTimedOut) return reply.error();
    const std::chrono::duration<double> waited = Clock::now() - start;
    return never_set(key, waited.count(), "rank 0 at " + to_string(where_) + " does not answer")
        .with_context(format("rank %d", rank_));
  }
  if (reply.value().code == Code::kOk) return std::move(reply.value().data);
  return Status(reply.value().code,
                format("rank %d: %s", rank_, text_of_bytes(reply.value().data).c_str()));
}

template <typename Message>
Result<Reply> TcpClient::ask(Kind kind, Message message, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const std::uint32_t id = message.id = ++last_id_;
  open_[id];
  channel_.send(kind, encode(message));
  if (pumping_) wake(wake_);
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
    return Status(Code::kTimedOut, format("rank %d: rendezvous at %s does not answer", rank_,
                                          to_string(where_).c_str()));
  }
}

Status TcpClient::closed(const Moved& moved) const {
  return {Code::kPeerLost, format("rank %d: rank 0 closed its rendezvous at %s%s%s", rank_,
                                  to_string(where_).c_str(), moved.error != 0 ? ": " : "",
                                  moved.error != 0 ? std::strerror(moved.error) : "")};
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
  if (entries[1].revents != 0) take_wake(wake_);
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
      fail(status.with_context(
          format("rank %d: rendezvous at %s", rank_, to_string(where_).c_str())));
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

// One connection, or one to each of several ports. Another server's answer there, whatever it is,
// is passed over: the next port may be ours, or this one be ours later. The last one that refused
// says why, should it stay at that.
Result<std::shared_ptr<KeyValueStore>> try_once(const HostPort& where, int ports,
                                                const TcpStoreOptions& options, Deadline deadline) {
  Status refused(Code::kPeerLost, "no answer at any of the ports");
  for (int next = 0; next < ports && (next == 0 || Clock::now() < deadline); ++next) {
    const HostPort here{where.host, where.port + next};
    const Deadline until =
        std::min<Deadline>(deadline, Clock::now() + (ports == 1 ? kOneTry : kOnePort));
    Result<Fd> fd = connect_to(here, until);
    if (!fd.has_value() && fd.error().code() == Code::kPeerLost && ports > 1) continue;
    if (!fd.has_value()) return fd.error();
    Result<Channel> channel = shake_hands(fd.value().get(), options, until);
    if (channel.has_value()) {
      return std::shared_ptr<KeyValueStore>(std::make_shared<TcpClient>(
          std::move(fd).value(), std::move(channel).value(), here, options.rank));
    }
    if (ports == 1) return channel.error();
    refused = Status(Code::kPeerLost, format("port %d: %s", here.port,
                                             std::string(channel.error().message()).c_str()));
  }
  return refused;
}

}  // namespace

Result<Channel> shake_hands(int fd, const TcpStoreOptions& options, Deadline deadline) {
  Result<Channel> channel = talk(fd, options, deadline);
  if (!channel.has_value() && channel.error().code() == Code::kCorruptPayload)
    return Status(Code::kInvalidArgument,
                  format("the server there is no gradwire rendezvous of this job: %s",
                         std::string(channel.error().message()).c_str()));
  return channel;
}

Result<std::shared_ptr<KeyValueStore>> join_tcp_store(const HostPort& where, int ports,
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

}  // namespace gradwire::rendezvous
