// What one rank's memory holds while a model trains: arithmetic alone, to know before a run whether
// it fits. GB and GiB are told apart: bytes are bytes here.
#pragma once

#include <cstdint>
#include <string_view>

#include "gradwire/status.h"

namespace gradwire {

// Bytes of one parameter's training state. A rank computes with `params` and `grads`; what only the
// optimizer touches is the rest.
struct StateBytes {
  double params = 4;
  double grads = 4;
  double main_grads = 0;  // gradients accumulated in fp32 beside narrower ones
  double master = 0;      // parameters in fp32 beside narrower ones
  double moments = 0;     // momentum, variance

  // K of Rajbhandari, Rasley, Ruwase, He, "ZeRO", SC 2020, section 3.1.
  double optimizer() const { return main_grads + master + moments; }
  double total() const { return params + grads + optimizer(); }
};

// precision: fp32, bf16 or fp16 (parameters and gradients in two bytes beside an fp32 master).
// optimizer: sgd (none), momentum, nesterov (4 bytes), adamw, lamb (8). main_grads: whether narrow
// gradients are added up in fp32; fp32 ones need no copy. kInvalidArgument for another name.
Result<StateBytes> state_bytes(std::string_view precision, std::string_view optimizer,
                               bool main_grads);

// Who holds what. Parameters are cut evenly over tensor * pipeline ranks before data parallelism.
struct MemoryQuestion {
  double params = 0;  // of the whole model
  StateBytes bytes;
  int stage = 0;  // of ZeRO
  std::int64_t data_ranks = 1;
  std::int64_t tensor_ranks = 1;
  std::int64_t pipeline_stages = 1;
  // Parameters that are whole on a rank at the same time although they are sharded (stage 3), and
  // those that are in fp32 for a layer's turn although they are stored in 16 bits.
  double gathered_params = 0;
  double widened_params = 0;
  // false: as published, where K of ZeRO's formulas has main_grads at any number of micro-batches.
  // true: as the bundled trainer holds it (docs/decisions/0013), with what follows.
  bool bundled = false;
  // Gradients are looked at as a whole before they are reduced, as a loss scale under most
  // compressors wants, so that stages 2 and 3 hold them for a while.
  bool whole_gradients = false;
  // Micro-batches of a step. Their gradients are added up before anything of them is reduced, so
  // that stages 2 and 3 hold whole sums; or, with reduce_each, afterwards.
  std::int64_t accumulate = 1;
  bool reduce_each = false;
  double activation_bytes = 0;  // of a rank
  double message_bytes = 0;     // likewise: between stages of a pipeline
};

// Bytes on one rank. Stage 1 shards the optimizer's state over the data ranks, 2 the gradients too,
// 3 the parameters too.
struct MemoryRow {
  double params = 0;
  double grads = 0;
  double optimizer = 0;
  double gathered = 0;
  double activations = 0;
  // Gradients of one micro-batch in fp32 beside the sum of several, where they are kept whole:
  // elsewhere a tensor of them at a time, which is not counted.
  double workspace = 0;
  double messages = 0;
  double versions = 0;  // older weights, of stages without a flush
  double total() const {
    return params + grads + optimizer + gathered + activations + workspace + messages + versions;
  }
};
MemoryRow training_memory(const MemoryQuestion& question);

// How many times less state a rank holds at the question's stage than without sharding.
double saving(const MemoryQuestion& question);

// A decoder's or encoder's activations that backward needs, in two bytes an element and one byte a
// dropout mask.
struct TransformerShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;     // h
  std::int64_t heads = 0;     // a
  std::int64_t sequence = 0;  // s, tokens of a sample
  std::int64_t batch = 1;     // b, samples of a micro-batch
  std::int64_t vocabulary = 0;
  friend bool operator==(const TransformerShape&, const TransformerShape&) = default;
};

// Embedding of tokens and positions, 12 h^2 + 13 h a layer, the last norm; the head shares the
// token embedding.
double transformer_params(const TransformerShape& shape);

// Of them, those of the layer that has most: attention, MLP (each with its norm), or the embedding.
double largest_layer(const TransformerShape& shape);
// Likewise, of two neighbours.
double largest_neighbours(const TransformerShape& shape);

// What one of `tensor_ranks` ranks that share a transformer's layers sends of activations and their
// derivatives in a micro-batch, forward and back: elements.
struct TensorTraffic {
  // Of a block: a sum behind attention and one behind the mlp, and likewise of derivatives in front
  // of them. By positions (sequence parallelism) each is a reduce-scatter and an all-gather.
  static constexpr int kSumsOfBlock = 4;
  static constexpr int kSumsOfEnds =
      2;  // of the embedding, and of the derivative in front of the head

  double blocks = 0;  // 4 L 2 (t - 1) / t b s h
  double ends = 0;    // 2 2 (t - 1) / t b s h
};
// Source: Shoeybi et al., "Megatron-LM", arXiv 1909.08053, 2019, section 3, figure 4.
TensorTraffic tensor_traffic(const TransformerShape& shape, std::int64_t tensor_ranks);

enum class Recompute : std::uint8_t {
  kNone,       // L s b h (34 + 5 a s / h); on t ranks L s b h (10 + 24 / t + 5 a s / (h t))
  kSelective,  // the attention's scores are computed again: without 5 a s / h
  kFull,       // only layers' inputs are kept, 2 L s b h, beside one layer that is computed again
};
Result<Recompute> recompute_of(std::string_view name);  // none, selective, full

// Bytes on one of `tensor_ranks` ranks that share the layers. `sequence`: what stands between the
// shared layers is divided by positions, so that all of it is divided by t: L s b h (34 / t + 5 a s
// / (h t)), and of kFull the inputs, 2 L s b h / t.
// Source: Korthikanti, Casper, Lym, McAfee, Andersch, Shoeybi, Catanzaro, MLSys 2023
// (arXiv 2205.05198), equations 1 and 2 and table 2.
double activation_bytes(const TransformerShape& shape, Recompute recompute,
                        std::int64_t tensor_ranks, bool sequence = false);

}  // namespace gradwire
