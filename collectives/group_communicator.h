// The Communicator over schedules, an executor and a transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/bounded.h"
#include "collectives/engine/executor.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/pair_ledger.h"
#include "collectives/engine/progress.h"
#include "collectives/engine/sender_search.h"
#include "collectives/plan/planner.h"
#include "gradwire/communicator.h"

namespace gradwire {

class GroupCommunicator final : public Communicator, public Bounded {
 public:
  // Claims nothing: `id` is the group's already, on every member's engine, and released by the
  // destructor. group: job ranks by group rank; group[rank] is this one.
  GroupCommunicator(std::shared_ptr<ProgressEngine> engine, std::vector<int> group, int rank,
                    int id, CommunicatorOptions options, Segmentation segmentation = {});
  ~GroupCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->size()); }
  int job_rank(int r) const override { return (*group_)[static_cast<std::size_t>(r)]; }
  Status status() const override { return engine_->status(); }
  TransportStats transport_stats() const override { return engine_->stats(); }
  std::uint64_t bytes_sent() const override { return bytes_sent_->load(std::memory_order_relaxed); }
  std::string describe() const override;
  double deadline_seconds() const override { return options_.deadline_seconds; }
  Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes,
                                         std::string_view wanted) override {
    return planner_.algorithm_for(kind, bytes, wanted);
  }
  std::vector<int> nodes() const override { return planner_.nodes(); }
  LinkModel links() const override { return planner_.choice().links(); }
  void set_link_parameters(const LinkModel& links) override;

  // For a communicator that runs operations of its own over the same ranks: what they share.
  const CommunicatorOptions& options() const { return options_; }
  std::uint32_t id() const { return static_cast<std::uint32_t>(id_); }
  const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }
  // The number of the next collective, on all ranks alike; used up.
  std::uint64_t take_number() {
    engine_->note_begun(static_cast<std::uint32_t>(id_), next_operation_);
    return next_operation_++;
  }
  const Segmentation& segmentation() const { return segmentation_; }
  // Of messages among some of its ranks, by job rank, of elements of such a type, that belong to
  // this collective.
  Route route_among(std::shared_ptr<const std::vector<int>> job_ranks, std::uint64_t number,
                    DType dtype) const;
  Route route_of(std::uint64_t number) const {
    return {group_, static_cast<std::uint32_t>(id_), number, 0};
  }
  // For describe(): "; " and the note after the rest.
  void set_note(std::string note) { note_ = std::move(note); }

  void abort(std::string_view reason) override { engine_->abort(std::string(reason)); }
  Result<std::unique_ptr<Communicator>> shrink(std::optional<Deadline> deadline) override;
  Result<std::unique_ptr<Communicator>> split(int color, int key) override;
  Result<Work> start(const OpCall& call, const OpOptions& options) override;
  Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options) override;
  Result<PersistentWork> prepare(const OpCall& call, const OpOptions& options) override;
  Result<int> probe(int peer, int tag, Deadline until) override;

  // start_all() in two steps, for whoever has more to put into the same Work: `work` is of as many
  // operations at least.
  Result<std::vector<PlannedOperation>> plan_all(std::span<const OpCall> calls,
                                                 const OpOptions& options);
  Status launch(std::vector<PlannedOperation> planned, std::optional<Deadline> deadline,
                const std::shared_ptr<WorkState>& work);

 private:
  Result<Work> launch(std::vector<PlannedOperation> planned, std::optional<Deadline> deadline);
  Route route_of(const PlannedOperation& planned, std::uint64_t number) const;
  Segmentation segmentation_of(const PlannedOperation& planned) const;
  std::unique_ptr<Operation> operation_of(PlannedOperation planned,
                                          const std::shared_ptr<WorkState>& work);
  std::unique_ptr<Runnable> search_of(PlannedOperation planned,
                                      const std::shared_ptr<WorkState>& work);
  // Of a search for the sender of such a message.
  SenderSearch::Wish wish_of(int peer, int tag) const;
  static constexpr int kTryAgain = -1;
  static constexpr int kNoGroup = -2;
  Result<int> agree_on_id(int color, const std::vector<std::int64_t>& colors, int attempt);

  std::shared_ptr<ProgressEngine> engine_;
  std::shared_ptr<const std::vector<int>> group_;
  int rank_;
  int id_;
  CommunicatorOptions options_;
  Segmentation segmentation_;
  Planner planner_;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_sent_;
  std::string note_;
  std::uint64_t next_operation_ = 0;
  std::shared_ptr<PairLedger> ledger_;
};

}  // namespace gradwire
