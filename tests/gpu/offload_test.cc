// A device's training whose optimizer, or whose parameters too, lie in the host's memory.
#include <gtest/gtest.h>

#include <string>

#include "tests/gpu/trained.h"

namespace gradwire::offload_test {
namespace {

using gpu::options_of;
using gpu::train;
using gpu::Trained;

constexpr Device kPinned{MemorySpace::kPinnedHost, 0};
constexpr std::int64_t kSteps = 3;

struct Place {
  std::string optimizer = "sgd";
  Precision precision = Precision::kF32;
  Offload offload = Offload::kNone;
};

TrainingOptions options_at(const Place& place) {
  TrainingOptions options = options_of(kSteps);
  options.optimizer.name = place.optimizer;
  options.optimizer.weight_decay = 0.1;
  options.lr = 0.01;
  options.precision = place.precision;
  options.offload = place.offload;
  options.places.host = MemoryArena(Stream{kPinned, nullptr});
  return options;
}

// Whatever the chunks, whenever the host begins, and in memory of whatever kind: optimizers have
// the same bits on both sides, so the host's update is the device's.
TEST(OffloadThere, HasTheBitsOfResidentTraining) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  for (const std::string optimizer : {"sgd", "nesterov", "adamw"}) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16, Precision::kF16}) {
      const Place resident{optimizer, precision};
      const Trained wanted = train(problem, options_at(resident), true);
      for (const Offload offload : {Offload::kOptimizer, Offload::kParameters}) {
        for (const std::int64_t chunk : {1 << 18, 777}) {
          TrainingOptions options = options_at({optimizer, precision, offload});
          options.offload_chunk = chunk;
          options.offload_overlap = chunk == 777;
          if (chunk == 777) options.places.host = MemoryArena();
          const Trained away = train(problem, options, true);
          EXPECT_EQ(away.parameters, wanted.parameters)
              << optimizer << ", " << to_string(precision) << ", " << to_string(offload);
          EXPECT_EQ(away.losses, wanted.losses);
          EXPECT_EQ(away.state, wanted.state);
        }
      }
    }
  }
}

// More than rounding happens to gradients before: the host's step comes after it.
TEST(OffloadThere, TakesWhatAResidentStepTakes) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  const auto same = [&](TrainingOptions options) {
    options.offload = Offload::kNone;
    const Trained wanted = train(problem, options, true);
    options.offload = Offload::kOptimizer;
    EXPECT_EQ(train(problem, options, true).parameters, wanted.parameters);
  };
  TrainingOptions options = options_at({});
  options.clip = 0.2;
  same(options);
  options = options_at({});
  options.accumulate = 4;
  same(options);
  options = options_at({"adamw", Precision::kF16});
  options.loss_scale = std::move(LossScaleOptions::parse("dynamic")).value();
  options.loss_scale.initial = 0x1p22;  // some steps overflow
  options.loss_scale.hysteresis = 1;
  same(options);
}

// Out and in as they are stored: once, or in for each layer's turns.
TEST(OffloadThere, CopiesEachParameterOnceAndHoldsLessThere) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  const std::int64_t elems = parameter_elems(problem.model.parameters());
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    const Trained resident = train(problem, options_at({"adamw", precision}), true);
    const Trained away =
        train(problem, options_at({"adamw", precision, Offload::kOptimizer}), true);
    EXPECT_EQ(resident.link.bytes_out + resident.link.bytes_in, 0);
    const std::int64_t width = precision == Precision::kF32 ? 4 : 2;
    EXPECT_EQ(away.link.bytes_out, kSteps * width * elems);
    EXPECT_EQ(away.link.bytes_in, (kSteps + 1) * width * elems);  // before the first step, too
    // And, of gradients in 16 bits, what a step widens of them.
    const auto moments_and_master = (precision == Precision::kF32 ? 8 : 12 + 4) * elems;
    EXPECT_EQ(resident.device.total - away.device.total, moments_and_master);
    const Trained further =
        train(problem, options_at({"adamw", precision, Offload::kParameters}), true);
    EXPECT_GT(further.link.bytes_in, 2 * kSteps * width * elems);
  }
}

}  // namespace
}  // namespace gradwire::offload_test
