// What the ranks of one process share: who is alive, and which sends wait for which receives.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/inproc/virtual_clock.h"
#include "comm/tickets.h"
#include "gradwire/transport.h"

namespace gradwire::inproc {

struct Op : comm::Message<Op> {
  // Waiting: in its receiver's list. Matched: met its partner, nothing copied yet, can be undone.
  // Copying: the receiver's thread is reading and writing the memory; nobody else may end it.
  enum class State : std::uint8_t { kWaiting, kMatched, kCopying, kDone } state = State::kWaiting;
  Op* partner = nullptr;
  int owner = 0;
  std::uint64_t number = 0;  // in the order of posting
  ExactTime posted;          // both of the virtual clock, if there is one
  ExactTime ended;
};
using Batch = comm::Batch<Op>;

// One mutex guards everything but the copying itself. Every function is thread-safe; `rank` says
// on whose behalf it runs.
class Hub {
 public:
  // clock: may be null.
  Hub(int size, double silence_seconds, std::shared_ptr<VirtualClock> clock = nullptr);

  int size() const { return static_cast<int>(ranks_.size()); }
  Ticket post(int rank, std::span<const Transfer> batch);
  // Copies what has met and was addressed to `rank`; returns its tickets settled since last time.
  int progress(int rank);
  std::optional<Status> poll(int rank, Ticket ticket);
  std::size_t received(int rank, Ticket ticket, std::size_t index);
  bool has_message(int rank, int peer, std::uint64_t tag, std::uint64_t any);
  void cancel(int rank, Ticket ticket);
  std::optional<LostPeer> lost(int rank);
  void announce(int rank, const LostPeer& culprit);
  void tell(int rank, int peer, ConstByteSpan note);
  std::vector<Note> take_notes(int rank);
  std::vector<LostPeer> all_lost(int rank);
  void accept_losses(int rank);
  void sever(int rank);
  Status rebuild(int rank, std::span<const int> survivors, std::uint32_t generation);
  void wait(int rank, Deadline until);
  void wake(int rank);
  TransportStats stats(int rank);

  void kill(int rank);
  void stop(int rank);
  // The goodbye: afterwards nothing of this rank's memory is referred to.
  void close(int rank);

 private:
  // Messages that wait, by hash of source and tag; of equal ones only sends, or only receives.
  using Waiting = std::array<comm::WaitingOps<Op>, 64>;

  struct Rank {
    std::condition_variable news;
    bool woken = false;
    bool watches = false;  // a send to this rank that meets no receive wakes it
    int copying = 0;       // own ops in state kCopying
    comm::BatchTable<Op> batches;
    Waiting waiting;                // of messages addressed to this rank
    std::vector<Op*> ready, spare;  // own receives in state kMatched; memory for the next of them
    TransportStats stats;
    std::optional<LostPeer> lost;
    std::set<int> accepted;  // ranks whose loss is no news to it
    bool closed = false;
    std::optional<std::string> gone;  // why no peer can reach this rank any more
    std::optional<Deadline> silent_after;
    std::vector<Note> notes;
    bool severed = false;
    std::uint64_t generation = 0;
    std::optional<std::vector<int>> members;  // since the last rebuild; before it, all
  };

  // All below need the mutex.
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  comm::WaitingOps<Op>& waiting_with(const Op& op);
  void start(Op& op);
  void time(Op& send, Op& receive);
  void unmatch(Op& op);
  void withdraw(Op& op);
  void finish(Op& op);
  void fail(Batch& batch, const Status& why);
  void fail_all(int rank, const Status& why);
  void fail_tickets_with(int peer, const std::string& reason, const Status& why);
  void lose(int rank, const std::string& reason, int reporter,
            LossCause cause = LossCause::kConnection);
  void name(const LostPeer& culprit, int reporter);
  bool is_member(int rank, int of) const;
  void look_for_silence();
  std::optional<Status> unreachable(int rank, std::span<const Transfer> batch);

  std::mutex mutex_;
  std::deque<Rank> ranks_;  // a deque: condition variables do not move
  std::uint64_t next_op_ = 0;
  double silence_seconds_;
  std::shared_ptr<VirtualClock> clock_;
  std::optional<Deadline> next_silence_;
};

}  // namespace gradwire::inproc
