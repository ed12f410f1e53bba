// Who brings a layer's parameters where not all of them are there all the time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/status.h"

namespace gradwire {

enum class Way : std::uint8_t { kForward, kBack };

// Calls come from the thread that trains, in the order that LayerWalk says, the same on every rank
// and for every pass of a kind. An error ends the pass with that error.
class LayerGate {
 public:
  virtual ~LayerGate() = default;
  // On return what the layer computes with lies where the pass reads it.
  virtual Status open(std::size_t layer, Way way) = 0;
  // The layer has computed: its parameters may go.
  virtual Status close(std::size_t layer, Way way) = 0;
};

}  // namespace gradwire
