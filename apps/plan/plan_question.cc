#include "apps/plan/plan_question.h"

#include <algorithm>

#include "adapters/trainer/compressor_check.h"
#include "apps/plan/plan_model.h"
#include "base/text.h"
#include "trainer/models.h"

namespace gradwire {
namespace {

constexpr Limits kFromOne{1, 1 << 24};
constexpr Limits kFromZero{0, 1 << 24};

void add_model_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Model");
  flags.number("params", q.params, {0, 1e15}, "number of parameters of the model",
               "from the transformer's shape");
  flags.choice("model", q.model, model_names(),
               "model of gradwire train: gpt, of the transformer's shape, or one of --image");
  flags.custom(
      "image", "CxHxW", "none",
      [&q](const std::string& text) {
        GW_ASSIGN(q.image, parse_image_size(text));
        return Status();
      },
      "a sample of --model: channels, height and width, in elements");
  flags.integer("classes", q.classes, kFromOne, "classes of --model");
  flags.integers("hidden", q.hidden, {1, 65536}, "mlp: widths of the hidden layers, in units");
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
  flags.integer("accumulate", q.accumulate, {1, 4096},
                "micro-batches a rank accumulates per step (gradient accumulation)");
  flags.choice("accumulate-policy", q.accumulate_policy, {"sum-then-reduce", "reduce-each"},
               "exchange of the micro-batches' sum, or of each of them");
  flags.toggle("no-main-grads", q.no_main_grads,
               "sums of bf16 and fp16 gradients over micro-batches in 16 bits, not in fp32");
}

void add_mesh_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Ranks");
  flags.integer("zero", q.zero, {0, kZeroStages - 1}, "ZeRO stage");
  flags.integer("data", q.data_ranks, kFromOne, "number of data-parallel ranks");
  flags.custom(
      "parallel", "ITEM{,ITEM}", "--data and --zero",
      [&q](const std::string& text) {
        GW_ASSIGN(q.parallel, ParallelSpec::parse(text));
        return Status();
      },
      "division of the ranks, as gradwire train has it: dp=N and zero=N in place of --data and "
      "--zero; pp=N/SCHEDULE, with --accumulate micro-batches; tp=N/LAYOUT, ranks that share "
      "tensors");
  flags.integer("pipeline", q.pipeline_stages, {1, 4096}, "number of stages: --parallel pp=N");
  flags.bytes("device-mem", q.device_mem, {0}, "memory of a rank, in bytes; 0: no limit");
}

void add_cost_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Communication");
  flags.text("compressor", q.compressor, "compressor of the gradients' all-reduce", "none", "SPEC");
  flags.number("alpha", q.links.alpha, {0, 1e4}, "latency of a message, in seconds");
  flags.number("beta", q.links.beta, {0, 1}, "transfer time per byte, in seconds");
  flags.number("gamma", q.links.gamma, {0, 1}, "reduction time per byte, in seconds");
}

void add_output_flags(Flags& flags, PlanQuestion& q) {
  flags.group("Output");
  flags.toggle("memory", q.memory, "table of memory only, without --cost");
  flags.toggle("cost", q.cost, "table of communication only, without --memory");
  flags.toggle(
      "explain", q.explain,
      "what each way of dividing a layer among the ranks sends, how work and parameters "
      "are split, what tensor parallelism sends and holds; instead of --memory and --cost, "
      "or beside those that are given");
  flags.json_output(q.json);
}

void add_search_flags(Flags& flags, MeshFlags& f) {
  constexpr Limits kRows{1, 1000};
  flags.group("Search for a mesh");
  flags.file(
      "cluster", f.cluster,
      "devices and links, a TOML file: search for the division of the ranks that takes least time; "
      "what --parallel, --zero, --accumulate, --micro-batch and --recompute say of it stays",
      "no search");
  flags.integer("batch", f.batch, {1, 1 << 30}, "samples of a step over all ranks", "none");
  flags.text("compressors", f.compressors,
             "compressors of gradients to choose from, with ';' between", "none", "LIST");
  flags.toggle("allow-stale", f.allow_stale,
               "pipedream and 2bw too, which train with older weights: other mathematics");
  flags.integer("rows", f.rows, kRows, "number of meshes that are shown");
  flags.integer("why", f.why, kRows, "row to explain: time, memory, bytes, and meshes beside it",
                "none");
  flags.file("html", f.html, "page with memory, timeline and all rows, of --why or the first");
  flags.file("write", f.write, "plan file for gradwire train --plan, of --why or the first");
}

bool transformer_given(const TransformerShape& shape) {
  return shape.layers > 0 && shape.width > 0 && shape.heads > 0 && shape.sequence > 0;
}

// --pipeline p is --parallel pp=p.
Status settle_pipeline(const Flags& flags, PlanQuestion& q) {
  if (!flags.given("pipeline")) return {};
  if (q.parallel.pp > 1) {
    return {Code::kInvalidArgument,
            format("plan: --parallel pp=%d and --pipeline %lld exclude each other (got both)",
                   q.parallel.pp, static_cast<long long>(q.pipeline_stages))};
  }
  q.parallel.pp = static_cast<int>(q.pipeline_stages);
  return {};
}

// Puts what --parallel says where --data and --zero have it.
Status settle_plan_parallel(const Flags& flags, PlanQuestion& q) {
  const auto refuse = [&q](const std::string& why) {
    return Status(Code::kInvalidArgument, "plan: --parallel " + to_string(q.parallel) + ": " + why);
  };
  const auto take = [&](const char* item, int value, const char* flag, std::int64_t& place) {
    if (value == ParallelSpec::kUnsaid) return Status();
    if (flags.given(flag)) {
      return refuse(format("%s=%d and --%s %lld exclude each other (got both)", item, value, flag,
                           static_cast<long long>(place)));
    }
    place = value;
    return Status();
  };
  GW_TRY(take("dp", q.parallel.dp, "data", q.data_ranks));
  return take("zero", q.parallel.zero, "zero", q.zero);
}

// What says how one mesh is divided is the search's: it is no question of ranks without a cluster.
Status settle_given(const Flags& flags, PlanQuestion& q) {
  GivenMesh& given = q.mesh.given;
  if (flags.given("zero")) given.zero = q.zero;
  if (flags.given("accumulate")) given.accumulate = q.accumulate;
  if (flags.given("micro-batch")) given.micro_batch = q.transformer.batch;
  if (flags.given("recompute")) given.recompute = q.recompute;
  if (flags.given("parallel")) {
    given.parallel = q.parallel;
    if (q.parallel.zero != ParallelSpec::kUnsaid) {
      if (given.zero) {
        return {
            Code::kInvalidArgument,
            format("plan: --parallel %s: zero=%d and --zero %lld exclude each other (got both)",
                   to_string(q.parallel).c_str(), q.parallel.zero, static_cast<long long>(q.zero))};
      }
      given.zero = q.parallel.zero;
    }
  }
  const PlanQuestion unsaid;
  q.parallel = unsaid.parallel;
  q.zero = unsaid.zero;
  q.accumulate = unsaid.accumulate;
  q.recompute = unsaid.recompute;
  q.transformer.batch = unsaid.transformer.batch;
  return {};
}

// A model for images is known by its sizes alone.
Status check_image_model(const Flags& flags, const PlanQuestion& q) {
  const auto refuse = [&q](const std::string& why) {
    return Status(Code::kInvalidArgument, "plan: --model " + q.model + ": " + why);
  };
  if (!flags.given("image")) return refuse("no sample (expected --image, like 3x224x224)");
  for (const char* other : {"params", "layers", "width", "heads", "sequence", "vocabulary"}) {
    if (!flags.given(other)) continue;
    return refuse(std::string("--") + other + " is of another model (expected --image, --classes)");
  }
  if (q.model != "mlp" && flags.given("hidden")) return refuse("--hidden is of an mlp");
  if (q.parallel.pp > 1) return refuse("pp= (expected 1, or a gpt)");
  return {};
}

// What no run can do is not planned either: it would be read as a promise.
Status check_parts(const PlanQuestion& q) {
  if (q.parallel.tp == 1) return {};
  const std::string what = "plan: --parallel " + to_string(q.parallel);
  if (q.model == "gpt") {
    if (!q.parallel.divides_images()) return {};
    return {Code::kInvalidArgument,
            what + format(": divides images (got --model gpt, expected tp=%d/megatron, or a model "
                          "for images with --image)",
                          q.parallel.tp)};
  }
  return plan_model(q, q.parallel.share(0)).error().with_context(what);
}

Status check_shape(const Flags& flags, const PlanQuestion& q) {
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

// The search decides what these say.
Status check_search(const Flags& flags, const PlanQuestion& q) {
  const bool searches = !q.mesh.cluster.empty();
  for (const char* name : {"batch", "compressors", "allow-stale", "rows", "why", "html", "write"}) {
    if (searches || !flags.given(name)) continue;
    return {Code::kInvalidArgument, std::string("plan: --") + name +
                                        " is of a search for a mesh (expected --cluster FILE)"};
  }
  if (!searches) return {};
  for (const char* name : {"params", "pipeline", "data", "accumulate-policy", "compressor", "alpha",
                           "beta", "gamma", "memory", "cost", "explain"}) {
    if (!flags.given(name)) continue;
    return {Code::kInvalidArgument,
            std::string("plan: --") + name +
                " and --cluster exclude each other (got both; --parallel and --compressors say "
                "what a mesh has, and the file has the links)"};
  }
  GW_TRY(check_given(q.mesh.given, search_layout(q), q.mesh.allow_stale));
  if (flags.given("device-mem") && q.device_mem == 0) {
    return {Code::kInvalidArgument,
            "plan: --device-mem 0 with --cluster (expected 1 byte or more; without it devices have "
            "the memory that the file gives them)"};
  }
  if (!flags.given("batch")) {
    return {Code::kInvalidArgument,
            "plan: --cluster without --batch N (expected a step's samples)"};
  }
  if (q.model == "gpt" && !transformer_given(q.transformer)) {
    return {Code::kInvalidArgument,
            "plan: --cluster needs a model's layers (expected --layers, --width, --heads and "
            "--sequence, or --model NAME with --image)"};
  }
  return {};
}

Status check(const Flags& flags, const PlanQuestion& q) {
  GW_TRY(check_search(flags, q));
  if (q.parallel.pp > 1 && reduces_each(q)) {
    return {Code::kInvalidArgument, "plan: --accumulate-policy reduce-each with --parallel " +
                                        to_string(q.parallel) + " (expected sum-then-reduce)"};
  }
  const PipelineOrder::Kind order = q.parallel.order.kind;
  if (order == PipelineOrder::Kind::kPipeDream && q.accumulate != 1) {
    return {Code::kInvalidArgument,
            format("plan: --accumulate %lld with --parallel %s (expected 1)",
                   static_cast<long long>(q.accumulate), to_string(q.parallel).c_str())};
  }
  if (order == PipelineOrder::Kind::k2bw && q.accumulate < q.parallel.pp) {
    return {
        Code::kInvalidArgument,
        format("plan: --accumulate %lld with --parallel %s (expected %d or more)",
               static_cast<long long>(q.accumulate), to_string(q.parallel).c_str(), q.parallel.pp)};
  }
  if (q.zero >= zero_stages(q)) {
    return {Code::kUnsupported,
            format("plan: --zero %lld with --parallel %s (expected 0 or 1)",
                   static_cast<long long>(q.zero), to_string(q.parallel).c_str())};
  }
  if (q.no_main_grads && reduces_each(q)) {
    return {Code::kInvalidArgument,
            "plan: --no-main-grads and --accumulate-policy reduce-each exclude each other (got "
            "both)"};
  }
  if (q.model != "gpt") {
    GW_TRY(check_image_model(flags, q));
    return check_parts(q);
  }
  for (const char* other : {"image", "classes", "hidden"}) {
    if (!flags.given(other)) continue;
    return {Code::kInvalidArgument, std::string("plan: --") + other +
                                        " is of another model than gpt (expected --model NAME)"};
  }
  GW_TRY(check_shape(flags, q));
  GW_TRY(check_parts(q));
  if (!q.parallel.order.layers.empty() && q.transformer.layers == 0) {
    return {Code::kInvalidArgument,
            "plan: --parallel " + to_string(q.parallel) +
                " needs a model's layers (got --params alone, expected --layers, --width, --heads "
                "and --sequence)"};
  }
  if (!q.explain || transformer_given(q.transformer)) return {};
  return {Code::kInvalidArgument,
          "plan: --explain needs a model's layers (got --params alone, expected --layers, --width, "
          "--heads and --sequence, or --model NAME with --image)"};
}

}  // namespace

Result<Flags::Outcome> read_plan_flags(const std::vector<std::string>& args, PlanQuestion& q) {
  Flags flags("plan",
              "Estimates a rank's memory and its communication per step for every ZeRO stage, by "
              "arithmetic; exits with 1 if --zero does not fit into --device-mem. With --cluster, "
              "searches for the division of its devices that takes least time. `gradwire plan "
              "search` searches for placements.");
  add_model_flags(flags, q);
  add_mesh_flags(flags, q);
  add_cost_flags(flags, q);
  add_search_flags(flags, q.mesh);
  add_output_flags(flags, q);
  flags.example(
      "gradwire plan --layers 24 --width 2048 --heads 16 --sequence 1024 --vocabulary 50257 "
      "--parallel dp=2,pp=4/1f1b --accumulate 8");
  flags.example(
      "gradwire plan --explain --model alexnet --image 3x224x224 --classes 1000 --micro-batch 128 "
      "--parallel dp=2");
  flags.example("gradwire plan --params 7e9 --precision bf16 --optimizer adamw --parallel dp=8");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return outcome;
  if (!q.mesh.cluster.empty()) {
    GW_TRY(settle_given(flags, q));
  } else {
    GW_TRY(settle_pipeline(flags, q));
    if (flags.given("parallel")) GW_TRY(settle_plan_parallel(flags, q));
  }
  GW_TRY(check(flags, q));
  if (q.model != "gpt") {
    GW_ASSIGN(const Model<float> model, plan_model(q));
    q.params = static_cast<double>(parameter_elems(model.parameters()));
  } else if (!flags.given("params")) {
    q.params = transformer_params(q.transformer);
  }
  if (!q.memory && !q.cost && !q.explain) q.memory = q.cost = true;
  return outcome;
}

std::string search_layout(const PlanQuestion& q) {
  return q.model != "mlp" && q.model != "gpt" ? "hybrid" : "megatron";
}

bool reduces_each(const PlanQuestion& q) {
  return q.accumulate > 1 && q.accumulate_policy == "reduce-each";
}

std::int64_t replicas(const PlanQuestion& q) { return q.data_ranks * q.parallel.pipes(); }

bool has_flush(const PlanQuestion& q) { return !q.parallel.stream_rule(1); }

int zero_stages(const PlanQuestion& q) {
  return q.parallel.pipes() == 1 && has_flush(q) ? kZeroStages : 2;
}

Result<MemoryQuestion> memory_question(const PlanQuestion& q, int stage) {
  MemoryQuestion question;
  question.params = q.params;
  GW_ASSIGN(question.bytes, state_bytes(q.precision, q.optimizer, !q.no_main_grads));
  question.stage = stage;
  question.data_ranks = replicas(q);
  question.tensor_ranks = q.parallel.tp;
  question.pipeline_stages = q.parallel.pp;
  question.accumulate = q.accumulate / q.parallel.pipes();
  question.reduce_each = reduces_each(q);
  question.bundled = true;
  // fp16 has a loss scale unless told otherwise.
  question.whole_gradients = q.precision == "fp16" && !carries_scale(q.compressor);
  if (!transformer_given(q.transformer)) return question;
  GW_ASSIGN(const Recompute recompute, recompute_of(q.recompute));
  question.activation_bytes =
      activation_bytes(q.transformer, recompute, q.parallel.tp, q.parallel.layout.sequence);
  const auto tensor_ranks = static_cast<double>(q.parallel.tp);
  // The next layer's travel while one computes.
  question.gathered_params = largest_neighbours(q.transformer) / tensor_ranks;
  question.widened_params = largest_layer(q.transformer) / tensor_ranks;
  return question;
}

}  // namespace gradwire
