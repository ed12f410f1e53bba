// The kernels of device/cuda's kind that the trainer has: declared in every build, defined where
// kHaveCuda holds.
#pragma once

#include <memory>

#include "trainer/layers/layer_kernels.h"
#include "trainer/precision.h"
#include "trainer/step/step_kernels.h"
#include "trainer/step/stored_kernels.h"

namespace gradwire::cuda {

std::unique_ptr<LayerKernels<float>> make_layers(const Stream& stream);
std::unique_ptr<StepKernels> make_steps(const Stream& stream);
std::unique_ptr<StoredKernels> make_stored(Precision precision, const Stream& stream);

}  // namespace gradwire::cuda
