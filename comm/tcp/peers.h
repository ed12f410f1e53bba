// The connections of this rank, and sleeping on them.
//
// A rank has connections with its neighbours from the start, and with others once one of the two
// has something to say; one for messages never without one for control messages.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/membership.h"
#include "comm/rendezvous/socket.h"
#include "comm/tcp/control_line.h"
#include "comm/tcp/inbound.h"
#include "comm/tcp/meeting.h"
#include "comm/tcp/outbound.h"
#include "gradwire/status.h"

namespace gradwire::tcp {

struct Peer {
  Outbound out;
  Inbound in;
  ControlLine control;
  bool came = false;        // something, in the last turn
  bool bulk_ended = false;  // the peer sends nothing more
  bool wants_bulk = false;  // once there is a control connection
  bool over_link = false;   // it is on another host
};

// Ranks that somebody has to look at, each once, so that nobody looks at all.
class RankList {
 public:
  explicit RankList(int size) : listed_(static_cast<std::size_t>(size)) {}
  void add(int rank) {
    if (listed_[static_cast<std::size_t>(rank)]) return;
    listed_[static_cast<std::size_t>(rank)] = true;
    ranks_.push_back(rank);
  }
  std::span<const int> ranks() const { return ranks_; }
  // Keeps those for which `keep` is true. Looks no further once it has found `most` of them.
  template <typename Keep>
  void visit(Keep keep, std::size_t most = SIZE_MAX) {
    std::size_t kept = 0, next = 0;
    while (next < ranks_.size() && kept < most) {
      const int rank = ranks_[next++];
      if (keep(rank)) {
        ranks_[kept++] = rank;
      } else {
        listed_[static_cast<std::size_t>(rank)] = false;
      }
    }
    ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(kept),
                 ranks_.begin() + static_cast<std::ptrdiff_t>(next));
  }

 private:
  std::vector<int> ranks_;
  std::vector<bool> listed_;
};

// One thread at a time, but for wake().
class Peers final : public comm::Membership::Carrier {
 public:
  Peers(int rank, int size);
  ~Peers() override;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // `epoch`: the top bits of every tag.
  Status start(std::uint64_t epoch);
  // From now on connections are made; of a rank that is alone none.
  Status meet(std::unique_ptr<Meeting> meeting);
  // With a rank of which no connection was cut: the control connection, and one for messages.
  void connect(int rank, bool bulk);
  // What has become of connections that are being made, for open(). Errors: as Meeting::advance().
  Result<std::vector<Meeting::News>> take_news(Deadline now);
  Status open(int rank, LinkKind kind, rendezvous::Fd fd);
  // No connection with `rank` is made any more.
  void give_up(int rank) {
    if (meeting_) meeting_->bar(rank);
  }
  // When take_news() has something to do, at the latest, but for what look() learns.
  Deadline next_event() const { return meeting_ ? meeting_->next_event() : Deadline::max(); }
  // The rank's messages come, or will.
  bool receives_from(int rank) const {
    return at(rank).in.is_open() || (meeting_ && meeting_->calls(rank, LinkKind::kBulk));
  }

  // After Tickets::cancel_all(): messages are of another generation from now on.
  void rebuild(std::uint64_t epoch);
  int size() const { return static_cast<int>(peers_.size()); }
  const Peer& at(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  Peer& at(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }

  // Learns from the kernel which connections have news; sleeps until one has, wake() or `until`
  // (not at all if that has passed).
  Status look(Deadline until);
  void wake() const { rendezvous::wake(wake_); }

  void send(int rank, const comm::Control& message) override;
  bool connected(int rank) const override { return at(rank).control.is_open(); }
  void cut(int rank) override;

  // Ranks whose messages may move.
  RankList& active() { return active_; }
  const RankList& active() const { return active_; }
  // Ranks whose control connections may have something.
  RankList& heard() { return heard_; }

 private:
  enum class Line : std::uint8_t { kBulk, kControl, kWake, kMeeting };
  Status watch(int fd, int rank, Line line, std::uint32_t events);

  int rank_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::unique_ptr<Meeting> meeting_;
  bool meeting_ready_ = false;
  RankList active_, heard_;
  rendezvous::Fd poll_;
  rendezvous::Fd wake_;
};

}  // namespace gradwire::tcp
