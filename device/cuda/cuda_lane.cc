#include "device/cuda/cuda_lane.h"

#include <utility>

#include "device/cuda/capture.h"
#include "device/cuda/late_work.h"
#include "device/cuda/stream.h"

namespace gradwire::cuda {
namespace {

class CudaPoint final : public DevicePoint {
 public:
  explicit CudaPoint(Event event) : event_(std::move(event)) {}
  Status record(const Stream& stream) override {
    GW_TRY(refuse_capture("what the host has a part in", stream));
    return event_.record(stream);
  }
  Status before(const Stream& stream) const override { return event_.before(stream); }
  Result<bool> passed() const override { return event_.passed(); }
  void give_up() override { give_up_on(std::move(event_)); }

 private:
  Event event_;
};

class CudaLane final : public CopyLane {
 public:
  CudaLane(OwnedStream to_host, OwnedStream to_device)
      : to_host_(std::move(to_host)), to_device_(std::move(to_device)) {}
  Stream to_host() const override { return to_host_.stream(); }
  Stream to_device() const override { return to_device_.stream(); }
  Result<std::unique_ptr<DevicePoint>> make_point() const override {
    GW_ASSIGN(Event event, Event::create(to_host().device));
    return std::unique_ptr<DevicePoint>(std::make_unique<CudaPoint>(std::move(event)));
  }

 private:
  OwnedStream to_host_;
  OwnedStream to_device_;
};

}  // namespace

Result<std::unique_ptr<CopyLane>> make_lane(Device device) {
  GW_ASSIGN(OwnedStream to_host, OwnedStream::create_apart(device));
  GW_ASSIGN(OwnedStream to_device, OwnedStream::create_apart(device));
  return std::unique_ptr<CopyLane>(
      std::make_unique<CudaLane>(std::move(to_host), std::move(to_device)));
}

}  // namespace gradwire::cuda
