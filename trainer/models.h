// The models that come with the trainer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/model.h"

namespace gradwire {

struct ModelOptions {
  std::string name = "mlp";                   // "mlp" or "cnn"
  std::vector<std::int64_t> hidden{128, 64};  // mlp: widths of the hidden layers, may be empty
};

// mlp: flatten - (linear - relu) per hidden width - linear. Parameters fc1.weight, fc1.bias, fc2...
// cnn: twice (conv 3x3 - relu - max pool 2x2) with 16 and 32 channels - flatten - linear.
//      Parameters conv1.*, conv2.*, fc.*. For images of at least 4x4.
// kInvalidArgument for an unknown name, a width below 1 or too small an image.
template <typename T>
Result<Model<T>> make_model(const ModelOptions& options, SampleShape input, std::int64_t classes);

}  // namespace gradwire
