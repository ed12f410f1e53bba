// The last of an operation that leaves neutral elements on a device.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/engine/runnable.h"
#include "collectives/engine/staging.h"

namespace gradwire {

// Fills a tensor of the lane's device with what `op` leaves other values as they are with, and is
// done when the device has. Nothing is enqueued before its first turn.
class DeviceFill final : public Runnable {
 public:
  DeviceFill(Route route, std::shared_ptr<StagingLane> lane, ReduceOp op, TensorView out)
      : route_(std::move(route)), lane_(std::move(lane)), op_(op), out_(out) {}

  Result<bool> advance(Transport& transport, ScratchPool& pool) override;
  bool done() const override { return passed_; }
  void cancel(Transport& /*transport*/) override {}
  bool settled(Transport& transport) override;
  void release(ScratchPool& /*pool*/) override {}
  std::vector<int> waiting_for(const Transport& /*transport*/) const override { return {}; }
  const Route& route() const override { return route_; }
  std::uint64_t bytes_sent() const override { return 0; }
  Awaited awaited() const override { return {.device = true}; }

 private:
  Status enqueue();

  Route route_;
  std::shared_ptr<StagingLane> lane_;
  ReduceOp op_;
  TensorView out_;
  std::unique_ptr<DevicePoint> point_ = {};  // behind it, when it is enqueued
  bool untracked_ = false;                   // nobody can say when the device is through with it
  bool passed_ = false;
};

}  // namespace gradwire
