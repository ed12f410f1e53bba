// Passes over a tensor on a device that look whether all they compute is finite.
#pragma once

#include <string>
#include <utility>

#include "base/text.h"
#include "compress/cuda/verdict.h"
#include "compress/error_feedback/feedback_kernels.h"
#include "device/cuda/memory.h"
#include "device/cuda/memory_calls.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire::cuda {

class FinitePass {
 public:
  // For tensors of `shape`, which errors name.
  static Result<FinitePass> open(const Shape& shape, Device device) {
    GW_ASSIGN(Verdict verdict, Verdict::open(device));
    return FinitePass(shape, device, std::move(verdict));
  }

  // Runs each(i), i < count, of elements `first` + i and waits for it: kInvalidArgument, naming the
  // first element that is not finite, and `what` it is of.
  template <class Each>
  Status run(const char* what, const Each& each, std::int64_t first, std::int64_t count,
             const Stream& stream) {
    if (count == 0) return {};
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_TRY(verdict_.clear(stream));
    using Kernel = FeedbackPass<Each>;
    GW_TRY(launch("error feedback", Kernel{each, count, verdict_.word()},
                  blocks_for(count, Kernel::kEach * Kernel::kThreads), stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return {Code::kInvalidArgument, format("error feedback: element %llu of %s, %s, is not finite "
                                           "(expected finite numbers); the state is kept as it was",
                                           static_cast<unsigned long long>(finding.place) +
                                               static_cast<unsigned long long>(first),
                                           to_string(shape_).c_str(), what)};
  }

 private:
  FinitePass(const Shape& shape, Device device, Verdict verdict)
      : shape_(shape), device_(device), verdict_(std::move(verdict)) {}

  Shape shape_;
  Device device_;
  Verdict verdict_;
};

}  // namespace gradwire::cuda
