// A trainer's memory as those see it who let parts of it come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/memory/paged_tensors.h"
#include "trainer/model_share.h"
#include "trainer/parameters.h"

namespace gradwire {

// Parameters [first, end) of the table are what this layer computes with.
struct LayerTensors {
  std::size_t layer = 0;
  int first = 0;
  int end = 0;
};

// A step's gradients as an exchange is given them.
struct HandedGradients {
  std::vector<NamedTensor> tensors;  // f32, or in 16 bits; in order of registration
  // Whose memory may go, tensor by tensor, when the exchange is done with it; empty: tensors stay
  // where they are until the next step.
  PagedTensors passing;
  bool stay() const { return passing.size() == 0; }
};

struct TrainerMemory {
  ParameterTable table;
  // f32: those that the trainer's optimizer steps, or that passes read; in 16 bits where the
  // strategy holds the optimizer's parameters (Demands::holds_master): what is widened for passes.
  PagedTensors parameters;
  HandedGradients gradients;
  MemoryPlaces places;
  // Layers in the order in which a pass opens them on its way forward and back.
  std::vector<LayerTensors> forward;
  std::vector<LayerTensors> back;
  // values = those that all of parameter `index` starts from, in fp32, on the host. Before a run.
  std::function<void(int index, std::span<float> values)> first_values;
  // Micro-batches of a step are exchanged one by one.
  bool in_rounds = false;
  const ModelShare* share = nullptr;  // as TrainingOptions has it
};

}  // namespace gradwire
