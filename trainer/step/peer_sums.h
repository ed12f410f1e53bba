// Gradients of which every rank that shares the model's tensors has a part.
#pragma once

#include <cstddef>

#include "gradwire/status.h"
#include "trainer/layer_peers.h"
#include "trainer/parameters.h"
#include "trainer/step/gradient_fold.h"

namespace gradwire {

// Adds them up in fp32 when the fold has a rank's part whole, before it is handed over: what
// replicas average, clip and step is then the gradient of the model, equal on all these ranks.
// Where the fold rounds each micro-batch's gradient, or takes it into a momentum, parts are added
// up before that, once for each micro-batch.
class PeerSums {
 public:
  // None where `peers` is null; both are borrowed.
  PeerSums(const ParameterTable& table, LayerPeers* peers) : table_(&table), peers_(peers) {}

  // All ranks ask for the same gradients in the same order. The peers' error.
  // Gradient `index` of the fold's table, from `micro`, before GradientFold::ready().
  Status add_micro_batch(GradientFold& fold, int index, int micro) const {
    if (!sums(fold.parameter_of(index)) || !fold.joins_by_micro_batch()) return {};
    return sum(fold.micro_batch(index, micro));
  }
  // A parameter of which all micro-batches are in.
  Status add(const GradientFold& fold, int parameter) const {
    if (!sums(parameter) || fold.joins_by_micro_batch()) return {};
    return sum(fold.sum(parameter));
  }
  // Of all parameters, where the fold keeps whole gradients until the last micro-batch is in.
  Status add_whole(const GradientFold& fold) const {
    for (std::size_t index = table_->size(); fold.needs_whole() && index-- > 0;) {
      GW_TRY(add(fold, static_cast<int>(index)));
    }
    return {};
  }

 private:
  bool sums(int parameter) const {
    return peers_ != nullptr && (*table_)[static_cast<std::size_t>(parameter)].summed;
  }
  Status sum(const TensorView& parts) const {
    peers_->start_sum(parts);
    peers_->await();
    return peers_->status();
  }

  const ParameterTable* table_;
  LayerPeers* peers_;
};

}  // namespace gradwire
