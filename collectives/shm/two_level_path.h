// The path of two levels, for a group whose ranks are on several hosts and share memory with the
// others of their host. all_reduce, broadcast, all_gather(_v) and barrier that leave the choice of
// the algorithm to the communicator ("auto"), or say "two_level", go through memory inside hosts
// and by messages between them.
//
// What a rank does in an operation on several hosts whose ranks share memory: through memory with
// the ranks of its host, by messages with one rank of every host, through memory again.
//
//   all_reduce   the n elements are in as many parts as the smallest host has ranks, one part where
//                they are few. Rank j of a host folds part j of the host's tensors, a left fold in
//                rank order; the j-th ranks of all hosts reduce part j among themselves; everybody
//                takes the parts from the ranks of its host that have them.
//   broadcast    from the root to one rank of every other host, from there through memory
//   all_gather   inside the host, the first ranks exchange the hosts' rows, and tell theirs
//   barrier      the host's, that of the first ranks, the host's
//
// A tensor to reduce or to broadcast that is large goes so piece by piece, a few at a time: one
// travels between hosts while others are in memory.
//
// With N hosts of g ranks a part crosses 2(N-1)/N n/g elements from each rank; a flat ring 2(p-1)/p
// n. The order of a sum depends on ranks, hosts and n, never on timing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost/choice.h"
#include "collectives/engine/staged_execution.h"
#include "collectives/plan/arguments.h"
#include "collectives/plan/group.h"
#include "collectives/plan/path.h"
#include "collectives/schedules/nodes.h"
#include "collectives/shm/channel.h"
#include "collectives/shm/setup.h"

namespace gradwire {

// One rank's side of a communicator.
class TwoLevelStages {
 public:
  using Stages = StagedExecution::Stages;

  // So many pieces of a large tensor are under way at a time, on tag channels of their own: one on
  // its way between hosts, one before it and one behind it in memory.
  static constexpr int kPiecesInFlight = 3;

  // hosts: of the group's ranks, at least two. inward and outward: this rank's ends of two queues
  // of its host; null where it is alone there. group outlives this.
  TwoLevelStages(Group& group, Nodes hosts, std::shared_ptr<ShmChannel> inward,
                 std::shared_ptr<ShmChannel> outward);

  // Whether such a call goes this way, the same on all ranks.
  bool covers(const OpCall& call) const;
  // By piece. Requires covers(call), and a call that was checked. Ranks of a host call this in the
  // same order.
  std::vector<Stages> make(const OpCall& call, const Extent& extent, std::uint64_t number);
  // The group has others now.
  void use_new_links();
  int hosts() const { return static_cast<int>(hosts_.ranks.size()); }

 private:
  struct Between;
  // Of a tensor, and which messages are its own.
  struct Piece {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::int64_t elems = 0;
    DType dtype = DType::kU8;
    std::uint64_t number = 0;  // of the operation
    int lane = 0;              // of the pieces in flight
  };
  std::vector<Piece> pieces_of(const OpCall& call, const Extent& extent, std::uint64_t number,
                               int parts) const;
  Stages all_reduce(const Piece& piece, ReduceOp op);
  Stages broadcast(const Piece& piece, int root);
  Stages all_gather(const OpCall& call, const Extent& extent, std::uint64_t number);
  Stages barrier(std::uint64_t number);
  void add_inside(Stages& stages, bool inward, ShmCall call, std::uint64_t number);
  void add_between(Stages& stages, const Between& between, std::uint64_t number);
  std::vector<std::int64_t> parts_of_tensor(std::int64_t elems, std::size_t width) const;
  const std::vector<int>& local() const;

  Group& group_;
  Nodes hosts_;
  int host_;
  int place_;
  bool consecutive_;  // hosts have consecutive ranks
  std::shared_ptr<ShmChannel> inward_;
  std::shared_ptr<ShmChannel> outward_;
  std::shared_ptr<const std::vector<int>> local_jobs_;
  AlgorithmChoice choice_;
};

class TwoLevelPath final : public CallPath {
 public:
  // Collective. here: the hosts of the group's ranks, several, of which some have several. Null
  // where a host has no memory for a board.
  static Result<std::unique_ptr<CallPath>> create(const GroupMembers& members,
                                                  const std::shared_ptr<const SharedHosts>& hosts,
                                                  const Nodes& here);

  bool serves(const OpCall& call, const OpOptions& options) const override;
  Result<std::optional<std::string_view>> algorithm_for(OpKind kind, std::int64_t bytes,
                                                        std::string_view wanted) override;
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) override;
  void use_new_links() override { stages_.use_new_links(); }
  std::string describe() const override;
  std::uint64_t job_bytes() const override;
  std::optional<Buffer> allocate(std::size_t bytes) override;
  SharedMemory shared_memory() const override { return SharedMemory::kInsideHosts; }
  Result<std::unique_ptr<CallPath>> for_group(const GroupMembers& part) override;
  Result<std::unique_ptr<CallPath>> for_survivors(const GroupMembers& left) override;

 private:
  class Run;

  TwoLevelPath(Group& group, std::shared_ptr<const SharedHosts> hosts, TwoLevelStages stages);
  bool serves(const OpCall& call, std::string_view wanted) const;

  Group& group_;
  std::shared_ptr<const SharedHosts> hosts_;
  TwoLevelStages stages_;
};

}  // namespace gradwire
