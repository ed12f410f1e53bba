// The flags of `gradwire train`.
#include "adapters/launch/rank_place.h"
#include "adapters/launch/variables.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "apps/train/train_options.h"
#include "base/text.h"
#include "collectives/schedules/selection.h"
#include "gradwire/registry.h"
#include "trainer/data/catalog.h"
#include "trainer/layer_walk.h"
#include "trainer/models.h"

namespace gradwire {
namespace {

constexpr Limits kFromOne{1};
constexpr Limits kFromZero{0};

void add_problem_flags(Flags& flags, TrainOptions& o) {
  flags.group("Model and data");
  flags.choice("model", o.model, model_names(), "model to train (--list-models describes them)");
  flags.integers("hidden", o.hidden, {1, 65536}, "mlp: widths of the hidden layers, in units");
  flags.integer("width", o.width, {1, 65536},
                "gpt: embedding width; alexnet: width of the linear layers; resnet8, resnet20: "
                "channels of the first stage",
                "64, 4096, 16");
  flags.integer("layers", o.layers, {0, 1024}, "gpt: number of blocks");
  flags.integer("heads", o.heads, kFromOne, "gpt: number of attention heads");
  flags.toggle("tied", o.tied, "gpt: output head tied to the token embedding");
  flags.number("dropout", o.dropout, {0, 0.99}, "alexnet, gpt: dropout probability",
               "0.5 for alexnet, 0 for gpt");
  flags.choice("init", o.init, {"model", "uniform", "xavier", "kaiming", "gpt2"},
               "initialisation of the parameters; model: the model's own");
  flags.choice("data", o.data, data_set_names(), "data set (--list-data describes them)");
  flags.folder("data-dir", o.data_dir, "folder of the data set, or its parent",
               "GRADWIRE_DATA, else the sets that come with gradwire");
  flags.file("text-file", o.text_file, "text to train on, with --data text");
  flags.file("text-valid", o.text_valid, "text to test on, with --data text",
             "the last tenth of --text-file");
  flags.choice("tokens", o.tokens, {"bytes", "characters", "words"}, "tokens of a text");
  flags.integer("context", o.context, kFromOne, "length of a text sample, in tokens");
  flags.integer("vocabulary-size", o.vocabulary_size, {2, 1 << 20},
                "--tokens words: largest vocabulary, in words; the most frequent ones are kept");
  flags.file("vocabulary", o.vocabulary, "--tokens words: vocabulary file, one word per line",
             "the most frequent words of the text");
  flags.file("load-params", o.load_params, "initial parameters, a safetensors file",
             "random, from --seed");
  flags.file("save-params", o.save_params,
             "output file for the final parameters, safetensors, written by rank 0");
}

void add_optimizer_flags(Flags& flags, TrainOptions& o) {
  flags.group("Optimisation");
  flags.integer("steps", o.steps, kFromZero, "number of optimizer steps");
  flags.integer("epochs", o.epochs, {1, 1e9}, "passes over the training set, instead of --steps",
                "none");
  flags.integer("batch", o.batch, kFromOne, "global batch over all ranks, in samples");
  flags.seed("seed", o.seed,
             "seed of the initial parameters, the order of samples and stochastic rounding");
  flags.number("lr", o.lr, {0, 1e6}, "learning rate");
  flags.number("momentum", o.momentum, {0, 1}, "momentum factor below 1; 0: none");
  flags.choice("momentum-at", o.momentum_at, {"server", "worker"},
               "momentum after averaging (server) or before compression (worker)");
  flags.custom(
      "optimizer", "OPTIMIZER", o.optimizer,
      [&o](const std::string& text) {
        if (const auto choice = parse_optimizer(text); !choice.has_value()) return choice.error();
        o.optimizer = text;
        return Status();
      },
      "optimizer: sgd, nesterov, adamw, lamb; or one that compresses its own messages: "
      "onebit_adam, zero_one_adam, onebit_lamb, demo, diloco. With options: adamw:beta2=0.99, "
      "onebit_adam:freeze=300");
  flags.text("optimizer-compressor", o.optimizer_compressor,
             "compressor of the momenta or updates that such an optimizer sends",
             "the optimizer's own", "SPEC");
}

void add_memory_flags(Flags& flags, TrainOptions& o) {
  flags.group("Memory");
  flags.integer("zero", o.zero, {0, 3},
                "ZeRO stage: 1 shards the optimizer state over the ranks, 2 also the gradients, 3 "
                "also the parameters, gathered layer by layer");
  flags.text("parameter-compressor", o.parameter_compressor,
             "with --zero: compressor of the updated parameters that ranks gather; at stage 3 "
             "none or cast",
             "none", "SPEC");
  flags.custom(
      "recompute", "POLICY", "none",
      [&o](const std::string& text) {
        GW_TRY(check_recompute(text));
        o.recompute = text;
        return Status();
      },
      "activation checkpointing: none, selective (layers that are cheapest to recompute per byte "
      "kept), full (every layer), sqrt (segments of about the square root of the number of "
      "layers), or the number of layers of a segment");
  flags.choice("offload", o.offload, {"none", "optimizer", "parameters"},
               "state kept in host memory: optimizer (optimizer state and fp32 parameters) or "
               "parameters (also the layers' parameters)");
  flags.integer("offload-chunk", o.offload_chunk, {1, 1 << 30},
                "size of the chunks copied and updated by --offload, in elements");
  flags.choice("offload-overlap", o.offload_overlap, {"on", "off"},
               "overlap of the optimizer offload with backward; results are bit-identical");
  flags.toggle("memory", o.memory, "table of the memory used by class, beside the estimate");
  flags.toggle("allow-overcommit", o.allow_overcommit,
               "warning instead of an error where the run seems not to fit into memory");
}

void add_device_flags(Flags& flags, TrainOptions& o) {
  flags.group("Device");
  flags.custom(
      "device", "DEVICE", "cpu",
      [&o](const std::string& text) {
        GW_TRY(launch::parse_device(text).error());
        o.device = text;
        return Status();
      },
      "device of the model, the activations and the gradients: cpu; cuda (the GPU with the "
      "number of the rank on its host, modulo the GPUs it sees); cuda:N (GPU N on every rank)");
}

void add_gradient_flags(Flags& flags, TrainOptions& o) {
  flags.number("weight-decay", o.weight_decay, {0, 1e6},
               "weight decay of tensors with two or more dimensions: part of the gradient in sgd "
               "and nesterov, decoupled in the others");
  flags.number("clip", o.clip, {0, 1e30},
               "largest global norm of the averaged gradient; 0: no clipping");
  flags.number("clip-worker", o.clip_worker, {0, 1e30},
               "largest norm of a rank's gradient before compression; 0: no clipping");
  flags.choice("precision", o.precision, {"fp32", "bf16", "fp16"},
               "type of stored parameters and gradients; the optimizer's copy is fp32");
  flags.toggle("no-main-grads", o.no_main_grads,
               "sums of bf16 and fp16 gradients over micro-batches in 16 bits, not in fp32");
  flags.custom(
      "loss-scale", "SCALE", "dynamic for fp16, else none",
      [&o](const std::string& text) {
        if (const auto scale = LossScaleOptions::parse(text); !scale.has_value()) {
          return scale.error();
        }
        o.loss_scale = text;
        return Status();
      },
      "loss scale: none, dynamic, or a number; steps whose gradients overflow are skipped");
  flags.custom(
      "lr-schedule", "SCHEDULE", "constant",
      [&o](const std::string& text) {
        GW_ASSIGN(o.lr_schedule, LrSchedule::parse(text));
        return Status();
      },
      "learning rate schedule: constant, or a list separated by commas of warmup:STEPS, "
      "cosine:FRACTION (final rate as a fraction of --lr) and step:FRACTION:FACTOR (times FACTOR "
      "after that fraction of the steps)");
  flags.choice("shuffle", o.shuffle, {"auto", "epoch", "none", "uniform"},
               "order of samples: epoch (a new permutation per epoch), none (the file's order), "
               "uniform (with replacement), auto (uniform for texts, else epoch)");
  flags.integer(
      "accumulate", o.accumulate, {1, 4096},
      "micro-batches that each rank accumulates per step (gradient accumulation); --batch is "
      "divided into ranks x micro-batches");
  flags.choice("accumulate-policy", o.accumulate_policy, {"sum-then-reduce", "reduce-each"},
               "exchange of the micro-batches' sum, or of each of them, without error feedback");
}

Status set_transport(const std::string& text, TrainOptions& o) {
  if (text == "inproc") {
    return {Code::kInvalidArgument,
            "got inproc, which is between threads (expected --inproc N, for N ranks as threads of "
            "this process)"};
  }
  GW_TRY(launch::check_transport(text));
  o.transport = text;
  return {};
}

void add_parallel_flags(Flags& flags, TrainOptions& o) {
  flags.custom(
      "parallel", "ITEM{,ITEM}", "all ranks are replicas, --zero",
      [&o](const std::string& text) {
        o.parallel_auto = text == "auto";
        if (o.parallel_auto) return Status();
        GW_ASSIGN(o.parallel, ParallelSpec::parse(text));
        return Status();
      },
      "division of the ranks, without a launcher threads: dp=N (replicas), pp=N[/SCHEDULE] "
      "(pipeline "
      "stages), zero=N (in place of --zero), and tp=N/LAYOUT, ranks that share tensors "
      "(dp=4,zero=1); auto: what --profile says is fastest, with --accumulate and --recompute");
  flags.file("profile", o.profile,
             "profile of this machine, of gradwire profile, for --parallel auto", "profile.json");
  flags.file("plan", o.plan,
             "plan of gradwire plan --write: model, batch, division of the ranks, recompute and "
             "compressor, as if its flags stood here");
}

void add_communication_flags(Flags& flags, TrainOptions& o) {
  flags.group("Communication");
  flags.custom(
      "compressor", "SPEC", o.compressor,
      [&o](const std::string& text) {
        if (const auto rules = parse_spec_rules(text); !rules.has_value()) return rules.error();
        o.compressor = text;
        return Status();
      },
      "compressor of gradients (topk:ratio=0.01,ef=ef14), or rules by parameter name and size of "
      "which the first match wins (*.bias=none;*@..64K=cast:bf16;*=qsgd:bits=4); gradwire inspect "
      "compressors lists them");
  flags.text("traffic", o.traffic,
             "compressors by class of traffic: gradients=SPEC;parameters=SPEC;optimizer=SPEC, with "
             "rules in [ ] and the all-reduce of gradients as gradients/ALGORITHM=SPEC. "
             "--compressor, --parameter-compressor and --optimizer-compressor are short for its "
             "classes; activations, activation_gradients and statistics accept only none",
             "these three", "POLICY");
  std::vector<std::string> algorithms{"auto"};
  for (const std::string_view name : algorithms_of(OpKind::kAllReduce))
    algorithms.emplace_back(name);
  flags.choice("algorithm", o.algorithm, std::move(algorithms),
               "all-reduce of uncompressed gradients; canonical adds in rank order; auto: ring");
  flags.custom(
      "transport", "NAME", "GRADWIRE_TRANSPORT, else ucx, or tcp in a build without UCX",
      [&o](const std::string& text) { return set_transport(text, o); },
      "transport between processes: ucx, tcp, shm (ranks of one host), auto (the best of these), "
      "nccl (with --device cuda) or nccl:N (GPU N, also between threads)");
  add_parallel_flags(flags, o);
  flags.integer("inproc", o.inproc, {1, kMostThreadRanks},
                "number of ranks as threads of this process", "the launcher's ranks, else 1");
  flags.bytes("bucket-bytes", o.bucket_bytes, {1}, "size of a gradient bucket, in bytes");
  flags.integer("threads", o.threads, {1, 1024},
                "encoding and decoding threads per rank; results are bit-identical for any number");
  flags.number("deadline", o.deadline, {0.1, 86400},
               "timeout of one communication operation, in seconds",
               shortest(o.deadline) + ", or the deadline of gradwire run");
  flags.folder("flight", o.flight,
               "folder for flight records: the last operations of each rank, written on failure",
               "GRADWIRE_FLIGHT, else none");
  flags.integer("check-every", o.check_every, kFromZero,
                "steps between comparisons of all ranks' parameter hashes; 0: never");
  flags.toggle("allow-unsafe", o.allow_unsafe,
               "warning instead of an error for combinations that fail or may diverge");
}

void add_checkpoint_flags(Flags& flags, TrainOptions& o) {
  flags.group("Checkpoints");
  flags.folder("checkpoint", o.checkpoint, "folder for checkpoints, visible to all ranks");
  flags.integer("checkpoint-every", o.checkpoint_every, kFromZero,
                "steps between checkpoints; 0: one at the end only");
  flags.integer("checkpoint-keep", o.checkpoint_keep, kFromOne,
                "number of most recent checkpoints to keep");
  flags.toggle("checkpoint-best", o.checkpoint_best,
               "the checkpoint with the lowest test loss of all evaluations (--eval-every) kept in "
               "best/ too");
  flags.toggle(
      "resume", o.resume,
      "continuation from the most recent complete checkpoint; without one, from the start");
}

Status set_evaluated(const std::string& text, TrainOptions& o) {
  const auto windows = text == "full" ? std::optional<std::int64_t>(0) : to_int(text);
  if (!windows || (*windows < 1 && text != "full")) {
    return {Code::kInvalidArgument,
            "got '" + text + "' (expected full, or a number of windows from 1 on)"};
  }
  o.evaluated_windows = windows;
  return {};
}

void add_report_flags(Flags& flags, TrainOptions& o) {
  flags.group("Reports");
  flags.integer("eval-every", o.eval_every, kFromZero,
                "steps between evaluations on the test set; 0: at the end only");
  flags.custom(
      "eval", "full|N", "1,600 windows drawn at random, always the same",
      [&o](const std::string& text) { return set_evaluated(text, o); },
      "what of a text is evaluated: full (all of the test set, every token predicted once) or its "
      "first N windows; they follow one another without overlap");
  flags.integer("measure-every", o.measure_every, kFromZero,
                "steps between measurements of the averaged gradient's error and the residual, not "
                "counted in the metrics' bytes and seconds; 0: never");
  flags.toggle("dry-run", o.dry_run,
               "check of flags, data and model, and an estimate of memory, without training");
  flags.file("metrics", o.metrics,
             "output file for metrics: one JSON line per step and one of totals, from rank 0");
  flags.file("trace", o.trace,
             "output file for a Chrome trace of all ranks' layers, buckets and waits, for "
             "ui.perfetto.dev");
  flags.integer("trace-steps", o.trace_steps, kFromOne, "number of first steps in the trace");
  flags.toggle("quiet", o.quiet, "no progress and no summary");
  flags.choice("log-level", o.log_level, {"trace", "debug", "info", "warn", "error", "off"},
               "level of the log on standard error", "GRADWIRE_LOG, else warn");
}

}  // namespace

void add_train_flags(Flags& flags, TrainOptions& options) {
  add_problem_flags(flags, options);
  add_optimizer_flags(flags, options);
  add_gradient_flags(flags, options);
  add_device_flags(flags, options);
  add_memory_flags(flags, options);
  add_mode_flags(flags, options.mode);
  add_communication_flags(flags, options);
  add_checkpoint_flags(flags, options);
  add_report_flags(flags, options);
}

}  // namespace gradwire
