#include "apps/train/traffic_flag.h"

#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "adapters/trainer/traffic_choice.h"

namespace gradwire {

Status settle_traffic(const Flags& flags, TrainOptions& options) {
  if (!flags.given("traffic")) return {};
  const auto refuse = [](const std::string& why) {
    return Status(Code::kInvalidArgument, "train: --traffic: " + why);
  };
  for (const char* flag : {"compressor", "parameter-compressor", "optimizer-compressor"}) {
    if (!flags.given(flag)) continue;
    return refuse("--" + std::string(flag) +
                  " is short for a part of it (got both, expected one of them)");
  }
  const auto parsed = parse_traffic(options.traffic, options.allow_unsafe);
  if (!parsed.has_value()) return parsed.error().with_context("train: --traffic");
  const TrafficChoice& choice = parsed.value();
  GW_ASSIGN(const OptimizerChoice optimizer, parse_optimizer(options.optimizer));
  if (choice.gradients) {
    if (optimizer.method && choice.gradients->compressor != "none") {
      return refuse("gradients=" + choice.gradients->compressor + " with --optimizer " +
                    options.optimizer +
                    ", which does not send gradients (expected optimizer=SPEC)");
    }
    options.compressor = choice.gradients->compressor;
    if (choice.gradients->algorithm != "auto") {
      if (flags.given("algorithm")) {
        return refuse("gradients/" + choice.gradients->algorithm + " and --algorithm " +
                      options.algorithm + " exclude each other (got both)");
      }
      options.algorithm = choice.gradients->algorithm;
    }
  }
  if (choice.parameters) {
    if (options.zero == 0 && choice.parameters->compressor != "none") {
      return refuse("parameters=" + choice.parameters->compressor +
                    " with --zero 0, which sends no parameters (expected --zero 1, 2 or 3)");
    }
    options.parameter_compressor = choice.parameters->compressor;
  }
  if (choice.optimizer) {
    if (!optimizer.method && choice.optimizer->compressor != "none") {
      return refuse("optimizer=" + choice.optimizer->compressor + " with --optimizer " +
                    options.optimizer +
                    ", which sends neither momenta nor updates (expected gradients=SPEC)");
    }
    if (optimizer.method) options.optimizer_compressor = choice.optimizer->compressor;
  }
  return {};
}

}  // namespace gradwire
