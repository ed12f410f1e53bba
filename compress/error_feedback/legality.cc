#include "compress/error_feedback/legality.h"

#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

using Kind = ErrorBound::Kind;

// A contraction that keeps so little of the energy for sure is a coarse quantiser: error feedback
// then holds a residual about as long as the gradient.
constexpr double kWeakContraction = 0.01;
// Above it an unbiased method's noise may drown gradients: QSGD of four bits under the L2 norm has
// 3.2 (and 1.6 times the energy of Gaussian ones), under the largest magnitude 1.6 (and 0.04).
constexpr double kNoisy = 3;
// A share of the message below which what error feedback costs is announced.
constexpr double kSmallShare = 0.5;

Status refused(const std::string& why) { return {Code::kInvalidArgument, why}; }

Result<PairVerdict> without_feedback(const Compressor& compressor, const Shape& shape,
                                     const std::string& name,
                                     const std::optional<double>& momentum) {
  PairVerdict verdict;
  const Traits traits = compressor.traits();
  if (traits.own_feedback && momentum.value_or(0) > 0) {
    return refused(name + format(": keeps a momentum itself, on each rank, and the optimizer has "
                                 "one, too (got momentum %g, expected 0)",
                                 *momentum));
  }
  if (traits.own_feedback && !momentum) {
    verdict.warnings.push_back(
        name +
        ": keeps a momentum and a residual on each rank; the optimizer's own momentum must be 0");
  }
  if (!traits.mean_is_average_of_own) {
    verdict.warnings.push_back(
        name +
        ": a vote's result has magnitude 1 per element, whatever the gradient's; it needs a "
        "learning rate about as small as Adam's, and may not reach the optimum");
  } else if (traits.needs_error_feedback) {
    verdict.warnings.push_back(name +
                               ": biased; without error feedback training may stall or diverge; "
                               "add ef=ef14 (the scaled sign without it, in one known case: 39 % "
                               "accuracy instead of 88 %)");
  }
  const ErrorBound bound = compressor.bound(shape);
  if (bound.kind == Kind::kVariance && bound.value > kNoisy) {
    verdict.warnings.push_back(
        name + format(": unbiased with variance factor omega = %.2g: adds noise of up to omega "
                      "times the gradient's energy, divided by the number of ranks; use more bits, "
                      "elements or smaller buckets (qsgd: norm=linf), or a smaller learning rate",
                      bound.value));
  }
  return verdict;
}

// What a message that is multiplied by `scale` leaves in the residual, where data are as bad as the
// bound allows or not: e = (1 - scale) (g + e) settles at (1 - scale) / scale gradients.
// Measured (qsgd:bits=2,combine=gather, cnn on the CIFAR subset, 800 steps): 46 to 47 % divided by
// 12.31, 52 to 56 % without error feedback, 58.9 % with ef_scale=none.
std::string price_of(double scale) {
  return format(
      "; this keeps about %.3g gradients in the residual, applied as many steps late, and may cost "
      "more accuracy than ef gains (qsgd:bits=2 on a cnn: 46 %% with it, 52 to 56 %% "
      "without ef); compare with ef=none, or with ef_scale=none where unsafe pairs are allowed",
      (1 - scale) / scale);
}

// A contraction for sure only when multiplied by `scale` < 1. `claim` says what the method is.
Result<PairVerdict> over_scaled(const std::string& name, const std::string& claim, double scale,
                                const Shape& shape, const PairOptions& options) {
  PairVerdict verdict;
  if (options.ef_scale_auto) {
    verdict.scale = scale;
    verdict.warnings.push_back(
        name +
        format(": %s: under error feedback its messages are divided by %.4g (ef_scale=auto), as "
               "the bound's worst case requires",
               claim.c_str(), 1 / scale) +
        (scale < kSmallShare ? price_of(scale) : ""));
    return verdict;
  }
  const std::string why = name + ": error feedback over a method that is " + claim +
                          " may diverge: the bound is the worst case, and no smaller one is known";
  if (!options.allow_unsafe) {
    return refused(why + format("; write ef_scale=auto (which divides a tensor's messages by its "
                                "own bound: %.4g where it has %s elements), leave ef out, or allow "
                                "unsafe pairs to run it as it is",
                                1 / scale, to_string(shape).c_str()));
  }
  verdict.warnings.push_back(why + "; run because unsafe pairs are allowed");
  return verdict;
}

Result<PairVerdict> over_high_variance(const std::string& name, double omega, const Shape& shape,
                                       const PairOptions& options) {
  return over_scaled(name, format("unbiased with variance factor omega = %.4g >= 1", omega),
                     1 / (1 + omega), shape, options);
}

Result<PairVerdict> over_unbounded(const std::string& name, const PairOptions& options) {
  const std::string why =
      name +
      ": error feedback over a method without an error bound is known to fail (unscaled "
      "sign: 63 % accuracy instead of 88 %)";
  if (!options.allow_unsafe) {
    return refused(why +
                   "; write signsgd:scale=l1,ef=ef14 (sign times the mean absolute value) or "
                   "another contraction, leave ef out, or allow unsafe pairs to see it fail");
  }
  PairVerdict verdict;
  verdict.warnings.push_back(why + "; run because unsafe pairs are allowed");
  return verdict;
}

PairVerdict over_contraction(const Compressor& compressor, const std::string& name,
                             const ErrorBound& bound, const std::optional<double>& momentum) {
  PairVerdict verdict;
  const Traits traits = compressor.traits();
  if (traits.lossless || (bound.value == 1 && !traits.needs_error_feedback)) {
    verdict.warnings.push_back(name +
                               ": exact, so there is no residual for error feedback; leave ef out");
  } else if (traits.elementwise && bound.value < kWeakContraction && momentum != 0.0) {
    verdict.warnings.push_back(
        name + ": fragile with momentum after aggregation" +
        (momentum ? format(" (momentum %g)", *momentum) : ", and with Adam,") +
        " at a learning rate that suits uncompressed training (EF-sign, momentum 0.9, lr 0.05: 41 "
        "% accuracy, 10 "
        "to 58 over seeds, instead of 88 %); put momentum on the worker or leave it out, or use a "
        "smaller learning rate");
  }
  return verdict;
}

}  // namespace

Result<PairVerdict> check_pair(const Compressor& compressor, const Shape& shape,
                               const PairOptions& options) {
  const std::string name = compressor.spec();
  if (!options.error_feedback) return without_feedback(compressor, shape, name, options.momentum);
  if (!compressor.traits().mean_is_average_of_own) {
    return refused(name +
                   ": error feedback needs a mean that is the average of what every rank sent, and "
                   "a majority vote is not; write signsgd:ef=ef14 (scaled sign), or leave ef out");
  }
  if (compressor.traits().own_feedback) {
    return refused(name +
                   ": keeps a residual of its own, and error feedback on top would send it twice; "
                   "leave ef out (ef=none)");
  }
  const ErrorBound bound = compressor.bound(shape);
  switch (bound.kind) {
    case Kind::kContraction:
      if (bound.scale < 1) {
        return over_scaled(name, "a contraction of what it sends divided by a number above 1",
                           bound.scale, shape, options);
      }
      return over_contraction(compressor, name, bound, options.momentum);
    case Kind::kVariance:
      if (bound.value >= 1) return over_high_variance(name, bound.value, shape, options);
      return PairVerdict{};
    case Kind::kNone: break;
  }
  return over_unbounded(name, options);
}

}  // namespace gradwire
