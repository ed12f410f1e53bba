#include "apps/train/train_options.h"

#include <algorithm>
#include <string_view>

#include "adapters/launch/rank_place.h"
#include "adapters/trainer/compressor_check.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "base/counted.h"
#include "base/text.h"
#include "collectives/device/nccl_backend.h"
#include "trainer/data/catalog.h"

namespace gradwire {
Status check_optimizer(const Flags& flags, const TrainOptions& options) {
  const auto refuse = [&](const std::string& what, const std::string& why) {
    return Status(Code::kInvalidArgument,
                  "train: " + what + " (got --optimizer " + options.optimizer + why + ")");
  };
  const bool takes_momentum = options.optimizer == "sgd" || options.optimizer == "nesterov";
  if (!takes_momentum && (flags.given("momentum") || flags.given("momentum-at"))) {
    return refuse("--momentum and --momentum-at require sgd or nesterov", "");
  }
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(options.optimizer));
  if (!choice.method && flags.given("optimizer-compressor")) {
    return refuse("--optimizer-compressor requires an optimizer that sends momenta or updates", "");
  }
  if (choice.method && options.zero > 0) {
    return refuse("--zero requires sgd, nesterov, adamw or lamb", "");
  }
  if (choice.method && options.offload != "none") {
    return refuse("--offload requires sgd, nesterov or adamw", "");
  }
  if (choice.method && options.measure_every > 0) {
    return refuse(
        "--measure-every compares averaged gradients and requires sgd, nesterov, adamw "
        "or lamb",
        "");
  }
  if (choice.method && options.accumulate_policy == "reduce-each") {
    return refuse("--accumulate-policy reduce-each requires sgd, nesterov, adamw or lamb", "");
  }
  if (options.offload == "parameters" && (options.zero == 1 || options.zero == 2)) {
    return refuse("--offload parameters requires --zero 0 or 3; use --offload optimizer", "");
  }
  if (flags.given("offload-overlap") && (options.zero > 0 || options.offload == "none")) {
    return refuse("--offload-overlap requires --offload optimizer or parameters and --zero 0", "");
  }
  if (options.zero == 0 && flags.given("parameter-compressor")) {
    return refuse("--parameter-compressor requires --zero 1, 2 or 3", "");
  }
  if (choice.method && flags.given("compressor")) {
    return refuse("--compressor compresses gradients; use --optimizer-compressor",
                  ", which does not send gradients");
  }
  return {};
}

namespace {

// Micro-batches that are exchanged one by one leave no exact average of the step, and no sum to
// hand the residual on with.
Status check_reduce_each(const TrainOptions& options) {
  if (options.accumulate_policy != "reduce-each") return {};
  const std::string flag = "train: --accumulate-policy reduce-each";
  const auto excluded = [&flag](const std::string& seen, const std::string& wanted) {
    return Status(Code::kInvalidArgument, flag + " and " + seen.substr(0, seen.find(' ')) +
                                              " exclude each other (got " + seen + ", expected " +
                                              wanted + ", or --accumulate-policy sum-then-reduce)");
  };
  if (options.measure_every > 0) {
    return excluded("--measure-every " + std::to_string(options.measure_every),
                    "--measure-every 0");
  }
  if (options.no_main_grads) return excluded("--no-main-grads", "no such flag");
  // One micro-batch is the sum, and what is no compressor is told without this flag.
  if (options.accumulate == 1 || !check_compressor(options.compressor).ok()) return {};
  return check_no_feedback(options.compressor)
      .with_context(flag + " with --accumulate " + std::to_string(options.accumulate));
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
                                        " is not supported yet (expected " + wanted + ")"};
  }
  return {};
}

struct ModelFlag {
  const char* name = nullptr;
  std::vector<std::string> models = {};  // that have it
};

// Null where every flag that is given is of the model.
const ModelFlag* first_misplaced(const Flags& flags, const TrainOptions& options) {
  static const std::vector<ModelFlag> all{
      {"hidden", {"mlp"}}, {"width", {"gpt", "alexnet", "resnet8", "resnet20"}},
      {"layers", {"gpt"}}, {"heads", {"gpt"}},
      {"tied", {"gpt"}},   {"dropout", {"alexnet", "gpt"}}};
  for (const ModelFlag& one : all) {
    if (!flags.given(one.name)) continue;
    if (std::ranges::find(one.models, options.model) == one.models.end()) return &one;
  }
  return nullptr;
}

}  // namespace

// A flag of a model that is not trained would change nothing.
Status check_model_flags(const Flags& flags, const TrainOptions& options) {
  const ModelFlag* const one = first_misplaced(flags, options);
  if (one == nullptr) return {};
  std::string wanted;
  for (const std::string& model : one->models) wanted += (wanted.empty() ? "" : " or ") + model;
  return {Code::kInvalidArgument, std::string("train: --") + one->name + " requires --model " +
                                      wanted + " (got --model " + options.model + ")"};
}

std::string misplaced_model_flag(const Flags& flags, const TrainOptions& options) {
  const ModelFlag* const one = first_misplaced(flags, options);
  return one == nullptr ? "" : one->name;
}

namespace {

// An empty path is what a shell leaves of a variable that is not set: nobody means "none" by it.
Status check_paths(const Flags& flags, const TrainOptions& o) {
  for (const auto& [name, path] : {std::pair("checkpoint", &o.checkpoint),
                                   {"load-params", &o.load_params},
                                   {"metrics", &o.metrics},
                                   {"text-valid", &o.text_valid},
                                   {"save-params", &o.save_params},
                                   {"trace", &o.trace}}) {
    if (!flags.given(name) || !path->empty()) continue;
    return {Code::kInvalidArgument, format("train: --%s is empty (expected a path)", name)};
  }
  if (o.tokens == "words" || !(flags.given("vocabulary") || flags.given("vocabulary-size"))) {
    return {};
  }
  return {Code::kInvalidArgument,
          "train: --vocabulary and --vocabulary-size require --tokens words (got --tokens " +
              o.tokens + ")"};
}

}  // namespace

std::string dense_algorithm(const TrainOptions& options) {
  if (options.algorithm != "auto") return options.algorithm;
  // Several ranks average the same gradient, each beside others (tied ends, what ranks of tp hold
  // as a whole): its bits must not depend on these.
  const bool repeated = options.tied && options.parallel.pp > 1;
  if (repeated || options.parallel.tp > 1) return "canonical";
  const bool there = options.place.space == MemorySpace::kCuda;
  return there && is_nccl(options.transport) ? "auto" : "ring";
}

std::string all_reduce_name(const TrainOptions& options) {
  const std::string algorithm = dense_algorithm(options);
  return algorithm == "auto" ? "nccl" : algorithm;
}

namespace {

// Under tp=N/hybrid the ranks divide the samples of each.
Status check_micro_batches(const TrainOptions& options, std::int64_t samples) {
  const ParallelSpec& spec = options.parallel;
  if (!spec.share(0).by_samples() || divides_evenly(samples, spec.tp)) return {};
  return {Code::kInvalidArgument,
          format("train: --parallel %s: micro-batches of %lld samples (got --batch %lld and "
                 "--accumulate %lld, expected micro-batches of a multiple of the %d ranks of tp)",
                 to_string(spec).c_str(), static_cast<long long>(samples),
                 static_cast<long long>(options.batch), static_cast<long long>(options.accumulate),
                 spec.tp)};
}

}  // namespace

Status check_batch_shares(const TrainOptions& options, int workers) {
  // Where two pipelines share a replica's micro-batches, each is a worker with half of them.
  const int pipes = options.parallel.pipes();
  if (options.accumulate % pipes != 0) {
    return {Code::kInvalidArgument,
            "train: " + to_string(options.parallel) + " of " +
                counted(static_cast<int>(options.accumulate), "micro-batch", "es") +
                " (expected an even --accumulate: two pipelines have half of them each)"};
  }
  const int each = static_cast<int>(options.accumulate) / pipes;
  const BatchShares shares{workers, each};
  const std::int64_t parts = shares.micro_batches();
  const std::int64_t samples = shares.samples(options.batch);
  if (options.batch % parts == 0) return check_micro_batches(options, samples);
  const std::string product = each == 1 ? ""
                                        : " (" + counted(workers, "rank") + " x " +
                                              counted(each, "micro-batch", "es") + ")";
  return {Code::kInvalidArgument, format("train: --batch must be a multiple of %lld%s (got %lld)",
                                         static_cast<long long>(parts), product.c_str(),
                                         static_cast<long long>(options.batch))};
}

Status check_batch(const TrainOptions& options) {
  if (options.inproc == 0) return check_batch_shares(options, 1);
  GW_ASSIGN(const int workers, workers_among(options, static_cast<int>(options.inproc)));
  return check_batch_shares(options, workers);
}

Status check_train_options(const Flags& flags, const TrainOptions& options) {
  const auto refuse = [](const std::string& what) {
    return Status(Code::kInvalidArgument, "train: " + what);
  };
  if (flags.given("steps") && options.epochs > 0) {
    return refuse("--steps and --epochs exclude each other (got both)");
  }
  if (options.inproc > 0 && !options.transport.empty() && !is_nccl(options.transport)) {
    return refuse("--transport " + options.transport +
                  " cannot be used with --inproc, whose ranks are threads (expected nccl, or no "
                  "--transport)");
  }
  // A thread takes two of the mappings of which Linux gives a process 65,530, and what a container
  // gives is less.
  constexpr std::int64_t kMostThreads = 8192;
  if (std::max<std::int64_t>(options.inproc, 1) * options.threads > kMostThreads) {
    return refuse(
        format("--threads %lld for each of --inproc %lld ranks is too many (got %lld threads in "
               "one process, expected at most %lld)",
               static_cast<long long>(options.threads), static_cast<long long>(options.inproc),
               static_cast<long long>(options.threads * options.inproc),
               static_cast<long long>(kMostThreads)));
  }
  if (options.momentum >= 1) return refuse("--momentum must be below 1 (got 1)");
  GW_TRY(check_optimizer(flags, options));
  GW_TRY(check_reduce_each(options));
  GW_TRY(check_device_flags(options));
  GW_TRY(check_batch(options));
  if (options.checkpoint.empty() &&
      (options.resume || flags.given("checkpoint-every") || flags.given("checkpoint-keep"))) {
    return refuse("--resume, --checkpoint-every and --checkpoint-keep require --checkpoint DIR");
  }
  if (options.checkpoint_best && (options.checkpoint.empty() || options.mode.name != "sync")) {
    return refuse("--checkpoint-best requires --checkpoint DIR and --mode sync");
  }
  if (options.trace.empty() && flags.given("trace-steps")) {
    return refuse("--trace-steps requires --trace FILE");
  }
  if (flags.given("text-file") != (options.data == "text")) {
    return refuse("--text-file and --data text require each other (got one of them)");
  }
  if (flags.given("text-valid") && options.data != "text") {
    return refuse("--text-valid requires --data text (got --data " + options.data + ")");
  }
  if (flags.given("eval") && !is_text_set(options.data)) {
    return refuse("--eval requires a text (got --data " + options.data + ", of which all is " +
                  "evaluated)");
  }
  GW_TRY(check_paths(flags, options));
  return check_model_flags(flags, options);
}

}  // namespace gradwire
