#include "apps/plan/plan_question.h"

#include "base/text.h"

namespace gradwire {
namespace {

constexpr Limits kFromOne{1, 1 << 24};
constexpr Limits kFromZero{0, 1 << 24};

void add_model_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Model");
  flags.number("params", q.params, {0, 1e15}, "number of parameters of the model",
               "from the transformer's shape");
  flags.integer("layers", q.transformer.layers, kFromZero, "transformer: number of layers");
  flags.integer("width", q.transformer.width, kFromZero, "transformer: width of the hidden state");
  flags.integer("heads", q.transformer.heads, kFromZero, "transformer: attention heads");
  flags.integer("sequence", q.transformer.sequence, kFromZero,
                "transformer: length of a sample, in tokens");
  flags.integer("vocabulary", q.transformer.vocabulary, kFromZero,
                "transformer: vocabulary, in tokens");
  flags.integer("micro-batch", q.transformer.batch, kFromOne, "size of a micro-batch, in samples");
  flags.choice(
      "recompute", q.recompute, {"none", "selective", "full"},
      "activation checkpointing: selective recomputes attention scores, full whole layers");
  flags.choice("precision", q.precision, {"fp32", "bf16", "fp16"},
               "type of stored parameters and gradients");
  flags.choice("optimizer", q.optimizer, {"sgd", "momentum", "nesterov", "adamw", "lamb"},
               "optimizer; its state is fp32");
  flags.toggle("no-main-grads", q.no_main_grads,
               "no fp32 copy of bf16 and fp16 gradients (--zero 0 only)");
}

void add_mesh_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Ranks");
  flags.integer("zero", q.zero, {0, kZeroStages - 1}, "ZeRO stage");
  flags.integer("data", q.data_ranks, kFromOne, "number of data-parallel ranks");
  flags.integer("tensor", q.tensor_ranks, kFromOne,
                "number of tensor-parallel ranks; only 1 is supported");
  flags.integer("pipeline", q.pipeline_stages, kFromOne,
                "number of pipeline stages; only 1 is supported");
  flags.bytes("device-mem", q.device_mem, {0}, "memory of a rank, in bytes; 0: no limit");
}

void add_cost_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Communication");
  flags.text("compressor", q.compressor, "compressor of the gradients' all-reduce", "none", "SPEC");
  flags.number("alpha", q.links.alpha, {0, 1e4}, "latency of a message, in seconds");
  flags.number("beta", q.links.beta, {0, 1}, "transfer time per byte, in seconds");
  flags.number("gamma", q.links.gamma, {0, 1}, "reduction time per byte, in seconds");
  flags.group("Output");
  flags.toggle("memory", q.memory, "table of memory only, without --cost");
  flags.toggle("cost", q.cost, "table of communication only, without --memory");
  flags.json_output(q.json);
}

bool transformer_given(const TransformerShape& shape) {
  return shape.layers > 0 && shape.width > 0 && shape.heads > 0 && shape.sequence > 0;
}

// What no run can do is not planned either: it would be read as a promise.
Status check_served(const PlanQuestion& q) {
  const auto refuse = [](const std::string& seen, const char* wanted) {
    return Status(Code::kInvalidArgument,
                  "plan: not supported yet (got " + seen + ", expected " + wanted + ")");
  };
  if (q.tensor_ranks > 1)
    return refuse(format("--tensor %lld", static_cast<long long>(q.tensor_ranks)), "--tensor 1");
  if (q.pipeline_stages > 1)
    return refuse(format("--pipeline %lld", static_cast<long long>(q.pipeline_stages)),
                  "--pipeline 1");
  if (q.no_main_grads && q.zero > 0)
    return refuse(format("--no-main-grads with --zero %lld", static_cast<long long>(q.zero)),
                  "--zero 0");
  return {};
}

Status check(const Flags& flags, const PlanQuestion& q) {
  GW_TRY(check_served(q));
  const TransformerShape& shape = q.transformer;
  const bool some = shape.layers > 0 || shape.width > 0 || shape.heads > 0 || shape.sequence > 0;
  if (some && !transformer_given(shape)) {
    return {Code::kInvalidArgument,
            format("plan: a transformer's shape needs all four of its flags (got --layers %lld "
                   "--width %lld --heads %lld --sequence %lld)",
                   static_cast<long long>(shape.layers), static_cast<long long>(shape.width),
                   static_cast<long long>(shape.heads), static_cast<long long>(shape.sequence))};
  }
  if (!flags.given("params") && !some) {
    return {Code::kInvalidArgument,
            "plan: no model (expected --params N, or --layers, --width, --heads and --sequence)"};
  }
  if (some && shape.width % shape.heads != 0) {
    return {Code::kInvalidArgument,
            format("plan: --width must be a multiple of --heads (got --width %lld, --heads %lld)",
                   static_cast<long long>(shape.width), static_cast<long long>(shape.heads))};
  }
  return {};
}

}  // namespace

Result<Flags::Outcome> read_plan_flags(const std::vector<std::string>& args, PlanQuestion& q) {
  Flags flags("plan",
              "Estimates a rank's memory and its communication per step for every ZeRO stage, by "
              "arithmetic. Exits with 1 if --zero does not fit into --device-mem.");
  add_model_flags(flags, q);
  add_mesh_flags(flags, q);
  add_cost_flags(flags, q);
  flags.example("gradwire plan --params 7e9 --precision bf16 --optimizer adamw --data 8");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return outcome;
  GW_TRY(check(flags, q));
  if (!flags.given("params")) q.params = transformer_params(q.transformer);
  if (!q.memory && !q.cost) q.memory = q.cost = true;
  return outcome;
}

Result<MemoryQuestion> memory_question(const PlanQuestion& q, int stage) {
  MemoryQuestion question;
  question.params = q.params;
  GW_ASSIGN(question.bytes, state_bytes(q.precision, q.optimizer, !q.no_main_grads));
  question.stage = stage;
  question.data_ranks = q.data_ranks;
  question.tensor_ranks = q.tensor_ranks;
  question.pipeline_stages = q.pipeline_stages;
  question.emulated = true;
  question.whole_gradients = q.precision == "fp16";  // which has a loss scale unless told otherwise
  if (!transformer_given(q.transformer)) return question;
  GW_ASSIGN(const Recompute recompute, recompute_of(q.recompute));
  question.activation_bytes = activation_bytes(q.transformer, recompute, q.tensor_ranks);
  // At stage 3 the next layer's travel while one computes.
  const double whole =
      stage == 3 ? largest_neighbours(q.transformer) : largest_layer(q.transformer);
  question.gathered_params = whole / static_cast<double>(q.tensor_ranks);
  return question;
}

}  // namespace gradwire
