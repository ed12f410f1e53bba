// Where a device's arithmetic comes from.
#pragma once

#include <memory>

#include "trainer/layers/layer_kernels.h"
#include "trainer/precision.h"
#include "trainer/step/step_kernels.h"
#include "trainer/step/stored_kernels.h"

namespace gradwire {

// What layers compute by on the stream's device; null for the host, which computes by itself. The
// stream is borrowed. kUnsupported in a build without CUDA.
Result<std::unique_ptr<LayerKernels<float>>> make_layer_kernels(const Stream& stream);
// Likewise what the trainer's step is made by.
Result<std::unique_ptr<StepKernels>> make_step_kernels(const Stream& stream);
// Likewise what keeps numbers in 16 bits: bf16 or fp16.
Result<std::unique_ptr<StoredKernels>> make_stored_kernels(Precision precision,
                                                           const Stream& stream);

}  // namespace gradwire
