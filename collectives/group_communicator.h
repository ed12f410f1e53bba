// The Communicator of a group of ranks: it checks a call and gives it to the first of its paths
// that serves it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/group.h"
#include "collectives/plan/path.h"
#include "gradwire/communicator.h"

namespace gradwire {

class GroupCommunicator final : public Communicator {
 public:
  // By messages alone. As Group().
  GroupCommunicator(std::shared_ptr<ProgressEngine> engine, std::vector<int> job_ranks, int id,
                    CommunicatorOptions options, Segmentation segmentation = {},
                    bool fails_alone = false);
  ~GroupCommunicator() override;

  // What its other paths are made of.
  GroupMembers members() { return {*group_, *this}; }
  // Before the first call that it serves. It is asked before the paths that are there already.
  void add_path(std::unique_ptr<CallPath> path);

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int job_rank(int r) const override { return group_->job_rank(r); }
  Status status() const override { return group_->status(); }
  TransportStats transport_stats() const override;
  std::uint64_t bytes_sent() const override;
  std::string describe() const override;
  double deadline_seconds() const override { return group_->options().deadline_seconds; }
  SharedMemory shared_memory() const override;
  Result<Buffer> allocate(std::size_t bytes) override;
  Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes,
                                         std::string_view wanted) override;
  std::vector<int> nodes() const override { return group_->nodes(); }
  LinkModel links() const override { return group_->links(); }
  void set_link_parameters(const LinkModel& links) override;

  void abort(std::string_view reason) override { group_->engine()->abort(std::string(reason)); }
  Result<std::unique_ptr<Communicator>> shrink(std::optional<Deadline> deadline) override;
  Result<std::unique_ptr<Communicator>> split(int color, int key,
                                              const GroupOptions& options) override;
  Result<std::unique_ptr<Communicator>> create_group(std::span<const int> ranks,
                                                     const GroupOptions& options) override;
  Result<Work> start(const OpCall& call, const OpOptions& options) override;
  Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options) override;
  Result<PersistentWork> prepare(const OpCall& call, const OpOptions& options) override;
  Result<int> probe(int peer, int tag, Deadline until) override;

 private:
  CallPath& path_of(const OpCall& call, const OpOptions& options) const;
  Result<CheckedCall> check(const CallPath& path, const OpCall& call,
                            const OpOptions& options) const;
  // By messages alone. Collective over `members`, of which this rank is one.
  Result<std::unique_ptr<GroupCommunicator>> group_of(const std::vector<int>& members,
                                                      const GroupOptions& options,
                                                      std::string_view what);

  std::unique_ptr<Group> group_;
  std::vector<std::unique_ptr<CallPath>> paths_;  // the last one serves every call
};

// A communicator over messages of all ranks of `transport`, which it owns. As make_communicator().
Result<std::unique_ptr<GroupCommunicator>> make_group_communicator(
    std::unique_ptr<Transport> transport, const CommunicatorOptions& options);
// Collective over `world`, which is a whole job over messages: tensors on CUDA devices go by NCCL
// from then on. Errors: those of make_nccl_path().
Status add_nccl(GroupCommunicator& world, std::optional<int> ordinal, double timeout_seconds);
// As make_inproc_communicators().
Result<std::vector<std::unique_ptr<GroupCommunicator>>> make_inproc_groups(
    int size, const CommunicatorOptions& options = {});

}  // namespace gradwire
