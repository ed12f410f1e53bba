// A second arena for the optimizer's state and the parameters: row Z10 of the trainer's acceptance
// table, on one rank.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/training_problems.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::offload_test {
namespace {

constexpr int kSteps = 5;

struct Trained {
  std::vector<float> params;
  double accuracy = 0;
  MemoryUse device;
  MemoryUse host;
  MemoryLink last_steps;  // copied by all steps after the first
};

Trained train(const std::string& optimizer, Precision precision, Offload offload,
              std::int64_t chunk, double clip = 0, bool main_gradients = true) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = kSteps;
  options.seed = 3;
  options.lr = 1e-3;
  options.clip = clip;
  options.optimizer.name = optimizer;
  options.optimizer.weight_decay = 0.1;
  options.precision = precision;
  options.main_gradients = main_gradients;
  options.offload = offload;
  options.offload_chunk = chunk;
  auto trainer = Trainer::create(mlp(), digits(), options);
  EXPECT_TRUE(trainer.has_value()) << trainer.error().message();
  SingleProcess alone;
  Trained trained;
  MemoryLink first;
  const auto accuracy = trainer.value().run(alone, [&](const StepReport& step) {
    const MemoryLink& link = *options.places.link;
    if (step.step == 0) first = link;
    trained.last_steps = {link.bytes_out - first.bytes_out, link.bytes_in - first.bytes_in};
    trained.device = options.places.device.use();
    trained.host = options.places.host.use();
    return Status();
  });
  EXPECT_TRUE(accuracy.has_value());
  trained.accuracy = accuracy.value();
  trained.params = flat(trainer.value().parameters());
  return trained;
}

std::int64_t elems() { return parameter_elems(mlp().parameters()); }

// Whatever the chunks, and where they cut tensors.
TEST(Offload, Z10_TheSameBits) {
  for (const std::string optimizer : {"sgd", "nesterov", "adamw"}) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      const Trained resident = train(optimizer, precision, Offload::kNone, 1);
      for (const Offload offload : {Offload::kOptimizer, Offload::kParameters}) {
        for (const std::int64_t chunk : {1 << 18, 1000, 37}) {
          const Trained away = train(optimizer, precision, offload, chunk);
          EXPECT_EQ(away.params, resident.params) << optimizer << " in chunks of " << chunk;
          EXPECT_EQ(away.accuracy, resident.accuracy);
        }
      }
    }
  }
  EXPECT_EQ(train("adamw", Precision::kF32, Offload::kOptimizer, 100, 0.5).params,
            train("adamw", Precision::kF32, Offload::kNone, 100, 0.5).params);
}

// The device keeps parameters and gradients, in 16 bits two bytes of parameters.
TEST(Offload, Z10_TheHostHoldsTheOptimizer) {
  const Trained plain = train("adamw", Precision::kF32, Offload::kOptimizer, 1000);
  EXPECT_EQ(plain.device.peak_of(MemoryClass::kParameters), 4 * elems());
  EXPECT_EQ(plain.device.peak_of(MemoryClass::kGradients), 4 * elems());
  EXPECT_EQ(plain.device.peak_of(MemoryClass::kMaster), 0);
  EXPECT_EQ(plain.device.peak_of(MemoryClass::kMoments), 0);
  EXPECT_EQ(plain.host.peak_of(MemoryClass::kMaster), 4 * elems());
  EXPECT_EQ(plain.host.peak_of(MemoryClass::kMoments), 8 * elems());
  EXPECT_EQ(plain.host.peak_of(MemoryClass::kOther), 4 * 1000);
  const Trained narrow = train("adamw", Precision::kBF16, Offload::kOptimizer, 1000);
  EXPECT_EQ(narrow.device.peak_of(MemoryClass::kParameters), 2 * elems());
  const Trained away = train("adamw", Precision::kBF16, Offload::kParameters, 1000);
  EXPECT_EQ(away.device.peak_of(MemoryClass::kParameters), 0);
  EXPECT_EQ(away.host.peak_of(MemoryClass::kParameters), 2 * elems());
  EXPECT_EQ(away.device.peak_of(MemoryClass::kGathered), 4 * (64 * 32 + 32));
  RunMemoryQuestion question{.micro_batch = 48, .precision = Precision::kBF16};
  question.offload = Offload::kParameters;
  question.offload_chunk = 1000;
  const auto planned = run_memory(mlp(), question);
  ASSERT_TRUE(planned.has_value());
  EXPECT_EQ(planned.value().device, away.device.peak);
  EXPECT_EQ(planned.value().host, away.host.peak);
}

// Z2, by the arena's count: parameters and gradients of 2 bytes, and of 4 each the master and two
// moments.
TEST(Offload, Z2_SixteenBytesAParameterAreCountedInSixteenBits) {
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    const MemoryUse use = train("adamw", precision, Offload::kNone, 1).device;
    EXPECT_EQ(use.now_of(MemoryClass::kParameters), 2 * elems());
    EXPECT_EQ(use.now_of(MemoryClass::kGradients), 2 * elems());
    EXPECT_EQ(use.now_of(MemoryClass::kMainGradients), 0);
    EXPECT_EQ(use.now_of(MemoryClass::kMaster), 4 * elems());
    EXPECT_EQ(use.now_of(MemoryClass::kMoments), 8 * elems());
  }
}

// Z10, likewise: the host takes 12, and with the parameters 14. On the device 4 bytes stay, or 2.
TEST(Offload, Z10_FourBytesAParameterOnTheDeviceOrTwo) {
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    for (const Offload offload : {Offload::kOptimizer, Offload::kParameters}) {
      for (const bool sums : {true, false}) {
        const Trained away = train("adamw", precision, offload, 1000, 0, sums);
        const std::int64_t here = offload == Offload::kOptimizer ? 4 : 2;
        EXPECT_EQ(away.device.now_of(MemoryClass::kParameters) +
                      away.device.now_of(MemoryClass::kGradients),
                  here * elems());
        EXPECT_EQ(away.device.now_of(MemoryClass::kMainGradients), 0);
        EXPECT_EQ(away.device.now_of(MemoryClass::kMaster), 0);
        EXPECT_EQ(away.device.now_of(MemoryClass::kMoments), 0);
        EXPECT_EQ(away.host.now_of(MemoryClass::kParameters), (4 - here) * elems());
        EXPECT_EQ(away.host.now_of(MemoryClass::kMaster) + away.host.now_of(MemoryClass::kMoments),
                  12 * elems());
      }
    }
  }
}

// A step sends gradients and gets parameters as they are stored: 4 + 4 or 2 + 2 bytes for each;
// with parameters away they come for each of two passes instead.
TEST(Offload, Z10_TheLinksBytesAreCounted) {
  struct Case {
    Precision precision;
    Offload offload;
    std::int64_t in;  // bytes a parameter and step
    bool sums = true;
  };
  for (const Case& c : {Case{Precision::kF32, Offload::kOptimizer, 4},
                        Case{Precision::kBF16, Offload::kOptimizer, 2},
                        Case{Precision::kF32, Offload::kParameters, 8},
                        Case{Precision::kBF16, Offload::kParameters, 4},
                        Case{Precision::kF16, Offload::kOptimizer, 2, false},
                        Case{Precision::kBF16, Offload::kParameters, 4, false}}) {
    const Trained trained = train("adamw", c.precision, c.offload, 1000, 0, c.sums);
    const std::int64_t out = c.precision == Precision::kF32 ? 4 : 2;
    EXPECT_EQ(trained.last_steps.bytes_out, (kSteps - 1) * out * elems());
    RunMemoryQuestion question{.micro_batch = 48, .precision = c.precision};
    question.offload = c.offload;
    question.main_gradients = c.sums;
    const auto planned = link_bytes(mlp(), question);
    ASSERT_TRUE(planned.has_value());
    EXPECT_EQ(planned.value().in, c.in * elems());
    EXPECT_EQ(planned.value().out, out * elems());
    // The last step's report comes after its evaluation, which reads the parameters too.
    const std::int64_t evaluated =
        c.offload == Offload::kParameters ? (360 + 47) / 48 * c.in / 2 * elems() : 0;
    EXPECT_EQ(trained.last_steps.bytes_in, (kSteps - 1) * c.in * elems() + evaluated);
  }
}

TEST(Offload, LambIsRefused) {
  TrainingOptions options;
  options.optimizer.name = "lamb";
  options.offload = Offload::kOptimizer;
  EXPECT_FALSE(Trainer::create(mlp(), digits(), options).has_value());
}

TEST(Offload, NamesAreRead) {
  for (const Offload each : {Offload::kNone, Offload::kOptimizer, Offload::kParameters}) {
    EXPECT_EQ(parse_offload(to_string(each)).value(), each);
  }
  EXPECT_FALSE(parse_offload("disk").has_value());
}

}  // namespace
}  // namespace gradwire::offload_test
