// What a rank of a run of the bundled trainer will hold, class by class: closed forms of the
// model's shapes, to be compared with what was counted.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/model.h"
#include "trainer/precision.h"
#include "trainer/stages/stage_plan.h"
#include "trainer/step/compute_parameters.h"

namespace gradwire {

struct RunMemoryQuestion {
  std::int64_t micro_batch = 1;  // samples of one pass
  int accumulate = 1;
  std::string recompute = "none";
  Precision precision = Precision::kF32;
  std::string optimizer = "adamw";  // sgd, nesterov, adamw, lamb
  double momentum = 0.9;            // of sgd and nesterov
  bool momentum_at_worker = false;
  bool reduce_each = false;  // micro-batches are exchanged one by one (Demands::each_micro_batch)
  int stage = 0;             // of ZeRO
  int rank = 0;
  int ranks = 1;
  bool main_gradients = true;  // TrainingOptions::main_gradients
  // As GradientFold says of a run: gradients in fp32 are handed over (form kWide), which those of a
  // run in fp32 are anyway; and gradients must be whole before anything of them is reduced.
  bool wide_gradients = false;
  bool whole_gradients = false;
  bool clips_worker = false;     // TrainingOptions::clip_worker
  bool exact_parameters = true;  // of sharded ones: they travel as they are
  Offload offload = Offload::kNone;
  std::int64_t offload_chunk = 1 << 18;
  MemorySpace space = MemorySpace::kHost;  // of the arena `device`: kHost or kCuda
  std::int64_t labels = 1;                 // of a sample
  // What of a pipeline the rank holds; the model is then its part (StagePlan::layers()), rank and
  // ranks those of the stages' replicas. Borrowed; null: the rank has the whole model.
  const StagePlan* stages = nullptr;
};

using MemoryByClass = std::array<std::int64_t, kMemoryClasses>;

// Under stages 2 and 3: buckets whose gradients are in work or being filled, at most.
inline constexpr std::int64_t kBucketsOnTheirWay = 3;

// Bytes: of parameters, gradients, master and moments what stays between steps; of what is gathered
// for a while, of activations and workspace the most there is at a time. Stages 2 and 3 hold beside
// them the gradients that are on their way, at most kBucketsOnTheirWay buckets and a layer. Where
// they add up several micro-batches before they reduce the sum (which they do not with
// reduce_each), or need whole gradients, they hold all of it, in the latter case for a while:
// `whole_sums`, and gradients are the most there is at a time, too. On a CUDA device nothing comes
// and goes: what is gathered, or on its way, are whole tensors, all of them. Without communication,
// which the exchanges know. Decision 0013 has the forms, in bytes a parameter.
struct RunMemory {
  MemoryByClass device{};
  MemoryByClass host{};
  bool whole_sums = false;
};
// kInvalidArgument for a name that no part of a run has.
Result<RunMemory> run_memory(const Model<float>& model, const RunMemoryQuestion& question);

// Bytes that a step copies between the arenas.
struct LinkBytes {
  std::int64_t out = 0;
  std::int64_t in = 0;
};
Result<LinkBytes> link_bytes(const Model<float>& model, const RunMemoryQuestion& question);

}  // namespace gradwire
