#include "bench/moved_bytes.h"

#include <algorithm>
#include <numeric>

namespace gradwire::bench {
namespace {

// Of one round, gradients and tensors as long: read and written, beside payloads.
double encoding_tensors(const MovedStep& step, bool factors, bool places) {
  const auto rounds = static_cast<double>(std::max<std::ptrdiff_t>(
      std::ranges::count_if(step.payloads, [](double w) { return w > 0; }), 1));
  const double others = places ? 0 : rounds - 1;  // rounds after the first that read it all
  if (!step.feedback) return 1 + others;
  // Gradient and residual; the sum of the two, or the next residual.
  const double first = 3;
  if (!step.fused || factors) return first + others;
  return first + 2 * others;  // the sum is nowhere: it is made again
}

}  // namespace

MovedBytes moved_bytes(const MovedStep& step) {
  const bool factors = step.method == "powersgd";
  const bool places = step.method == "cltk";
  const double g = step.gradient;
  const double w = std::accumulate(step.payloads.begin(), step.payloads.end(), 0.0);
  MovedBytes moved;
  moved.encode = (encoding_tensors(step, factors, places) + 2 * step.kept) * g + w;
  if (places) {
    const double chosen = step.payloads.empty() ? 0 : step.payloads.back();
    moved.encode += (step.feedback && step.fused ? 2 : 1) * chosen;
  }
  moved.decode = w + g;
  if (step.feedback && (factors || !step.fused)) moved.decode += 2 * g;
  return moved;
}

MovedStep moved_step(const Compressor& compressor, Coder& coder, std::int64_t elems) {
  const std::string spec = compressor.spec();
  MovedStep step;
  step.method = spec.substr(0, spec.find_first_of(":|"));
  step.gradient = static_cast<double>(elems) * sizeof(float);
  step.fused = coder.takes_feedback();
  // Factors are as long as a matrix of one row; they are no rank's own.
  const auto is_kept = [elems](const NamedTensor& one) {
    return one.name.starts_with("residual") && one.tensor.elems() == elems;
  };
  step.kept = static_cast<int>(std::ranges::count_if(coder.state(), is_kept));
  return step;
}

}  // namespace gradwire::bench
