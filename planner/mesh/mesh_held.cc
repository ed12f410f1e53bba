#include "planner/mesh/mesh_held.h"

#include "aggregate/plan/predicted_held.h"
#include "trainer/step/gradient_form.h"

namespace gradwire {

Result<std::int64_t> mesh_held(const MeshProblem& problem, const MeshChoice& choice,
                               const MeshCompression& compression, const Model<float>& held) {
  const bool narrow = problem.precision != Precision::kF32;
  GW_ASSIGN(const std::vector<Parameter> gradients,
            compression.planned(held.parameters(), dtype_of(problem.precision)));
  HeldQuestion asked{.size = choice.dp * choice.pipes(), .bucket_bytes = problem.bucket_bytes};
  // Gradients of 16 bits lie in the first halves of their sums' memory.
  asked.adjacent = gradient_form({.wide = !narrow,
                                  .sums_first = choice.accumulate / choice.pipes() > 1,
                                  .main_gradients = problem.main_gradients}) != GradientForm::kSums;
  const auto bytes = [&] {
    return static_cast<std::int64_t>(predict_held(gradients, asked).bytes);
  };
  if (choice.zero == 0) return bytes();
  asked.lean = choice.zero >= 2;
  asked.form = AggregateForm::kReduceScatter;
  const std::int64_t reduced = bytes();
  if (choice.zero == 3) return reduced;  // a layer's tensors travel in place, each alone
  asked.form = AggregateForm::kAllGather;
  const std::int64_t gathered = bytes();
  return reduced + gathered;
}

}  // namespace gradwire
