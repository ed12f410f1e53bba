#include "apps/train/own_momentum.h"

#include "adapters/trainer/own_momentum.h"
#include "base/text.h"

namespace gradwire {

Status settle_own_momentum(const Flags& flags, TrainOptions& options) {
  if (options.optimizer != "sgd" && options.optimizer != "nesterov") return {};
  const std::string method = keeps_momentum(options.compressor);
  if (method.empty()) return {};
  const bool asked = flags.given("momentum") ? options.momentum > 0 : options.optimizer != "sgd";
  if (asked) {
    return {Code::kInvalidArgument,
            format("train: --compressor %s has a momentum of its own (got --optimizer %s with "
                   "--momentum %g, expected --momentum 0, also to resume a run that had one)",
                   options.compressor.c_str(), options.optimizer.c_str(), options.momentum)};
  }
  options.momentum = 0;
  if (!flags.given("momentum")) options.momentum_of = method;
  return {};
}

std::string own_momentum_text(const TrainOptions& options) {
  if (options.momentum_of.empty()) return "";
  return ", momentum 0 (" + options.momentum_of + " keeps its own)";
}

}  // namespace gradwire
