// Who of the job is there: heartbeats, suspicions, verdicts and goodbyes, over whatever carries
// control messages. No network in here: a Carrier sends, and tells what came.
//
// A rank watches its neighbours, two to each side of those that are there, and the ranks that it
// waits for: so the heartbeats of a job are O(ranks) a second. Those that it watches are asked for
// a heartbeat, unless they ask for one anyway. What it learns of a loss it tells all once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "comm/control.h"
#include "comm/liveness.h"
#include "comm/members.h"
#include "gradwire/rendezvous.h"
#include "gradwire/transport.h"

namespace gradwire::comm {

// kInvalidArgument, as of `transport`, for a rank that is none of the job, more than one rank
// without a store, or a liveness of less than two heartbeats.
Status check_job(const char* transport, const Rendezvous& rendezvous, double heartbeat_seconds,
                 double liveness_seconds);

struct MembershipOptions {
  Deadline::duration heartbeat;
  Deadline::duration patience;  // a rank that was silent for longer is lost
  Log log;
};

// One thread at a time.
class Membership {
 public:
  // kClosed: it said goodbye and all its data has been read.
  enum class State : std::uint8_t { kLive, kClosed, kLost };

  // What this class needs of a transport. Both are called from the public functions below.
  class Carrier {
   public:
    virtual ~Carrier() = default;
    // Best effort, never blocks, in order. A heartbeat may be dropped where much is under way.
    virtual void send(int rank, const Control& message) = 0;
    // Something can be sent to `rank` now, without a connection that is to be made first.
    virtual bool connected(int) const { return true; }
    // `rank` is lost: nothing more is to be sent to it or taken from it.
    virtual void cut(int rank) = 0;
  };

  Membership(Carrier& carrier, Members members, const MembershipOptions& options, Deadline now);

  const Members& members() const { return members_; }

  State state(int rank) const { return at(rank).state; }
  bool live(int rank) const { return at(rank).state == State::kLive; }
  // Why a ticket that names `rank`, which is not live, settles: "rank 2 lost: no heartbeat ...".
  Status why(int rank) const;
  const std::optional<LostPeer>& lost() const { return lost_; }

  // Says, when it is asked, for which ranks this one waits: they are watched too.
  void watch_also(std::function<std::vector<int>()> awaited) { awaited_ = std::move(awaited); }
  // The two next to either side that are not lost; without those that leave.
  std::vector<int> neighbours() const { return next_to(self()); }
  // Heartbeats, silence, suspicions that have ripened. To be called often.
  void tend(Deadline now);
  // When tend() has something to do, at the latest.
  Deadline next_event(Deadline now) const;
  // True once after some peer's state has changed.
  bool take_changed() { return std::exchange(changed_, false); }

  void heard(int rank) {
    at(rank).heard = true;
    liveness_.heard(rank);
  }
  void receive(const Control& message, Deadline now);
  // The network refused something with `rank`, or its connection ended. Becomes a loss unless a
  // goodbye or a verdict that explains it is on its way. That a connection was reset is no proof:
  // something between two live ranks can do that. A rank that was never heard of may have closed:
  // those next to it are asked.
  void suspect(int rank, const std::string& reason, Deadline now,
               LossCause cause = LossCause::kConnection);
  // What `rank` sent is of no job of this kind: it is lost at once.
  void condemn(int rank, const std::string& reason);
  // Nothing more can be read from `rank`; `reason` says why, in case it has said no goodbye.
  void data_over(int rank, const std::string& reason, Deadline now);
  // It has said goodbye; what it sent before may still have to be read.
  bool leaving(int rank) const { return at(rank).goodbye; }
  // Somebody waits for `rank`, which has closed.
  void need(int rank);
  void announce(const LostPeer& loss);

  // As Transport says.
  void tell(int rank, ConstByteSpan note);
  std::vector<Note> take_notes() { return std::exchange(notes_, {}); }
  bool has_notes() const { return !notes_.empty(); }
  std::vector<LostPeer> all_lost() const;
  void accept_losses();
  // kPeerLost if one of the survivors is lost; else nothing but they count from now on.
  Status rebuild(std::span<const int> survivors, std::uint32_t version);

  // There is a connection with `rank` now: it hears what it missed.
  void welcome(int rank);
  // Says goodbye to all that live.
  void say_goodbye();
  // Some live rank has not yet seen this rank's goodbye, as far as can be known.
  bool awaits_farewell() const;

 private:
  struct Peer {
    State state = State::kLive;
    bool heard = false;     // something came from it
    bool goodbye = false;   // it said so
    bool farewell = false;  // it has seen this rank's goodbye
    bool over = false;      // its data has been read to the end
    bool accepted = false;  // that it is lost
    bool certain = false;   // of the loss; once any rank knows it, for good
    LossCause cause = LossCause::kUnsaid;
    int reporter = -1;
    std::optional<Deadline> suspect_since;
    std::string reason;  // of the suspicion, then of the loss
  };

  int self() const { return members_.self(); }
  int size() const { return members_.size(); }
  Peer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  std::vector<int> next_to(int rank) const;
  void on_closed(const Control& message);
  void send(int rank, Control message);
  void beat();
  void unsuspect(int rank);
  void look_for_losses(Deadline now);
  void on_verdict(const Control& message);
  void lose(const LostPeer& loss, int reporter);
  void make_certain(int rank);
  std::string told(const LostPeer& loss, int reporter) const;
  // Whether all have been told: of a first loss they are, of a later one not.
  bool blame(const LostPeer& loss, int reporter);
  Control verdict_on(const LostPeer& loss, int reporter) const;
  void close_if_done(int rank);

  Carrier& carrier_;
  Members members_;
  MembershipOptions options_;
  std::vector<Peer> peers_;
  Liveness liveness_;
  std::function<std::vector<int>()> awaited_ = [] { return std::vector<int>(); };
  std::optional<LostPeer> lost_;
  std::optional<Control> verdict_;  // as it was passed on, for the goodbye
  std::optional<Control> goodbye_;  // this rank's own
  std::vector<Note> notes_;
  bool given_up_ = false;  // by the others
  bool changed_ = false;
  int suspects_ = 0;
  Deadline next_look_{};
};

}  // namespace gradwire::comm
