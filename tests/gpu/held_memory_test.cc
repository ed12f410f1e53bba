// What a training on a device holds there and on the host beside it: the plan, to the byte.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gpu/trained.h"
#include "trainer/accounts/run_memory.h"

namespace gradwire::held_memory_test {
namespace {

using gpu::options_of;
using gpu::train;
using gpu::Trained;

constexpr Device kPinned{MemorySpace::kPinnedHost, 0};

struct HeldRun {
  std::string optimizer = "adamw";
  Precision precision = Precision::kF32;
  Offload offload = Offload::kNone;
  bool main_gradients = true;
  int accumulate = 1;
  std::string recompute = "none";
};

class HeldThere : public ::testing::TestWithParam<HeldRun> {};

TEST_P(HeldThere, IsWhatWasPlanned) {
  const HeldRun& run = GetParam();
  // An MLP, a network with batch norm, a language model whose ends are tied.
  for (const std::size_t family : {std::size_t{0}, std::size_t{4}, std::size_t{8}}) {
    const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[family]);
    TrainingOptions options = options_of(2);
    options.optimizer.name = run.optimizer;
    options.precision = run.precision;
    options.offload = run.offload;
    options.main_gradients = run.main_gradients;
    options.accumulate = run.accumulate;
    options.recompute = run.recompute;
    options.offload_chunk = 777;
    options.places.host = MemoryArena(Stream{kPinned, nullptr});
    const Trained trained = train(problem, options, true);
    RunMemoryQuestion question;
    question.micro_batch = options.batch / run.accumulate;
    question.accumulate = run.accumulate;
    question.recompute = run.recompute;
    question.precision = run.precision;
    question.optimizer = run.optimizer;
    question.momentum = options.optimizer.momentum;
    question.main_gradients = run.main_gradients;
    question.offload = run.offload;
    question.offload_chunk = 777;
    question.space = MemorySpace::kCuda;
    question.labels = problem.data.labels_per_sample();
    const auto planned = run_memory(problem.model, question);
    ASSERT_TRUE(planned.has_value()) << planned.error().message();
    for (std::size_t i = 0; i < kMemoryClasses; ++i) {
      const auto what = to_string(static_cast<MemoryClass>(i));
      EXPECT_EQ(trained.device.peak[i], planned.value().device[i]) << family << ", " << what;
      EXPECT_EQ(trained.host.peak[i], planned.value().host[i]) << family << ", " << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runs, HeldThere,
    ::testing::Values(
        HeldRun{}, HeldRun{.optimizer = "sgd", .recompute = "sqrt"}, HeldRun{.optimizer = "lamb"},
        HeldRun{.precision = Precision::kBF16, .accumulate = 2}, HeldRun{.accumulate = 2},
        HeldRun{.precision = Precision::kF16, .main_gradients = false},
        HeldRun{.offload = Offload::kOptimizer}, HeldRun{.offload = Offload::kParameters},
        HeldRun{.precision = Precision::kBF16, .offload = Offload::kOptimizer},
        HeldRun{.precision = Precision::kBF16, .offload = Offload::kParameters}),
    [](const auto& info) { return std::to_string(info.index); });

}  // namespace
}  // namespace gradwire::held_memory_test
