// The models that come with the trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// Of gpt's vectors, unless ModelOptions::width says.
inline constexpr std::int64_t kGptWidth = 64;

struct ModelOptions {
  std::string name = "mlp";
  std::vector<std::int64_t> hidden{128, 64};  // mlp: widths of the hidden layers, may be empty
  // gpt: of its vectors, kGptWidth; alexnet: of its fully connected layers, 4,096; resnets:
  // channels of the first stage, 16.
  std::optional<std::int64_t> width = {};
  std::int64_t layers = 2;  // gpt: blocks
  std::int64_t heads = 4;   // gpt
  bool tied = false;        // gpt: the head is the embedding
  // alexnet: before each fully connected layer but the last, 0.5; gpt: behind the embedding and
  // every branch, 0.
  std::optional<double> dropout = {};
  std::string init = {};   // a scheme of set_init(); empty: the model's own
  TensorShare share = {};  // the part of every tensor that is here
};

// mlp: flatten - (linear - relu) per hidden width - linear. Parameters fc1.weight, fc1.bias, fc2...
// cnn: twice (conv 3x3 - relu - max pool 2x2) with 16 and 32 channels - flatten - linear.
//      Parameters conv1.*, conv2.*, fc.*. For images of at least 4x4.
// logistic: flatten - linear. linear: the same, trained on half the squared distance to the one-hot
//      label. Both convex.
// resnet8, resnet20: conv 3x3 - batch norm - relu, then 3 or 9 basic blocks (conv 3x3 - batch norm
//      - relu - conv 3x3 - batch norm, plus the input, relu) in three stages of 16, 32 and 64
//      channels, the first block of the second and third with stride 2 and a shortcut conv 1x1 -
//      batch norm; global average pool - linear. For images of at least 4x4.
//      Source: He et al., CVPR 2016, section 4.2, shortcuts B.
// alexnet: five convolutions in one or two groups, three max pools 3x3, three linear layers.
//      Images of at least 64x64 have the stem of the paper (conv 11x11, stride 4), smaller ones, of
//      at least 16x16, conv 5x5 with stride 2. Without local response normalisation.
//      Source: Krizhevsky, Sutskever, Hinton, NeurIPS 2012, section 3.5.
// gpt: token and position embedding, per block x + attention(norm(x)) and x + mlp(norm(x)) (four
//      times as wide, GELU), norm, head without bias. For texts. Matrices start N(0, 0.02^2),
//      vectors as the mlp's.  Source: Radford et al., GPT-2, 2019, section 2.3.
// Under a share that divides, the ranks' models are one: of the mlp's linear layers every other
// one, from the first, is divided by outputs (ColumnLinear), the ones between by inputs
// (RowLinear); of the gpt, attention's heads, the mlp's inner features, and tokens of embedding and
// head; of the cnn, the resnets and alexnet by samples (TensorShare::Layout::kSamples) linear
// layers as the mlp's, by tiles nothing. Names, order and initial values are the whole model's;
// box_of() says what is here. kInvalidArgument for an unknown name or scheme, a size out of range,
// too small an image, or heads that do not divide among the ranks, or an image that does not divide
// into tiles at some layer. kUnsupported for a share of another model.
template <typename T>
Result<Model<T>> make_model(const ModelOptions& options, SampleShape input, std::int64_t classes);

// All names, in the order above.
std::vector<std::string> model_names();

}  // namespace gradwire
