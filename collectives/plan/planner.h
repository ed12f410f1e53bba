// From a call to what this rank has to do: a schedule, the memory that it runs on, and what is to
// be done before the first message and after the last.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/cost/choice.h"
#include "collectives/engine/executor.h"
#include "collectives/plan/arguments.h"
#include "collectives/plan/own_memory.h"
#include "gradwire/communicator.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// Copies may run one after another: each run starts with `before`, in the caller's thread, and ends
// with `after`, in that of whoever drives. Both keep alive what memory of their own they use; `own`
// is what the run itself reads, and is kept until it has ended.
struct PlannedOperation {
  OpKind kind = OpKind::kBarrier;
  Schedule schedule = {};
  Operands operands = {};
  std::int64_t elems = -1;  // that all ranks must agree on; -1 where there are none
  bool pair = false;        // a send or recv, and its peer and tag
  int peer = -1;
  int tag = 0;
  std::string_view reduce = {};         // the caller's ReduceOp, where something is reduced
  int root = -1;                        // where there is one
  std::string_view algorithm = {};      // of the schedule; a literal
  std::int64_t segment_bytes = 0;       // that its cells are cut into; 0: as all are
  std::function<Status()> before = {};  // may be empty, as `after`
  std::function<Status()> after = {};
  std::shared_ptr<std::byte> own = {};
  // Of an operation on a device: gets neutral elements of operands.op when all messages are done.
  TensorView fill = {};
};

// What a rank does about tensors on devices.
struct DeviceAccess {
  std::function<Result<std::shared_ptr<StagingLane>>(Device)> lane_of = {};
  bool transport_takes_it = false;  // what only moves needs no staging then
};

// One rank of a group of `size`.
class Planner {
 public:
  // algorithm: for all_reduce and reduce_scatter calls that say "auto". choice: for the others,
  // and if that says "auto" too.
  Planner(int rank, int size, std::string algorithm, AlgorithmChoice choice)
      : rank_(rank),
        size_(size),
        algorithm_(std::move(algorithm)),
        choice_(std::move(choice)),
        memory_(std::make_shared<OwnMemory>()) {}

  // By group rank; empty: nobody knows.
  void use_nodes(std::vector<int> node_of) {
    choice_.use_nodes(node_of);
    node_of_ = std::move(node_of);
  }

  void use_devices(DeviceAccess devices) { devices_ = std::move(devices); }

  // kInvalidArgument for arguments that do not fit (arguments.h) and unknown algorithms.
  Result<PlannedOperation> plan(const OpCall& call, const OpOptions& options);
  // bytes: of the tensor, or of all ranks' rows; -1 where ranks do not know it alike.
  Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes, std::string_view wanted);
  const std::vector<int>& nodes() const { return node_of_; }
  const AlgorithmChoice& choice() const { return choice_; }
  void use(AlgorithmChoice choice) {
    choice_ = std::move(choice);
    choice_.use_nodes(node_of_);
  }

 private:
  struct Chosen {
    Schedule schedule;
    std::string_view algorithm;
    std::int64_t segment_bytes = 0;
  };
  Result<Chosen> schedule_of(const OpCall& call, const Extent& extent, std::string_view wanted);
  Status fuse(PlannedOperation& planned, const OpCall& call, const Extent& extent,
              const OpOptions& options) const;
  Status premultiply(PlannedOperation& planned, const OpCall& call, const Extent& extent,
                     double factor) const;
  static void fit_memory(PlannedOperation& planned, const OpCall& call, const Extent& extent);
  // planner_device.cc
  Status place_on(Device device, PlannedOperation& planned, const OpCall& call,
                  const Extent& extent, double factor) const;

  int rank_;
  int size_;
  std::string algorithm_;
  std::vector<int> node_of_;
  AlgorithmChoice choice_;
  std::shared_ptr<OwnMemory> memory_;
  DeviceAccess devices_;
};

}  // namespace gradwire
