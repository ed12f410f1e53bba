#include "trainer/accounts/training_memory.h"

#include <algorithm>
#include <string>

namespace gradwire {
namespace {

constexpr double kFp32Width = 4;
constexpr double kNarrowWidth = 2;

Result<double> moment_bytes(std::string_view optimizer) {
  if (optimizer == "sgd") return 0.0;
  if (optimizer == "momentum" || optimizer == "nesterov") return kFp32Width;
  if (optimizer == "adamw") return 2 * kFp32Width;
  if (optimizer == "lamb") return 3 * kFp32Width;  // and the direction between its two passes
  return Status(Code::kInvalidArgument,
                "optimizer '" + std::string(optimizer) +
                    "' (expected one of sgd, momentum, nesterov, adamw, lamb)");
}

// Each behind a norm (2 h): attention (4 h^2 + 4 h), and two linear layers of width 4 h (8 h^2 + 5
// h).
double attention_params(double h) { return 4 * h * h + 6 * h; }
double mlp_params(double h) { return 8 * h * h + 7 * h; }

double embedding_params(const TransformerShape& shape) {
  return static_cast<double>(shape.vocabulary + shape.sequence) * static_cast<double>(shape.width);
}

// A rank's part of it, as run_memory() has it of a model: `own` of `whole` parameters.
MemoryRow bundled_memory(const MemoryQuestion& q, double whole, double own) {
  const StateBytes& bytes = q.bytes;
  const bool narrow = bytes.master > 0;
  const bool each = q.accumulate > 1 && q.reduce_each;
  const bool sums = q.accumulate > 1 && !each;
  const double width = narrow ? kNarrowWidth : kFp32Width;
  const double stepped = q.stage == 0 ? whole : own;
  MemoryRow row;
  row.params = bytes.params * (q.stage == 3 ? own : whole);
  row.optimizer = (bytes.master + bytes.moments) * stepped;
  if (sums) {
    row.grads = (narrow && bytes.main_grads == 0 ? kNarrowWidth : kFp32Width) * whole;
  } else if (q.stage < 2 || q.whole_gradients) {
    row.grads = width * whole;
  }
  if (each) row.optimizer += kFp32Width * stepped;  // sums of averages
  if (!each && !sums && q.stage >= 2) row.grads += width * own;
  if (!each || narrow || q.stage > 0) return row;
  // In fp32 what is exchanged is a micro-batch's beside the sum.
  row.workspace = row.grads;
  row.grads = 0;
  return row;
}

}  // namespace

Result<StateBytes> state_bytes(std::string_view precision, std::string_view optimizer,
                               bool main_grads) {
  StateBytes bytes;
  GW_ASSIGN(bytes.moments, moment_bytes(optimizer));
  if (precision == "fp32") return bytes;
  if (precision != "bf16" && precision != "fp16") {
    return Status(Code::kInvalidArgument,
                  "precision '" + std::string(precision) + "' (expected one of fp32, bf16, fp16)");
  }
  bytes.params = bytes.grads = kNarrowWidth;
  bytes.master = kFp32Width;
  bytes.main_grads = main_grads ? kFp32Width : 0;
  return bytes;
}

MemoryRow training_memory(const MemoryQuestion& question) {
  const auto held = question.params / static_cast<double>(question.tensor_ranks) /
                    static_cast<double>(question.pipeline_stages);
  const double own = held / static_cast<double>(question.data_ranks);
  MemoryRow row;
  if (question.bundled) {
    row = bundled_memory(question, held, own);
  } else {
    const auto sharded_from = [&](int stage) { return question.stage >= stage ? own : held; };
    row.optimizer = question.bytes.optimizer() * sharded_from(1);
    row.grads = question.bytes.grads * sharded_from(2);
    row.params = question.bytes.params * sharded_from(3);
  }
  if (question.stage >= 3) row.gathered = question.bytes.params * question.gathered_params;
  if (question.bytes.master > 0) row.gathered += kFp32Width * question.widened_params;
  row.activations = question.activation_bytes;
  row.messages = question.message_bytes;
  return row;
}

double saving(const MemoryQuestion& question) {
  MemoryQuestion state = question;
  state.gathered_params = state.widened_params = state.activation_bytes = state.message_bytes = 0;
  const double sharded = training_memory(state).total();
  state.stage = 0;
  return sharded > 0 ? training_memory(state).total() / sharded : 1;
}

double transformer_params(const TransformerShape& shape) {
  const auto h = static_cast<double>(shape.width);
  return static_cast<double>(shape.layers) * (attention_params(h) + mlp_params(h)) +
         embedding_params(shape) + 2 * h;
}

double largest_layer(const TransformerShape& shape) {
  return std::max(mlp_params(static_cast<double>(shape.width)), embedding_params(shape));
}

double largest_neighbours(const TransformerShape& shape) {
  const auto h = static_cast<double>(shape.width);
  return attention_params(h) + largest_layer(shape);
}

TensorTraffic tensor_traffic(const TransformerShape& shape, std::int64_t tensor_ranks) {
  const auto t = static_cast<double>(tensor_ranks);
  const double sum = 2 * (t - 1) / t * static_cast<double>(shape.batch) *
                     static_cast<double>(shape.sequence) * static_cast<double>(shape.width);
  return {.blocks = TensorTraffic::kSumsOfBlock * static_cast<double>(shape.layers) * sum,
          .ends = TensorTraffic::kSumsOfEnds * sum};
}

Result<Recompute> recompute_of(std::string_view name) {
  if (name == "none") return Recompute::kNone;
  if (name == "selective") return Recompute::kSelective;
  if (name == "full") return Recompute::kFull;
  return Status(Code::kInvalidArgument,
                "recompute '" + std::string(name) + "' (expected one of none, selective, full)");
}

double activation_bytes(const TransformerShape& shape, Recompute recompute,
                        std::int64_t tensor_ranks, bool sequence) {
  const auto layers = static_cast<double>(shape.layers);
  const auto t = static_cast<double>(tensor_ranks);
  const double sbh = static_cast<double>(shape.sequence) * static_cast<double>(shape.batch) *
                     static_cast<double>(shape.width);
  const double scores = 5.0 * static_cast<double>(shape.heads) *
                        static_cast<double>(shape.sequence) / static_cast<double>(shape.width) / t;
  const double between = sequence ? 1 / t : 1;  // of the stream that is here
  const double others = 10 * between + 24 / t;
  switch (recompute) {
    case Recompute::kNone: return layers * sbh * (others + scores);
    case Recompute::kSelective: return layers * sbh * others + (layers > 0 ? sbh * scores : 0);
    case Recompute::kFull:
      return layers * sbh * 2 * between + (layers > 0 ? sbh * (others + scores) : 0);
  }
  return 0;
}

}  // namespace gradwire
