#include "collectives/device/nccl_execution.h"

#include "device/cuda/memory_calls.h"

namespace gradwire {
namespace {

Result<cuda::Event> point_behind(const Stream& stream) {
  const cuda::OnDevice here(stream.device);
  GW_TRY(here.status());
  GW_ASSIGN(cuda::Event point, cuda::Event::create(stream.device));
  GW_TRY(point.record(stream));
  return point;
}

}  // namespace

void NcclFlight::enqueued(cuda::Event point, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  point_ = std::move(point);
  bytes_ = bytes;
  state_ = State::kEnqueued;
}

void NcclFlight::failed(Status why, const Stream& stream) {
  const std::lock_guard lock(mutex_);
  why_ = std::move(why);
  stream_ = stream;
  state_ = State::kFailed;
}

void NcclFlight::forget_stream() {
  const std::lock_guard lock(mutex_);
  stream_.reset();
}

Result<bool> NcclFlight::passed() const {
  const std::lock_guard lock(mutex_);
  switch (state_) {
    case State::kEnqueueing: return false;
    case State::kEnqueued: return point_->passed();
    case State::kFailed: return why_;
  }
  return false;
}

Status NcclFlight::hold(const Stream& stream) const {
  if (stream.device.space != MemorySpace::kCuda) {
    return {Code::kInvalidArgument,
            "wait_on: a stream of the host (expected one of a CUDA device, for work over NCCL)"};
  }
  const std::lock_guard lock(mutex_);
  if (state_ == State::kFailed) return why_;
  // A caller has the Work from the call that enqueued everything.
  return point_->before(stream);
}

// Behind the abort nothing more of it comes to the stream.
bool NcclFlight::left() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kEnqueueing) return false;
  if (stream_) {
    auto point = point_behind(*stream_);
    if (!point.has_value()) return false;  // nothing says what the stream still has of it
    stream_.reset();
    point_ = std::move(point).value();
  }
  if (!point_) return true;
  const Result<bool> passed = point_->passed();
  return !passed.has_value() || passed.value();
}

Result<bool> NcclExecution::advance(Transport&, ScratchPool&) {
  GW_TRY(trouble_);
  GW_ASSIGN(done_, flight_->passed());
  return done_;
}

// NCCL's own finding, which is dearer to ask for than whether the point is passed.
bool NcclExecution::tend(Transport&, Deadline) {
  if (trouble_.ok()) trouble_ = comm_->state();
  return !trouble_.ok();
}

}  // namespace gradwire
