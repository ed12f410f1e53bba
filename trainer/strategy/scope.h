// Which ranks a call speaks of, as the trainer sees them; who they are is known in adapters/.
#pragma once

#include <cstdint>

namespace gradwire {

enum class Scope : std::uint8_t {
  kData,       // hold the same part of the model, and train on other samples
  kTensor,     // hold parts of the same layers, and train on the same samples
  kPipeline,   // hold other layers, and train on the same samples
  kModel,      // together hold one copy of the model: kTensor times kPipeline
  kEmbedding,  // the first and the last stage of a pipeline, which share a tied embedding
  kReplica,    // hold the same stage twice in one pipeline
  kWorld,      // all
};

}  // namespace gradwire
