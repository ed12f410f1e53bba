// How the ranks of a job come to their connections: of two ranks the lower one calls, and both
// prove that they know the called one's key.
//
// Between two ranks there are two connections, one for messages and one for control messages. All
// greetings go on at once. Strangers, garbage and silent connections cost a descriptor for a few
// seconds at most; of too many, the oldest goes first, and a rank that was turned away in such a
// crowd calls again.
#pragma once

#include <deque>
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

struct Links {
  rendezvous::Fd bulk;
  rendezvous::Fd control;
};

class Meeting {
 public:
  // `peers` by rank; the own entry holds the own key. Listeners are listening sockets,
  // non-blocking.
  Meeting(int rank, std::vector<PeerAddress> peers, std::vector<rendezvous::Fd> listeners);

  // All connections, by rank (nothing at the own one), all non-blocking with TCP_NODELAY; the
  // listeners are closed. kTimedOut at the deadline, naming a rank that is missing.
  Result<std::vector<Links>> run(Deadline deadline, double timeout_seconds);

 private:
  // One connection that this rank makes.
  struct Call {
    enum class Stage : std::uint8_t { kIdle, kConnecting, kChallenge, kWelcome, kDone };
    Stage stage = Stage::kIdle;
    int peer = 0;
    LinkKind kind = LinkKind::kBulk;
    rendezvous::Fd fd;
    std::vector<std::byte> hello, in;
    Deadline again_at{};  // kIdle: when to try
    Deadline until{};     // else: when to give this try up
  };
  // One connection that somebody made to this rank.
  struct Guest {
    rendezvous::Fd fd;
    std::vector<std::byte> hello, challenge, in;
    Deadline until{};
    bool gone = false;
  };

  bool complete() const;
  std::string missing() const;
  void wait(Deadline now, Deadline deadline);
  void accept_guests(Deadline now);
  void advance(Call& call, Deadline now);
  void connect(Call& call, Deadline now);
  void say_hello(Call& call);
  void answer_challenge(Call& call);
  void advance(Guest& guest);
  void challenge(Guest& guest);
  void admit(Guest& guest);
  Links& link(int rank) { return links_[static_cast<std::size_t>(rank)]; }
  const PeerAddress& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  int rank_;
  std::vector<PeerAddress> peers_;
  std::vector<rendezvous::Fd> listeners_;
  std::vector<Links> links_;
  std::vector<Call> calls_;
  std::deque<Guest> guests_;  // oldest first
};

}  // namespace gradwire::tcp
