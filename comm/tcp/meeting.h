// How ranks come to their connections: who has something to say calls, and both prove that they
// know the called one's key.
//
// Between two ranks there are up to two connections, one for messages and one for control messages.
// All greetings go on at once, beside what the ranks do otherwise. Of two ranks that call each
// other at the same time the lower one's call counts. Strangers, garbage and silent connections
// cost a descriptor for a few seconds at most; of too many, the oldest goes first, and a rank that
// was turned away in such a crowd calls again.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "comm/rendezvous/hmac.h"
#include "comm/rendezvous/socket.h"
#include "comm/tcp/greeting.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::tcp {

struct PeerAddress {
  std::string host;  // numeric
  int port = 0;
  rendezvous::Mac key{};  // of connections to it
};

class Meeting {
 public:
  // Of one connection.
  struct News {
    int rank = 0;
    LinkKind kind = LinkKind::kBulk;
    rendezvous::Fd fd;  // the connection, non-blocking with TCP_NODELAY; or none was made now,
    int error = 0;      // because of this; 0: the other rank turned it away, or did not answer
  };

  // `peers` by rank; the own entry holds the own key. Listeners are listening sockets,
  // non-blocking; they stay open as long as this object lives.
  Meeting(int rank, std::vector<PeerAddress> peers, std::vector<rendezvous::Fd> listeners);
  Status start();

  // Readable when advance() has something to do, but for what next_event() says.
  int fd() const { return poll_.get(); }
  Deadline next_event() const { return next_event_; }
  // Makes a connection, unless there is one, or `rank` is barred. Tries on until there is.
  void call(int rank, LinkKind kind);
  bool calls(int rank, LinkKind kind) const { return find(rank, kind) != nullptr; }
  // No connection with `rank` is made any more.
  void bar(int rank);
  // Goes on with all that are being made. kUnsupported when there are no descriptors for them: what
  // make_room_for_descriptors() says.
  Result<std::vector<News>> advance(Deadline now);

  // Both connections with each of `ranks`, of which this one calls the higher ones, and what others
  // made meanwhile. kTimedOut at the deadline, naming a rank that is missing.
  Result<std::vector<News>> run(std::span<const int> ranks, Deadline deadline,
                                double timeout_seconds);

 private:
  // One connection that this rank makes.
  struct Call {
    enum class Stage : std::uint8_t { kIdle, kConnecting, kChallenge, kWelcome };
    Stage stage = Stage::kIdle;
    int peer = 0;
    LinkKind kind = LinkKind::kBulk;
    rendezvous::Fd fd;
    std::vector<std::byte> hello, in;
    Deadline again_at{};  // kIdle: when to try
    Deadline until{};     // else, but not once the proof has gone: when to give this try up
  };
  // One connection that somebody made to this rank.
  struct Guest {
    rendezvous::Fd fd;
    std::vector<std::byte> hello, challenge, in;
    Deadline until{};
    bool gone = false;
  };

  bool made(int rank, LinkKind kind) const {
    return (made_[static_cast<std::size_t>(rank)] & static_cast<std::uint8_t>(kind)) != 0;
  }
  const Call* find(int rank, LinkKind kind) const;
  bool welcomes(int rank, LinkKind kind) const;
  std::string missing(std::span<const int> ranks) const;
  void watch(int fd, std::uint32_t events, bool known) const;
  void accept_guests(Deadline now);
  void advance(Call& call, Deadline now);
  void connect(Call& call, Deadline now);
  void give_up(Call& call, Deadline now, int error);
  bool say_hello(Call& call);
  bool answer_challenge(Call& call);
  void advance(Guest& guest);
  void challenge(Guest& guest);
  void admit(Guest& guest);
  void make(int rank, LinkKind kind, rendezvous::Fd fd);
  const PeerAddress& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  int rank_;
  std::vector<PeerAddress> peers_;
  std::vector<rendezvous::Fd> listeners_;
  rendezvous::Fd poll_;
  std::vector<std::uint8_t> made_;  // by rank: kinds of connections that were made; or kBarred
  std::list<Call> calls_;
  std::deque<Guest> guests_;  // oldest first
  std::vector<News> news_;
  Deadline next_event_ = Deadline::max();
  bool exhausted_ = false;  // descriptors
};

}  // namespace gradwire::tcp
