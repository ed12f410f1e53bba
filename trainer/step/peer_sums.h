// Gradients of which every rank that shares the model's tensors has a part.
#pragma once

#include <cstddef>

#include "gradwire/status.h"
#include "trainer/gradient_fold.h"
#include "trainer/layer_peers.h"
#include "trainer/parameters.h"

namespace gradwire {

// Adds them up when the fold has a rank's part whole, before it is handed over: what replicas
// average, clip and step is then the gradient of the model, equal on all these ranks.
class PeerSums {
 public:
  // None where `peers` is null; both are borrowed.
  PeerSums(const ParameterTable& table, LayerPeers* peers) : table_(&table), peers_(peers) {}

  // All ranks ask for the same parameters in the same order. The peers' error.
  Status add(const GradientFold& fold, int parameter) const {
    if (peers_ == nullptr || !(*table_)[static_cast<std::size_t>(parameter)].summed) return {};
    peers_->start_sum(fold.sum(parameter));
    peers_->await();
    return peers_->status();
  }

  // Of all parameters, where the fold keeps whole gradients until the last micro-batch is in.
  Status add_whole(const GradientFold& fold) const {
    for (std::size_t index = table_->size(); fold.needs_whole() && index-- > 0;) {
      GW_TRY(add(fold, static_cast<int>(index)));
    }
    return {};
  }

 private:
  const ParameterTable* table_;
  LayerPeers* peers_;
};

}  // namespace gradwire
