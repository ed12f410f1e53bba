// One operation of a pipeline schedule: a value of eight bytes.
//
// A model is cut into stages; a mini-batch into micro-batches. An operation says what is done for
// which stage and micro-batch, by which pipe (bidirectional schedules have two, which hold the same
// layers), with which version of the stage's weights (asynchronous schedules keep several).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradwire {

enum class PipelineOpKind : std::uint8_t {
  kForward,          // F: outputs of the stage from its inputs; opens the micro-batch's context
  kBackward,         // B: gradients of inputs and weights; closes the context
  kBackwardInput,    // I: gradient of the inputs alone. Source: Qi et al., ICLR 2024
  kBackwardWeight,   // W: gradient of the weights, some time after I; closes the context
  kRecompute,        // R: the forward once more, from the stage's input (activation checkpointing)
  kSendForward,      // SF: the stage's outputs go to the next stage
  kReceiveForward,   // RF: the stage's inputs come from the stage before
  kSendBackward,     // SB: the gradient of its inputs goes to the stage before
  kReceiveBackward,  // RB: the gradient of its outputs comes from the next stage
  kReduceGradients,  // RG: gradients are averaged over data-parallel replicas
  kReduceTied,       // RT: gradients of parameters that first and last stage share are added
  kReduceReplicas,   // RR: gradients are added over the pipes that hold the same stage
  kUnshard,          // UNSHARD: the stage's parameters are gathered (ZeRO stage 3)
  kReshard,          // RESHARD: and dropped again
  kOptimizerStep,    // OPT: version v of the weights becomes v + 1
  kStashWeights,     // STASH: a copy of the newest weights is kept under their version
  kDropWeights,      // DROP: and freed
};

inline constexpr int kPipelineOpKinds = 17;

// The kind's name in a text: "F", "SF", "OPT". Valid for the program's life.
std::string_view to_string(PipelineOpKind kind);
// The name that PyTorch's torch.distributed.pipelining writes into its CSV files where it has such
// an operation ("SEND_F", "REDUCE_GRAD"), else to_string()'s.
std::string_view pytorch_name(PipelineOpKind kind);
// Reads both.
std::optional<PipelineOpKind> pipeline_op_kind(std::string_view name);

// Whether operations of this kind work on one micro-batch; others work on the stage as a whole.
constexpr bool has_micro_batch(PipelineOpKind kind) {
  return kind <= PipelineOpKind::kReceiveBackward;
}
// SF, RF, SB, RB.
constexpr bool is_transfer(PipelineOpKind kind) {
  return kind >= PipelineOpKind::kSendForward && kind <= PipelineOpKind::kReceiveBackward;
}
// F, B, I, W, R: what lowering leaves as it is and simulators charge per micro-batch.
constexpr bool is_compute(PipelineOpKind kind) { return kind <= PipelineOpKind::kRecompute; }
// B and I: what hands the gradient of the stage's inputs on.
constexpr bool gives_input_gradient(PipelineOpKind kind) {
  return kind == PipelineOpKind::kBackward || kind == PipelineOpKind::kBackwardInput;
}
// B and W: what adds to the gradients of the stage's weights.
constexpr bool gives_weight_gradient(PipelineOpKind kind) {
  return kind == PipelineOpKind::kBackward || kind == PipelineOpKind::kBackwardWeight;
}

// Bounds of what an operation can name.
inline constexpr int kMostPipes = 256;
inline constexpr int kMostStages = 65'536;
inline constexpr int kMostMicroBatches = 65'535;
inline constexpr int kMostVersions = 65'536;

struct PipelineOp {
  static constexpr std::uint16_t kNoMicro = 0xffff;

  PipelineOpKind kind = PipelineOpKind::kForward;
  std::uint8_t pipe = 0;
  std::uint16_t stage = 0;         // of the pipe, over all ranks, in the order of the forward
  std::uint16_t micro = kNoMicro;  // from 0; kNoMicro unless has_micro_batch(kind)
  std::uint16_t version = 0;       // of the weights; of OPT: the one that it replaces

  friend auto operator<=>(const PipelineOp&, const PipelineOp&) = default;
};

// "2F0": stage 2, forward, micro-batch 0; "3F2@1" on pipe 1; "0B5#3" with weights of version 3;
// "1OPT". pipeline_op() reads it back.
std::string to_string(const PipelineOp& op);
// Of SF or SB, as pictures and traces have it: "0SF3 to rank 1".
std::string message_text(const PipelineOp& send, int to);
// The same with PyTorch's names.
std::string pytorch_text(const PipelineOp& op);

// nullopt unless `text` is one operation, whole, in either naming and within the bounds above.
std::optional<PipelineOp> pipeline_op(std::string_view text);

}  // namespace gradwire
