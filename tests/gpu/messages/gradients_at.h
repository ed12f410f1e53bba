// One rank's gradients for tests of aggregators: on a device or on the host, and what they become.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "device/copy_lane.h"
#include "device/cuda/memory_calls.h"
#include "device/ops.h"
#include "gradwire/aggregator.h"
#include "gradwire/buffer.h"

namespace gradwire {

inline constexpr Device kFirstDevice{MemorySpace::kCuda, 0};
inline constexpr double kReadSeconds = 2;  // of gradients by a stream that runs

// A rank's gradient of tensor `t` in a step, of so many elements within (-0.5, 0.5).
inline std::vector<float> gradient_of(std::size_t t, std::int64_t elems, int rank, int step) {
  const RandomStream draws(7, RandomUse::kTest, t, rank, 0, static_cast<std::uint64_t>(step));
  std::vector<float> values(static_cast<std::size_t>(elems));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = draws.uniform(i) - 0.5f;
  return values;
}

// Tensors of these shapes at one place, and a stream there. On the host it is none.
class GradientsAt {
 public:
  static Result<std::unique_ptr<GradientsAt>> make(Device device,
                                                   const std::vector<Shape>& shapes) {
    auto here = std::make_unique<GradientsAt>(device, shapes);
    if (here->on_device()) {
      GW_ASSIGN(here->lane_, CopyLane::create(device));
    }
    for (const Shape& shape : shapes) {
      const auto bytes = static_cast<std::size_t>(shape.elems()) * sizeof(float);
      GW_ASSIGN(Buffer buffer, Buffer::allocate(bytes, device));
      here->buffers_.push_back(std::move(buffer));
    }
    return here;
  }
  GradientsAt(Device device, std::vector<Shape> shapes)
      : device_(device), shapes_(std::move(shapes)) {}
  // The stream may still read written_; where it has hung for good, that stays until the end.
  ~GradientsAt() {
    if (lane_ == nullptr || written_.empty() || lane_->finish(kReadSeconds).ok()) return;
    static std::mutex one_at_a_time;
    static std::vector<std::deque<std::vector<float>>> left;
    const std::lock_guard lock(one_at_a_time);
    left.push_back(std::move(written_));
  }
  GradientsAt(const GradientsAt&) = delete;
  GradientsAt& operator=(const GradientsAt&) = delete;

  std::size_t count() const { return shapes_.size(); }
  TensorView tensor(std::size_t t) const { return buffers_[t].tensor(shapes_[t], DType::kF32); }
  Stream stream() const { return on_device() ? lane_->to_device() : Stream{}; }

  // As "tensor0", "tensor1", ...
  Status add_to(Aggregator& aggregator) const {
    for (std::size_t t = 0; t < count(); ++t) {
      GW_TRY(aggregator.add("tensor" + std::to_string(t), tensor(t)));
    }
    return {};
  }
  // Enqueued: `values` live until the stream has run it.
  Status write(std::size_t t, const std::vector<float>& values) const {
    return copy_bytes(std::as_bytes(std::span(values)), {}, tensor(t).bytes(), device_, stream());
  }
  // gradient_of() of all of them, ready from the last to the first, and averaged. On a device the
  // host may go on before the stream has read them: they are kept as long as this.
  Status average(Aggregator& aggregator, int rank, int step) {
    for (std::size_t t = count(); t-- > 0;) {
      written_.push_back(gradient_of(t, shapes_[t].elems(), rank, step));
      GW_TRY(write(t, written_.back()));
      GW_TRY(aggregator.ready(static_cast<int>(t), stream()));
    }
    return aggregator.finish(stream());
  }
  // As they are when the stream has run what it has; it waits for no other.
  Result<std::vector<float>> read(std::size_t t) const {
    std::vector<float> values(static_cast<std::size_t>(shapes_[t].elems()));
    GW_TRY(copy_bytes(tensor(t).bytes(), device_, std::as_writable_bytes(std::span(values)), {},
                      stream()));
    if (on_device()) GW_TRY(cuda::synchronize(stream()));
    return values;
  }

 private:
  bool on_device() const { return device_.space == MemorySpace::kCuda; }

  Device device_;
  std::vector<Shape> shapes_;
  std::deque<std::vector<float>> written_;
  std::unique_ptr<CopyLane> lane_;  // null on the host
  std::vector<Buffer> buffers_;
};

}  // namespace gradwire
