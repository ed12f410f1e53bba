// What the paths of one communicator have in common: who its ranks are, how its operations and
// messages are numbered, and the engine that drives them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/pair_ledger.h"
#include "collectives/engine/progress.h"
#include "collectives/engine/sender_search.h"
#include "gradwire/communicator.h"

namespace gradwire {

// Lives as long as the communicator. Used by one thread at a time, but for what Communicator says.
class Group {
 public:
  using Counter = std::shared_ptr<std::atomic<std::uint64_t>>;

  // `id` is the group's already, on every member's engine; the destructor releases it. job_ranks:
  // by group rank; the engine's is among them.
  Group(std::shared_ptr<ProgressEngine> engine, std::vector<int> job_ranks, int id,
        CommunicatorOptions options, Segmentation segmentation, bool fails_alone = false);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(job_ranks_->size()); }
  int job_rank(int r) const { return (*job_ranks_)[static_cast<std::size_t>(r)]; }
  const std::shared_ptr<const std::vector<int>>& job_ranks() const { return job_ranks_; }
  std::vector<int> job_ranks_of(std::span<const int> ranks) const;
  int id() const { return id_; }
  const CommunicatorOptions& options() const { return options_; }
  const Segmentation& segmentation() const { return segmentation_; }
  const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }
  const std::shared_ptr<PairLedger>& ledger() const { return ledger_; }
  // Why it has no other path than messages, where that is worth telling; for describe().
  const std::string& note() const { return note_; }
  void set_note(std::string note) { note_ = std::move(note); }
  // By group rank, counted from 0 in the order of first ranks; empty where nobody knows.
  const std::vector<int>& nodes() const { return nodes_; }
  const LinkModel& links() const { return options_.links; }
  void use(const LinkModel& links) { options_.links = links; }

  const std::shared_ptr<GroupFate>& fate() const { return fate_; }
  // Why its operations fail, or ok. Any thread.
  Status status() const { return engine_->status(*fate_); }
  bool has_failed() const { return engine_->has_failed(*fate_); }
  // Before anything that takes a lock: in a child of fork() another thread may have it for good.
  Status not_in_child() const {
    return engine_->in_child() ? ProgressEngine::not_in_children() : Status();
  }

  // When an operation that starts now and names `deadline` ends.
  Deadline end_of(const std::optional<Deadline>& deadline) const;
  // The number of the next collective, on all ranks alike; used up.
  std::uint64_t take_number();
  // The ranks, for an operation without messages of its own.
  Route route_of(std::uint64_t number) const;
  // Of messages among some of the ranks, by job rank, of elements of such a type, that belong to
  // this collective.
  Route route_among(std::shared_ptr<const std::vector<int>> job_ranks, std::uint64_t number,
                    DType dtype) const;
  // For the sender of a message with that tag: among all other ranks if peer is kAnySource.
  SenderSearch::Request search_for(int peer, int tag) const;

  // That share its reductions; null: each is done by one thread.
  const std::shared_ptr<Workers>& workers() const { return engine_->workers(); }

  // Bytes that operations have sent, as messages and otherwise.
  const Counter& message_bytes() const { return message_bytes_; }
  const Counter& other_bytes() const { return other_bytes_; }

 private:
  std::shared_ptr<ProgressEngine> engine_;
  std::shared_ptr<const std::vector<int>> job_ranks_;
  int rank_;
  int id_;
  CommunicatorOptions options_;
  Segmentation segmentation_;
  std::vector<int> nodes_;
  std::shared_ptr<PairLedger> ledger_;
  std::shared_ptr<GroupFate> fate_;
  std::string note_;
  Counter message_bytes_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  Counter other_bytes_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::uint64_t next_number_ = 0;
};

// The channel part of a message's tag: point-to-point 1 bit | dtype 3 bits | slot 4 bits. With the
// dtype in the tag, ranks that disagree about it never mix up elements: they time out, and the
// failure report says why.
std::uint32_t first_channel(bool point_to_point, DType dtype);
// The operation part of a collective's tag takes so many bits of its number, and wraps.
inline constexpr std::uint64_t kNumberMask = 0x3fff;

}  // namespace gradwire
