// Sends and receives of a group whose ranks are on one host, through rings in its memory: those of
// one rank.
//
// A short message is in the ring when send() returns, as long as the receiver has taken most of
// what went before; a longer one is lent: the ring says where it is, and the receiver copies it
// from there, with the sender's help where that waits (lent_message.h). The receiver keeps what it
// meets before it is asked for: a copy of short ones, of which a sender has few MiB under way, and
// the place of longer ones. So receives may come in any order, and little piles up.
//
// The caller's thread does the work, in its calls and waits. What takes longer becomes an operation
// of the engine, which then does it (quick_work.h).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/biased_lock.h"
#include "collectives/engine/quick_work.h"
#include "collectives/plan/path.h"
#include "collectives/shm/channel.h"
#include "collectives/shm/lent_message.h"
#include "collectives/shm/message_ring.h"

namespace gradwire {

// What one rank of a group makes, in its own share, for its messages to all. Zeroed memory is a
// valid one.
struct ShmOutbox {
  ShmCommon common;  // broken: that of rank 0 says so for all
  // 1 once its rank sends and receives no more, and that not because of a failure.
  std::atomic<std::uint32_t> gone;

  // To that rank.
  MessageRing& ring(int rank) { return reinterpret_cast<MessageRing*>(this + 1)[rank]; }
  static std::size_t bytes(int ranks) {
    return sizeof(ShmOutbox) + static_cast<std::size_t>(ranks) * sizeof(MessageRing);
  }
};

// Any thread, but start() and close(): the communicator's.
class ShmMessages final : public QuickWork, public std::enable_shared_from_this<ShmMessages> {
 public:
  // places: arena ranks by group rank, all of which can read each other's processes. outboxes: by
  // group rank, offsets in the arena.
  ShmMessages(const Group& group, std::shared_ptr<ShmBoards> boards, std::vector<int> places,
              std::span<const std::uint64_t> outboxes);
  // Leaves the outboxes.
  ~ShmMessages() override;
  ShmMessages(const ShmMessages&) = delete;
  ShmMessages& operator=(const ShmMessages&) = delete;

  // A checked send or recv of host memory. work: of a batch that it is one operation of, or null.
  // The result's Work is of a single call.
  Result<Work> start(const CheckedCall& call, const std::shared_ptr<WorkState>& work);
  // As Communicator::probe(), of arguments that have been checked.
  Result<int> probe(int peer, int tag, Deadline until);
  // Nothing is started from now on. What is open goes on, and the other ranks hear of the end when
  // that has ended; of a failure they hear otherwise.
  void close(bool failed);
  std::uint64_t bytes_sent() const { return bytes_->load(std::memory_order_relaxed); }

  void look() override;
  bool wait_briefly(const WorkState& work, const std::optional<Deadline>& until) override;
  bool hand_over(ProgressEngine& engine) override;

 private:
  class Run;
  class Look;
  struct Open;
  using OpenPtr = std::shared_ptr<Open>;
  // What a ring says of a message; data: of a short one.
  struct Arrived {
    MessageRing::Kind kind;
    MessageRing::Lent lent;  // its bytes; all else of a longer one
    const std::byte* data;
  };
  // A message that has come before its receive.
  struct Early {
    int tag;
    std::uint8_t dtype;
    Arrived message;
    std::unique_ptr<std::byte[]> data;  // of a short one
  };
  struct Peer {
    MessageWriter out;
    MessageReader in;
    std::deque<Early> early;
    int wanted = 0;        // receives and probes that wait for it alone
    int unsent = 0;        // sends that are not in the ring yet
    bool held = false;     // one of them found no room in this look
    bool rings = false;    // it may sleep until what this look has done
    bool helps = false;    // it puts parts of what it lends into its stage
    Deadline helps_until;  // unless it does so again
    // Seconds a byte that the copies of what it lends have taken of late: out of its stage, and
    // out of its process. 0: not known.
    double taking = 0;
    double pulling = 0;
    std::uint32_t pulled = 0;  // parts, since it was asked to help
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(places_.size()); }
  int job_rank(int rank) const { return (*route_.group)[static_cast<std::size_t>(rank)]; }
  shm::Bell& bell(int rank) const {
    return boards_->arena().bell(places_[static_cast<std::size_t>(rank)]);
  }
  LentMessage& lent_at(std::uint64_t offset) const {
    return *reinterpret_cast<LentMessage*>(boards_->arena().at(offset));
  }
  MessageStage& stage_at(std::uint64_t offset) const {
    return *reinterpret_cast<MessageStage*>(boards_->arena().at(offset));
  }
  bool is_done(const Open& send) const;
  bool is_gone(int rank) const { return outbox(rank).gone.load(std::memory_order_acquire) != 0; }
  ShmOutbox& outbox(int rank) const { return *outboxes_[static_cast<std::size_t>(rank)]; }
  // As ShmCommon::is_broken().
  bool is_broken() const { return outbox(0).common.is_broken(); }

  // All below require the lock.
  const OpenPtr& open(const CheckedCall& checked, const std::shared_ptr<WorkState>& batch);
  const OpenPtr& unused();
  OpenPtr make_open();
  bool send_at_once(const CheckedCall& call);
  bool take_at_once(const CheckedCall& call);
  void post(Open& receive);
  void unpost(Open& receive);
  bool poll();
  bool meet_early(Open& receive, int from);
  void meet_probe(Open& probe, int from);
  void meet(Open& receive, int from, const Arrived& message);
  void keep(int from, const MessageRing::Head& head, const Arrived& message);
  bool drain(int from);
  bool copy_next();
  bool has_part(const Open& receive) const;
  bool take_staged(Open& receive);
  bool copy(Open& receive);
  pid_t process_of(int rank) const;
  bool push_sends();
  bool write(Open& send);
  bool stage_next();
  bool may_stage(const Open& send) const;
  void ask_for_help(Open& receive);
  Result<std::uint64_t> take_lent();
  void end(Open& one);
  void count(std::size_t bytes);
  void note_ring(int rank);
  void note_written(int rank);
  void ring_peers();
  bool is_ready(const Open& one);
  int closed_peer(const Open& one);
  std::vector<int> waiting_for(const Open& one) const;
  void forget(Open& one);
  void give_up();

  static bool is_light(const Open& one);
  template <typename Chosen>
  std::vector<OpenPtr> take_light(const Chosen& chosen);

  // Without the lock.
  template <typename Chosen>
  void submit(ProgressEngine* engine, const Chosen& chosen);
  void submit_one(ProgressEngine* engine, const OpenPtr& one);

  std::weak_ptr<ProgressEngine> engine_;
  std::shared_ptr<const GroupFate> fate_;
  Route route_;  // of the group
  Waiting waiting_;
  double deadline_seconds_;
  std::shared_ptr<ShmBoards> boards_;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_;  // that were sent
  // Of operations, which are in bytes_ already.
  Group::Counter counted_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::vector<int> places_;
  std::vector<ShmOutbox*> outboxes_;
  int rank_;
  ForkMark mark_;

  BiasedLock mutex_;  // guards what follows; held for short
  bool closes_ = false;
  std::vector<Peer> peers_;
  int any_wanted_ = 0;          // receives and probes that wait for any rank
  std::deque<Open*> receives_;  // posted, in order
  std::deque<Open*> probes_;
  std::deque<Open*> copies_;   // of longer messages
  std::vector<Open*> sends_;   // in order: not in the ring yet, or lent
  Open* ended_ = nullptr;      // of which nobody has been told yet
  std::vector<OpenPtr> pool_;  // all that are open, and what was
  std::size_t next_in_pool_ = 0;
  std::vector<std::uint64_t> lent_;        // LentMessages that are free, offsets in the arena
  std::vector<std::uint64_t> lent_pages_;  // in which they are
  std::uint64_t stage_ = 0;                // its offset in the arena, once it is needed
  std::uint32_t next_slot_ = 0;            // of it
  double staging_ = 0;                     // seconds a byte, as Peer::taking
  std::vector<int> to_ring_;               // who may have lain down before they saw something
  std::uint32_t pushes_ = 0;
  bool attended_ = false;
  int put_off_ = 0;                 // visits, of the engine's thread: another was looking
  std::uint64_t moves_ = 0;         // looks that have found something
  std::uint64_t moves_before_ = 0;  // when the engine asked last
};

}  // namespace gradwire
