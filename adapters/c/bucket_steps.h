// The inside of a gw_aggregator: an Aggregator whose gradients come in groups, each with any
// address, and whose groups are works of their own.
//
// Callers hold mutex_; the aggregator's thread, which tells of arrivals, takes arrivals_ alone. So
// a caller may wait for the aggregator while it holds mutex_.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "adapters/c/handles.h"
#include "adapters/c/work_cell.h"
#include "device/copy_lane.h"
#include "gradwire/aggregator.h"
#include "gradwire/c.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire::c {

class BucketSteps {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::kF32;  // the caller's
    Shape shape = {};
  };

  // Collective. `group` lives as long as this. device: of all tensors, in all steps.
  static Result<std::shared_ptr<BucketSteps>> create(std::shared_ptr<Group> group,
                                                     const std::vector<Tensor>& tensors,
                                                     AggregatorOptions options, bool skips,
                                                     Device device);
  explicit BucketSteps(std::shared_ptr<Group> group, bool skips, Device device)
      : group_(std::move(group)), skips_(skips), device_(device) {}
  BucketSteps(const BucketSteps&) = delete;
  BucketSteps& operator=(const BucketSteps&) = delete;
  ~BucketSteps();

  // `function` is named in errors. On a device the gradients are final after what `stream` holds;
  // kInvalidArgument for a stream of another place.
  Result<std::shared_ptr<WorkCell>> submit(const char* function,
                                           std::span<const gw_gradient> gradients,
                                           const Stream& stream);
  Status flush();
  // Between steps; ends the last one first.
  Status between_steps(const std::function<Status(Aggregator&)>& action);
  gw_aggregator_stats stats() const;
  int size() const { return group_->communicator->size(); }
  int rank() const { return group_->communicator->rank(); }
  Device device() const { return device_; }
  // Warning i; null from their number on. Lives as long as this.
  const char* warning(std::size_t i);

 private:
  // A submit's work.
  struct Bucket {
    std::shared_ptr<WorkCell> cell = std::make_shared<WorkCell>();
    std::atomic<std::size_t> left{0};  // tensors that have not arrived
    std::atomic<bool> ended{false};
    void end(const Status& status);
  };
  struct Slot {
    Tensor tensor;
    TensorView given = {};                         // the caller's memory in this step
    std::unique_ptr<DevicePoint> final = nullptr;  // with lane_: behind it `given` is final
    bool submitted = false;                        // in this step
    std::shared_ptr<Bucket> bucket = nullptr;      // until it has arrived; under arrivals_
  };

  Status add(const Tensor& tensor);
  Status check(const char* function, std::span<const gw_gradient> gradients,
               const Stream& stream) const;
  Status hand_over(Slot& slot, int index, const Stream& stream);
  Result<bool> all_finite_there() const;
  Status end_step();
  void arrived(int index, const Status& outcome);
  void decide();
  void decide_once();
  Status leave_out();

  const std::shared_ptr<Group> group_;
  const bool skips_;
  const Device device_;
  std::byte nowhere_{};  // where gradients are that never came

  mutable std::mutex mutex_;
  std::condition_variable decided_;
  std::vector<Slot> slots_;
  std::size_t submitted_ = 0;
  bool nonfinite_ = false;  // in this step, here, as far as was looked
  bool deciding_ = false;   // the other thread has the step
  bool stopping_ = false;
  std::uint64_t steps_ = 0;
  std::uint64_t skipped_ = 0;
  std::deque<std::string> warnings_;  // callers have pointers to them

  std::mutex arrivals_;
  Status failure_;  // under arrivals_

  std::unique_ptr<CopyLane> lane_;  // on a device where steps may be skipped; else null
  std::unique_ptr<Aggregator> aggregator_;
  std::thread decider_;  // where steps may be skipped
};

}  // namespace gradwire::c
