// How the devices of one stage share its layers: intra-operator parallelism.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "planner/cost/stage_cost.h"

namespace gradwire {

// n devices. What a layer reads and writes is whole, or divided by samples, or by channels.
//
//   layout    reads     writes    parameters  forward             backward
//   whole     whole     whole     all         –                   –
//   samples   samples   samples   all         –                   all-reduce of gradients, once a
//   step outputs   whole     channels  1/n         –                   all-reduce of the input's
//   gradient inputs    channels  whole     1/n         all-reduce of y     – channels  channels
//   channels  1/n         –                   – inside    whole     whole     1/n all-reduce of y
//   all-reduce of the input's gradient
//
// `outputs` and `inputs` for layers that split by channels and read all of them, `channels` for
// those that read their own, `inside` for those that split so. Source: the three layouts of a layer
// and their volumes are Megatron-LM's (Shoeybi et al., 2019).
enum class LayerLayout : std::uint8_t {
  kWhole,
  kSamples,
  kOutputs,
  kInputs,
  kChannels,
  kInside,
};
std::string_view to_string(LayerLayout layout);

// What layer `layer` of the cost's graph may have on so many devices; kWhole always.
std::vector<LayerLayout> layouts_of(const StageCost& cost, int layer, int devices);

// A micro-batch's time of the layer, forward and back, with 1/m of what is exchanged once a step.
std::int64_t layout_ticks(const StageCost& cost, int layer, LayerLayout layout,
                          const PlacedStage& stage);
// Between a layer of the stage that has the layout `from` and the next one, which has `to`: forward
// and back. From whole to a part costs the all-gather of the gradient, from a part to whole that of
// the output, from one part to the other two all-to-alls.
std::int64_t reshard_ticks(const StageCost& cost, int layer, LayerLayout from, LayerLayout to,
                           const PlacedStage& stage);

struct StageLayouts {
  std::vector<LayerLayout> layouts = {};  // by layer of the stage
  std::int64_t ticks = 0;                 // of a micro-batch
};

// The layouts whose sum is least, exactly (Viterbi along the chain). The stage's input and output
// are whole.
StageLayouts best_layouts(const StageCost& cost, const PlacedStage& stage);

// Whether each device has room for its parts: of the parameters' state, and of the outputs of
// `contexts` micro-batches. `layouts` by layer of the stage.
bool layouts_fit(const StageCost& cost, const PlacedStage& stage,
                 const std::vector<LayerLayout>& layouts, int contexts);

}  // namespace gradwire
