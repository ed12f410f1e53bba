// The connections of this rank, and sleeping on them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
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
  bool bulk_ended = false;  // the peer sends nothing more
  pid_t pid = 0;            // 0: not of this host
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
  explicit Peers(int size);
  ~Peers() override;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  Status start();
  // `epoch`: the top 8 bits of every tag.
  Status open(std::vector<Links> links, int own_rank, std::uint64_t epoch);

  // After Tickets::cancel_all(): messages are of another generation from now on.
  void rebuild(int own_rank, std::uint64_t epoch);
  // Of the rank's process, if it is of this host's process numbers.
  void know_process(int rank, pid_t pid) { at(rank).pid = pid; }
  void know_link(int rank) { at(rank).over_link = true; }

  int size() const { return static_cast<int>(peers_.size()); }
  const Peer& at(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  Peer& at(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }

  // Learns from the kernel which connections have news; sleeps until one has, wake() or `until`
  // (not at all if that has passed).
  Status look(Deadline until);
  void wake() const;

  void send(int rank, const comm::Control& message) override { at(rank).control.send(message); }
  void cut(int rank) override;
  bool surely_gone(int rank) const override;

  // Ranks whose messages may move.
  RankList& active() { return active_; }
  const RankList& active() const { return active_; }
  // Ranks whose control connections may have something.
  RankList& heard() { return heard_; }

  std::uint64_t control_bytes_sent() const;
  std::uint64_t control_messages_sent() const;

 private:
  enum class Line : std::uint8_t { kBulk, kControl, kWake };
  Status watch(int fd, int rank, Line line, std::uint32_t events);

  std::vector<std::unique_ptr<Peer>> peers_;
  RankList active_, heard_;
  rendezvous::Fd poll_;
  rendezvous::Fd wake_;
};

}  // namespace gradwire::tcp
