// A trainer's memory as those see it who let parts of it come and go.
#pragma once

#include <cstddef>
#include <vector>

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

struct TrainerMemory {
  ParameterTable table;
  PagedTensors parameters;  // fp32, the optimizer's
  PagedTensors gradients;   // the step's, fp32
  MemoryPlaces places;
  // Layers in the order in which a pass opens them on its way forward and back.
  std::vector<LayerTensors> forward;
  std::vector<LayerTensors> back;
  const ModelShare* share = nullptr;  // as TrainingOptions has it
};

}  // namespace gradwire
