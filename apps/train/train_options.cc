#include "apps/train/train_options.h"

#include <algorithm>
#include <string_view>

#include "adapters/launch/rank_place.h"
#include "adapters/launch/variables.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "base/text.h"
#include "collectives/nccl_factory.h"
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
  flags.choice("model", o.model, model_names(), "network to train");
  flags.integers("hidden", o.hidden, {1, 65536}, "widths of the mlp's hidden layers, in units");
  flags.integer("width", o.width, {1, 65536},
                "of the gpt's vectors, the alexnet's linear layers, the resnet's first stage",
                "64, 4096, 16");
  flags.integer("layers", o.layers, {0, 1024}, "blocks of the gpt");
  flags.integer("heads", o.heads, kFromOne, "of the gpt's attention");
  flags.toggle("tied", o.tied, "the gpt's head is its embedding");
  flags.number("dropout", o.dropout, {0, 0.99}, "share of values dropped, of alexnet and gpt",
               "0.5 for alexnet, 0 for gpt");
  flags.choice("init", o.init, {"model", "uniform", "xavier", "kaiming", "gpt2"},
               "how parameters start; model: as the model does");
  flags.choice("data", o.data, data_set_names(), "data set");
  flags.text("data-dir", o.data_dir, "the set's folder or its parent; else GRADWIRE_DATA",
             "the carried sets");
  flags.text("text-file", o.text_file, "the text of --data text");
  flags.choice("tokens", o.tokens, {"bytes", "characters", "words"}, "what a text is made of");
  flags.integer("context", o.context, kFromOne, "tokens of one sample of a text");
  flags.integer("vocabulary-size", o.vocabulary_size, {2, 1 << 20},
                "words known at most, the most frequent ones");
  flags.text("vocabulary", o.vocabulary, "file of the words known, one a line",
             "the text's most frequent ones");
  flags.text("load-params", o.load_params, "start from this safetensors file", "drawn from --seed");
  flags.text("save-params", o.save_params,
             "write the final parameters there (safetensors, rank 0)");
}

void add_optimizer_flags(Flags& flags, TrainOptions& o) {
  flags.group("Optimisation");
  flags.integer("steps", o.steps, kFromZero, "optimizer steps");
  flags.integer("epochs", o.epochs, {1, 1e9}, "passes over the training set, instead of --steps",
                "none");
  flags.integer("batch", o.batch, kFromOne, "global batch in samples, over all ranks");
  flags.seed("seed", o.seed, "of initial parameters, data order and dithers");
  flags.number("lr", o.lr, {0, 1e6}, "learning rate");
  flags.number("momentum", o.momentum, {0, 1}, "momentum factor, 0 for none");
  flags.choice("momentum-at", o.momentum_at, {"server", "worker"},
               "momentum after averaging (server) or before compression (worker)");
  flags.custom(
      "optimizer", "SPEC", o.optimizer,
      [&o](const std::string& text) {
        if (const auto choice = parse_optimizer(text); !choice.has_value()) return choice.error();
        o.optimizer = text;
        return Status();
      },
      "sgd, nesterov, adamw, lamb, or what compresses at the optimizer: onebit_adam, "
      "zero_one_adam, "
      "onebit_lamb, demo, diloco; with options as adamw:beta2=0.99 or onebit_adam:freeze=300");
  flags.text("optimizer-compressor", o.optimizer_compressor,
             "a spec for the momenta or updates that such an optimizer sends",
             "the optimizer's own");
}

void add_memory_flags(Flags& flags, TrainOptions& o) {
  flags.group("Memory");
  flags.integer("zero", o.zero, {0, 3},
                "stage of ZeRO: 1 shards the optimizer's state over the ranks, 2 the gradients "
                "too, 3 the parameters too, which are gathered layer by layer");
  flags.text("parameter-compressor", o.parameter_compressor,
             "with --zero: a spec for the updated parameters that ranks gather (at stage 3 none "
             "or cast)");
  flags.custom(
      "recompute", "POLICY", "none",
      [&o](const std::string& text) {
        GW_TRY(check_recompute(text));
        o.recompute = text;
        return Status();
      },
      "what backward computes again instead of keeping it: none, selective (the layers that cost "
      "least for what they keep), full (inside every layer), sqrt (segments of about the root of "
      "the layers), or a number, the layers of a segment");
  flags.choice("offload", o.offload, {"none", "optimizer", "parameters"},
               "what lies in a second arena, the host's: the optimizer's state and fp32 "
               "parameters, or also what layers compute with");
  flags.integer("offload-chunk", o.offload_chunk, {1, 1 << 30},
                "elements that are copied and updated together");
  flags.choice("offload-overlap", o.offload_overlap, {"on", "off"},
               "whether they are while the rest of the gradient is on its way; the same bits");
  flags.toggle("memory", o.memory, "print what was held by class, beside what was to be expected");
  flags.toggle("allow-overcommit", o.allow_overcommit,
               "start a run that needs more memory than there seems to be, with a warning");
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
      "what computes, and where parameters, activations and gradients lie: cpu; cuda, the CUDA "
      "device of the rank's number on its host (modulo the devices that it sees); or cuda:N, "
      "device N on every rank");
}

void add_gradient_flags(Flags& flags, TrainOptions& o) {
  flags.number("weight-decay", o.weight_decay, {0, 1e6},
               "of tensors with two dimensions or more; in sgd and nesterov part of the gradient, "
               "else apart from it");
  flags.number("clip", o.clip, {0, 1e30},
               "largest global norm of the averaged gradient, 0 for any");
  flags.number("clip-worker", o.clip_worker, {0, 1e30},
               "largest norm of each worker's gradient before it is compressed, 0 for any");
  flags.choice("precision", o.precision, {"fp32", "bf16", "fp16"},
               "of stored parameters and gradients; the optimizer's parameters are fp32");
  flags.toggle("no-main-grads", o.no_main_grads,
               "bf16 and fp16 gradients are not kept in fp32 until the optimizer's step");
  flags.custom(
      "loss-scale", "SCALE", "dynamic for fp16, else none",
      [&o](const std::string& text) {
        if (const auto scale = LossScaleOptions::parse(text); !scale.has_value()) {
          return scale.error();
        }
        o.loss_scale = text;
        return Status();
      },
      "none, dynamic, or a number; steps whose gradients overflow are left out");
  flags.custom(
      "lr-schedule", "SCHEDULE", "constant",
      [&o](const std::string& text) {
        GW_ASSIGN(o.lr_schedule, LrSchedule::parse(text));
        return Status();
      },
      "constant, or between commas warmup:STEPS, cosine:FRACTION (down to it at the end) and "
      "step:FRACTION:FACTOR (times FACTOR after that fraction of the steps)");
  flags.choice(
      "shuffle", o.shuffle, {"auto", "epoch", "none", "uniform"},
      "new order of samples every epoch, the file's order, or every sample drawn from all; "
      "auto is uniform for texts, else epoch");
  flags.integer("accumulate", o.accumulate, {1, 4096},
                "micro-batches that one rank adds up per step, instead of that many ranks");
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
      "a spec (topk:ratio=0.01,ef=ef14), or rules by name and size, the first that fits "
      "(*.bias=none;*@..64K=cast:bf16;*=qsgd:bits=4); "
      "see gradwire inspect compressors");
  flags.choice("algorithm", o.algorithm, {"auto", "ring", "canonical"},
               "all-reduce of dense gradients; canonical adds in rank order, auto is ring");
  flags.custom(
      "transport", "NAME", "GRADWIRE_TRANSPORT, else ucx, or tcp in a build without it",
      [&o](const std::string& text) {
        GW_TRY(launch::check_transport(text));
        o.transport = text;
        return Status();
      },
      "between processes: ucx or tcp; shm, for ranks of one host; auto, the best of these; nccl, "
      "beside them, for --device cuda, or nccl:N on device N, also between threads");
  flags.integer("inproc", o.inproc, {1, 64}, "so many ranks as threads of this process",
                "as the launcher says, else 1");
  flags.bytes("bucket-bytes", o.bucket_bytes, {1}, "gradient bytes that travel together");
  flags.integer("threads", o.threads, {1, 1024},
                "of each rank that encode and decode: the same bits by any number");
  flags.number("deadline", o.deadline, {0.1, 86400}, "seconds that one operation may take",
               shortest(o.deadline) + ", or what gradwire run says");
  flags.text("flight", o.flight, "folder for what each rank did last, should the job fail",
             "GRADWIRE_FLIGHT, else none");
  flags.integer("check-every", o.check_every, kFromZero,
                "steps between comparisons of all ranks' parameter hashes, 0 for never");
  flags.toggle("allow-unsafe", o.allow_unsafe,
               "run pairs that fail or may diverge, with a warning");
}

void add_checkpoint_flags(Flags& flags, TrainOptions& o) {
  flags.group("Checkpoints");
  flags.text("checkpoint", o.checkpoint, "folder for checkpoints, which all ranks see");
  flags.integer("checkpoint-every", o.checkpoint_every, kFromZero,
                "steps between checkpoints, 0 for one at the end only");
  flags.integer("checkpoint-keep", o.checkpoint_keep, kFromOne, "so many last ones stay");
  flags.toggle("resume", o.resume,
               "go on from the last complete one; without any, from the beginning");
}

void add_report_flags(Flags& flags, TrainOptions& o) {
  flags.group("Reports");
  flags.integer("eval-every", o.eval_every, kFromZero,
                "steps between test accuracies, 0 for the end only");
  flags.integer("measure-every", o.measure_every, kFromZero,
                "steps between measurements of the averaged gradient's error and of the residual, "
                "0 for never; outside the bytes and seconds of the metrics");
  flags.toggle(
      "dry-run", o.dry_run,
      "check flags, data and model, say what would run and the memory that it would take, and "
      "end without taking any");
  flags.text("metrics", o.metrics, "JSON lines: one per step and a last one of totals (rank 0)");
  flags.text("trace", o.trace,
             "Chrome trace of all ranks, for ui.perfetto.dev: layers, buckets, waits (rank 0)");
  flags.integer("trace-steps", o.trace_steps, kFromOne, "so many first steps are in the trace");
  flags.toggle("quiet", o.quiet, "no progress and no summary");
  flags.choice("log-level", o.log_level, {"trace", "debug", "info", "warn", "error", "off"},
               "of the log on standard error; else GRADWIRE_LOG, else warn");
}

// What one optimizer takes and another does not.
Status check_optimizer(const Flags& flags, const TrainOptions& options) {
  const auto refuse = [&](const std::string& what, const std::string& why) {
    return Status(Code::kInvalidArgument,
                  "train: " + what + " (--optimizer " + options.optimizer + " seen" + why + ")");
  };
  const bool takes_momentum = options.optimizer == "sgd" || options.optimizer == "nesterov";
  if (!takes_momentum && (flags.given("momentum") || flags.given("momentum-at"))) {
    return refuse("--momentum and --momentum-at belong to sgd and nesterov", "");
  }
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(options.optimizer));
  if (!choice.method && flags.given("optimizer-compressor")) {
    return refuse("--optimizer-compressor is for optimizers that send momenta or updates", "");
  }
  if (choice.method && options.zero > 0) {
    return refuse("--zero shards sgd, nesterov, adamw and lamb", "");
  }
  if (choice.method && options.offload != "none") {
    return refuse("--offload takes sgd, nesterov and adamw", "");
  }
  if (choice.method && options.measure_every > 0) {
    return refuse("--measure-every compares averaged gradients",
                  ", which sends something else; sgd, nesterov, adamw or lamb wanted");
  }
  if (options.offload == "parameters" && (options.zero == 1 || options.zero == 2)) {
    return refuse("--offload parameters belongs to --zero 0 or 3; --offload optimizer wanted", "");
  }
  if (flags.given("offload-overlap") && (options.zero > 0 || options.offload == "none")) {
    return refuse("--offload-overlap belongs to --offload optimizer or parameters at --zero 0", "");
  }
  if (options.zero == 0 && flags.given("parameter-compressor")) {
    return refuse("--parameter-compressor is of sharded parameters; --zero 1, 2 or 3 wanted", "");
  }
  if (choice.method && flags.given("compressor")) {
    return refuse("--compressor is of gradients",
                  ", which sends something else; --optimizer-compressor wanted");
  }
  return {};
}

// What training on a device does not serve yet.
Status check_device_flags(const TrainOptions& options) {
  GW_ASSIGN(const launch::DeviceName device, launch::parse_device(options.device));
  if (device.space != MemorySpace::kCuda) return {};
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(options.optimizer));
  struct Unserved {
    bool asked;
    std::string seen;
    const char* wanted;
  };
  const std::vector<Unserved> all{{options.offload != "none" && options.no_main_grads,
                                   "--offload and --no-main-grads", "one of them"},
                                  {choice.method.has_value(), "--optimizer " + options.optimizer,
                                   "sgd, nesterov, adamw or lamb"}};
  for (const auto& [asked, seen, wanted] : all) {
    if (!asked) continue;
    return {Code::kInvalidArgument, "train: --device " + options.device + " with " + seen +
                                        " is not served yet (wanted: " + wanted + ")"};
  }
  return {};
}

// A flag of a model that is not trained would change nothing.
Status check_model_flags(const Flags& flags, const TrainOptions& options) {
  struct Belongs {
    const char* flag;
    std::vector<std::string> models;
  };
  const std::vector<Belongs> all{
      {"hidden", {"mlp"}}, {"width", {"gpt", "alexnet", "resnet8", "resnet20"}},
      {"layers", {"gpt"}}, {"heads", {"gpt"}},
      {"tied", {"gpt"}},   {"dropout", {"alexnet", "gpt"}}};
  for (const auto& [flag, models] : all) {
    if (!flags.given(flag)) continue;
    if (std::find(models.begin(), models.end(), options.model) != models.end()) continue;
    std::string wanted;
    for (const std::string& model : models) wanted += (wanted.empty() ? "" : " or ") + model;
    return {Code::kInvalidArgument, std::string("train: --") + flag + " belongs to the " + wanted +
                                        " (--model " + options.model + " seen; " + wanted +
                                        " wanted)"};
  }
  return {};
}

// An empty path is what a shell leaves of a variable that is not set: nobody means "none" by it.
Status check_paths(const Flags& flags, const TrainOptions& o) {
  for (const auto& [name, path] : {std::pair("checkpoint", &o.checkpoint),
                                   {"load-params", &o.load_params},
                                   {"metrics", &o.metrics},
                                   {"save-params", &o.save_params},
                                   {"trace", &o.trace}}) {
    if (!flags.given(name) || !path->empty()) continue;
    return {Code::kInvalidArgument, format("train: --%s is empty (a path wanted)", name)};
  }
  if (o.tokens == "words" || !(flags.given("vocabulary") || flags.given("vocabulary-size"))) {
    return {};
  }
  return {Code::kInvalidArgument,
          "train: --vocabulary and --vocabulary-size are of words (--tokens " + o.tokens +
              " seen; --tokens words wanted)"};
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

std::string dense_algorithm(const TrainOptions& options) {
  if (options.algorithm != "auto") return options.algorithm;
  const bool there = options.place.space == MemorySpace::kCuda;
  return there && is_nccl(options.transport) ? "auto" : "ring";
}

Status check_train_options(const Flags& flags, const TrainOptions& options) {
  const auto refuse = [](const std::string& what) {
    return Status(Code::kInvalidArgument, "train: " + what);
  };
  if (flags.given("steps") && options.epochs > 0) {
    return refuse("--steps and --epochs exclude one another (both seen; one wanted)");
  }
  if (options.inproc > 0 && !options.transport.empty() && !is_nccl(options.transport)) {
    return refuse("--transport " + options.transport +
                  " with --inproc, whose ranks are threads (nccl, or no --transport, wanted)");
  }
  if (options.inproc > 0 && options.accumulate > 1) {
    return refuse("--inproc and --accumulate exclude one another (both seen; one wanted)");
  }
  // A thread takes two of the mappings of which Linux gives a process 65,530, and what a container
  // gives is less.
  constexpr std::int64_t kMostThreads = 8192;
  if (std::max<std::int64_t>(options.inproc, 1) * options.threads > kMostThreads) {
    return refuse(
        format("--threads %lld of each of --inproc %lld ranks (%lld threads of one "
               "process seen; at most %lld wanted)",
               static_cast<long long>(options.threads), static_cast<long long>(options.inproc),
               static_cast<long long>(options.threads * options.inproc),
               static_cast<long long>(kMostThreads)));
  }
  if (options.momentum >= 1)
    return refuse("--momentum remembers for ever (1 seen; below 1 wanted)");
  GW_TRY(check_optimizer(flags, options));
  GW_TRY(check_device_flags(options));
  std::int64_t parts = options.accumulate;
  if (options.inproc > 0) {
    GW_ASSIGN(parts, workers_among(options, static_cast<int>(options.inproc)));
  }
  if (options.batch % parts != 0) {
    return refuse("--batch cannot be cut into equal parts (" + std::to_string(options.batch) +
                  " seen; a multiple of " + std::to_string(parts) + " wanted)");
  }
  if (options.checkpoint.empty() &&
      (options.resume || flags.given("checkpoint-every") || flags.given("checkpoint-keep"))) {
    return refuse("--resume, --checkpoint-every and --checkpoint-keep want --checkpoint DIR");
  }
  if (options.trace.empty() && flags.given("trace-steps")) {
    return refuse("--trace-steps wants --trace FILE");
  }
  if (flags.given("text-file") != (options.data == "text")) {
    return refuse("--text-file and --data text belong together (one seen; both wanted)");
  }
  GW_TRY(check_paths(flags, options));
  return check_model_flags(flags, options);
}

}  // namespace gradwire
