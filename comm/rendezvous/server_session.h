// One client of the TCP store as its server sees it: bytes in, bytes out, no socket.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/key_table.h"

namespace gradwire::rendezvous {

// Both ends derive the same bytes from the secret, who is talking, and both nonces.
struct SessionKeys {
  Mac client_proof{};
  Mac server_proof{};
  Mac to_server{};
  Mac to_client{};
};
SessionKeys derive_keys(std::string_view secret, const Hello& hello, const Challenge& challenge);

// Who is in the job, as rank 0 knows it. Thread-safe.
class Roster {
 public:
  // kDropped: its connection broke before it asked for anything, as when the client had no patience
  // for the welcome. It may come again, and counts as lost until then.
  enum class Presence : std::uint8_t { kNever, kHere, kDone, kLost, kDropped };

  explicit Roster(int size) : presence_(static_cast<std::size_t>(size), Presence::kNever) {
    presence_[0] = Presence::kHere;
  }
  // A refusal when the rank is there or was there already.
  std::optional<Refuse> join(std::uint32_t rank);
  void leave(std::uint32_t rank, Presence now);
  int count(Presence presence) const;
  // A connection was refused for good: missing() mentions the last one, since it may be a rank that
  // the others wait for. Its bytes may be anybody's: what cannot be printed becomes '?'.
  void note_refusal(std::uint32_t rank, std::string reason);
  // "ranks that did not join: 2, 5; ranks that disconnected early: 1; refused connections: 1, the
  // last of rank 2: wrong secret", or "" when all are here.
  std::string missing() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Presence> presence_;
  std::uint64_t refusals_ = 0;
  std::string last_refusal_;
};

// What all sessions of one store share.
struct JobState {
  JobState(std::string name, int world_size, std::string job_secret)
      : job(std::move(name)), size(world_size), secret(std::move(job_secret)), roster(world_size) {}
  const std::string job;
  const int size;
  const std::string secret;
  KeyTable table;
  Roster roster;
};

class ServerSession {
 public:
  static constexpr std::size_t kMaxWaiting = 4096;  // open gets of one client

  explicit ServerSession(JobState& job) : job_(job) {}
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;
  // The connection is gone.
  ~ServerSession();

  // Takes what arrived (or, with no bytes, goes on with what arrived before). An error is the
  // server's own note why this connection must end; where the client can be told, the telling is in
  // channel().outgoing().
  Status receive(ConstByteSpan bytes, Deadline now);
  // Answers the gets whose key is there or whose time is over.
  void answer_waiting(Deadline now);
  // When answer_waiting() has something to do at the latest.
  std::optional<Deadline> next_deadline() const;

  // So much is waiting to be written that nothing more is taken or answered: a client that asks
  // and does not read may not fill the server's memory.
  bool backlogged() const { return channel_.outgoing().size() > 2 * kMaxPayloadBytes; }
  // Said which rank of this job it is, and has its challenge; not proven yet.
  bool proving() const { return stage_ == Stage::kProof; }
  bool joined() const { return stage_ == Stage::kJoined; }
  // Said goodbye, or was refused: close once outgoing() is written.
  bool over() const { return stage_ == Stage::kOver; }
  Channel& channel() { return channel_; }

 private:
  enum class Stage : std::uint8_t { kHello, kProof, kJoined, kOver };
  struct Waiting {
    Get get;
    Deadline since;
    Deadline until;
  };
  Status handle(const Frame& frame, Deadline now);
  Status on_hello(ConstByteSpan body);
  Status on_proof(ConstByteSpan body);
  Status on_get(ConstByteSpan body, Deadline now);
  Status on_set(ConstByteSpan body);
  Status refuse(Refuse refusal);
  void reply(std::uint32_t id, Code code, ConstByteSpan data);

  JobState& job_;
  Channel channel_;
  Stage stage_ = Stage::kHello;
  Hello hello_;
  SessionKeys keys_;
  bool present_ = false;
  bool has_asked_ = false;
  std::vector<Waiting> waiting_;
};

}  // namespace gradwire::rendezvous
