// What the ranks that together hold one copy of a model hold of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/parameters.h"
#include "trainer/tensor_box.h"

namespace gradwire {

// Of several ranks of Scope::kModel, as one of them sees it. The tensors are equal on all.
struct ModelShare {
  struct Tensor {
    std::string name;
    // By rank of the scope, ascending as the world's: as check_boxes() wants them.
    std::vector<TensorBox> held;
  };
  int rank = 0;                 // this one, among the scope's
  std::vector<Tensor> tensors;  // of the whole model, in its order
};

// Who holds what of the model of `whole`, where rank r of the scope holds the tensors `held[r]`, of
// which it is `rank`.
ModelShare share_of_tables(const ParameterTable& whole, std::span<const ParameterTable> held,
                           int rank);

// kInvalidArgument unless every tensor has as many boxes, each element among them, and the table,
// of what is here, names what this rank holds and nothing else, box for box.
Status check_share(const ModelShare& share, const ParameterTable& here);

}  // namespace gradwire
