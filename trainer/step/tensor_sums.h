// Sums over the elements of a model's tensors, of which several ranks hold parts: norms' squares.
//
// Each rank adds up the elements that it holds, in double. Of a box that several ranks of
// Scope::kModel hold, the owner's sum alone counts (owner_of()), so that an element counts once
// over the world: replicated gains of norms, tied embeddings. A tensor's sum is the left fold over
// its ranks, a norm's square the left fold over tensors in the model's order: on every rank the
// same bits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gradwire/status.h"
#include "trainer/model_share.h"
#include "trainer/parameters.h"
#include "trainer/strategy/consensus.h"

namespace gradwire {

// From the thread that trains.
class TensorSums {
 public:
  // share: null where this rank holds the model whole. Errors as check_share().
  static Result<TensorSums> create(const ParameterTable& here, const ModelShare* share);
  TensorSums() = default;

  // No other rank of Scope::kModel holds anything of the model.
  bool alone() const { return alone_; }

  // `values`: for every parameter of the table, in its order, `each` sums over what is here. They
  // become sums over all elements of the parameter's tensor. Collective over `scope`: kModel, or,
  // where the ranks of kData each sum over their shard, kWorld.
  Status add_up(std::span<double> values, std::size_t each, Consensus& consensus, Scope scope);
  // Likewise of one sum for each parameter: the sum over all tensors of the model.
  Result<double> total(std::span<const double> values, Consensus& consensus, Scope scope);

 private:
  struct Place {
    std::size_t tensor = 0;  // of the model
    bool counts = true;      // on this rank
  };
  Status spread(std::span<const double> values, std::size_t each, Consensus& consensus,
                Scope scope);

  bool alone_ = true;
  std::size_t tensors_ = 0;
  std::vector<Place> places_;  // by parameter of the table
  std::vector<double> all_;    // by tensor of the model
};

}  // namespace gradwire
