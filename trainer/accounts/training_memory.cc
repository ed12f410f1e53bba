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
  if (optimizer == "adamw" || optimizer == "lamb") return 2 * kFp32Width;
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

bool sums_first(const MemoryQuestion& question) {
  return question.accumulate > 1 && !question.reduce_each;
}

// Of a rank's parameters, in 16 bits that are emulated at stages 1 to 3: `own` of `whole`.
MemoryRow emulated_memory(const MemoryQuestion& question, double whole, double own) {
  const StateBytes& bytes = question.bytes;
  MemoryRow row;
  row.params = question.stage == 3 ? kFp32Width * own : bytes.params * whole;
  row.grads = question.stage == 1 ? bytes.grads * whole : kFp32Width * own;
  row.optimizer = bytes.moments * own;
  if (question.stage <= 2) row.optimizer += kFp32Width * whole + bytes.master * own;
  if (question.stage == 1) row.optimizer += kFp32Width * whole + kFp32Width * own;
  if (question.stage >= 2 && (question.whole_gradients || sums_first(question))) {
    row.optimizer += kFp32Width * whole;
  }
  return row;
}

// As run_memory() has it, of `held` parameters.
double workspace_of(const MemoryQuestion& question, double held) {
  const bool stores_sums = question.bytes.master > 0 && question.bytes.main_grads == 0;
  const int kept_below = question.reduce_each ? 1 : question.whole_gradients ? 4 : 2;
  if (question.accumulate == 1 || stores_sums || question.stage >= kept_below) return 0;
  return kFp32Width * held;
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

double StateBytes::owner_copies(int stage) const {
  if (master > 0 || stage < 1 || stage > 2) return 0;
  return stage == 1 ? params + grads : params;
}

MemoryRow training_memory(const MemoryQuestion& question) {
  const auto held = question.params / static_cast<double>(question.tensor_ranks) /
                    static_cast<double>(question.pipeline_stages);
  const bool emulated = question.emulated && question.bytes.master > 0;
  if (emulated && question.stage > 0) {
    MemoryRow row =
        emulated_memory(question, held, held / static_cast<double>(question.data_ranks));
    row.gathered = kFp32Width * question.gathered_params;
    row.activations = question.activation_bytes;
    row.workspace = workspace_of(question, held);
    return row;
  }
  const auto sharded_from = [&](int stage) {
    return question.stage >= stage ? held / static_cast<double>(question.data_ranks) : held;
  };
  MemoryRow row;
  row.optimizer =
      (question.bytes.optimizer() + question.bytes.owner_copies(question.stage)) * sharded_from(1);
  row.grads = question.bytes.grads * sharded_from(2);
  if (question.stage >= 2 && sums_first(question)) row.grads += kFp32Width * held;
  row.params = question.bytes.params * sharded_from(3);
  if (question.stage >= 3) row.gathered = question.bytes.params * question.gathered_params;
  if (emulated) row.gathered = kFp32Width * question.gathered_params;
  row.activations = question.activation_bytes;
  row.workspace = workspace_of(question, held);
  return row;
}

double saving(const MemoryQuestion& question) {
  MemoryQuestion state = question;
  state.gathered_params = state.activation_bytes = 0;
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

Result<Recompute> recompute_of(std::string_view name) {
  if (name == "none") return Recompute::kNone;
  if (name == "selective") return Recompute::kSelective;
  if (name == "full") return Recompute::kFull;
  return Status(Code::kInvalidArgument,
                "recompute '" + std::string(name) + "' (expected one of none, selective, full)");
}

double activation_bytes(const TransformerShape& shape, Recompute recompute,
                        std::int64_t tensor_ranks) {
  const auto layers = static_cast<double>(shape.layers);
  const auto t = static_cast<double>(tensor_ranks);
  const double sbh = static_cast<double>(shape.sequence) * static_cast<double>(shape.batch) *
                     static_cast<double>(shape.width);
  const double scores = 5.0 * static_cast<double>(shape.heads) *
                        static_cast<double>(shape.sequence) / static_cast<double>(shape.width) / t;
  const double others = 10 + 24 / t;
  switch (recompute) {
    case Recompute::kNone: return layers * sbh * (others + scores);
    case Recompute::kSelective: return layers * sbh * others + (layers > 0 ? sbh * scores : 0);
    case Recompute::kFull: return layers * sbh * 2 + (layers > 0 ? sbh * (others + scores) : 0);
  }
  return 0;
}

}  // namespace gradwire
