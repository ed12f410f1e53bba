#include "apps/plan/plan_question.h"

#include "base/text.h"

namespace gradwire {
namespace {

constexpr Limits kFromOne{1, 1 << 24};
constexpr Limits kFromZero{0, 1 << 24};

void add_model_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Model");
  flags.number("params", q.params, {0, 1e15}, "parameters of the whole model",
               "as the transformer's shape says");
  flags.integer("layers", q.transformer.layers, kFromZero, "of a transformer");
  flags.integer("width", q.transformer.width, kFromZero, "of its hidden state");
  flags.integer("heads", q.transformer.heads, kFromZero, "of its attention");
  flags.integer("sequence", q.transformer.sequence, kFromZero, "tokens of a sample");
  flags.integer("vocabulary", q.transformer.vocabulary, kFromZero, "tokens that there are");
  flags.integer("micro-batch", q.transformer.batch, kFromOne, "samples of one pass");
  flags.choice("recompute", q.recompute, {"none", "selective", "full"},
               "what backward computes again instead of keeping it: nothing, the attention's "
               "scores, whole layers");
  flags.choice("precision", q.precision, {"fp32", "bf16", "fp16"},
               "parameters and gradients are stored in");
  flags.choice("optimizer", q.optimizer, {"sgd", "momentum", "nesterov", "adamw", "lamb"},
               "whose state is kept in fp32");
  flags.toggle("no-main-grads", q.no_main_grads,
               "bf16 and fp16 gradients are not added up in fp32; of stage 0 alone");
}

void add_mesh_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Ranks");
  flags.integer("zero", q.zero, {0, kZeroStages - 1}, "stage of ZeRO");
  flags.integer("data", q.data_ranks, kFromOne, "data-parallel ranks");
  flags.integer("tensor", q.tensor_ranks, kFromOne, "ranks that share each layer: 1, for now");
  flags.integer("pipeline", q.pipeline_stages, kFromOne,
                "stages of a pipeline of layers: 1, for now");
  flags.bytes("device-mem", q.device_mem, {0}, "a rank's memory; 0: not limited");
}

void add_cost_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Communication");
  flags.text("compressor", q.compressor, "a spec: what the gradients' all-reduce takes with it");
  flags.number("alpha", q.links.alpha, {0, 1e4}, "seconds that a message takes to start");
  flags.number("beta", q.links.beta, {0, 1}, "seconds for each byte of a message");
  flags.number("gamma", q.links.gamma, {0, 1}, "seconds for each byte that is reduced");
  flags.group("Output");
  flags.toggle("memory", q.memory, "the table of memory (default: both)");
  flags.toggle("cost", q.cost, "the table of communication (default: both)");
  flags.text("json", q.json, "file for the rows, one JSON line each");
}

bool transformer_given(const TransformerShape& shape) {
  return shape.layers > 0 && shape.width > 0 && shape.heads > 0 && shape.sequence > 0;
}

// What no run can do is not planned either: it would be read as a promise.
Status check_served(const PlanQuestion& q) {
  const auto refuse = [](const std::string& seen, const char* wanted) {
    return Status(Code::kInvalidArgument,
                  "plan: no run does that yet (" + seen + " seen; " + wanted + " wanted)");
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
            format("plan: half a transformer (--layers %lld --width %lld --heads %lld --sequence "
                   "%lld seen; all four wanted, or none)",
                   static_cast<long long>(shape.layers), static_cast<long long>(shape.width),
                   static_cast<long long>(shape.heads), static_cast<long long>(shape.sequence))};
  }
  if (!flags.given("params") && !some) {
    return {Code::kInvalidArgument,
            "plan: no model (--params N, or --layers, --width, --heads and --sequence wanted)"};
  }
  if (some && shape.width % shape.heads != 0) {
    return {Code::kInvalidArgument,
            format("plan: --width %lld is no multiple of --heads %lld",
                   static_cast<long long>(shape.width), static_cast<long long>(shape.heads))};
  }
  return {};
}

}  // namespace

Result<Flags::Outcome> read_plan_flags(const std::vector<std::string>& args, PlanQuestion& q) {
  Flags flags("plan",
              "What training holds in a rank's memory and what it sends at each step, by stages of "
              "ZeRO: arithmetic, no run.");
  add_model_flags(flags, q);
  add_mesh_flags(flags, q);
  add_cost_flags(flags, q);
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
