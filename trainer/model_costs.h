// What each layer of a model costs: arithmetic, parameters, memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model.h"

namespace gradwire {

struct LayerAccount {
  std::string name;
  LayerCost macs;                 // per sample
  std::int64_t parameters = 0;    // a tied layer's are its owner's
  std::int64_t input_elems = 0;   // per sample: kept until the way back
  std::int64_t output_elems = 0;  // per sample
  std::int64_t saved_bytes = 0;   // kept from forward for backward by `rows` samples: the input
                                  // and what the layer notes down
};

// One account per layer, in order, for a micro-batch of `rows` samples of T.
template <typename T>
std::vector<LayerAccount> model_costs(const Model<T>& model, std::int64_t rows);

}  // namespace gradwire
