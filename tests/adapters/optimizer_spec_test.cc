// Optimizers by name, and the transform that one of them sends waves of.
#include "adapters/trainer/optimizers/optimizer_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "adapters/trainer/optimizers/dct.h"
#include "tests/adapters/method_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::optimizer_spec_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

TEST(Dct, IsOrthonormalAndItsInverseIsItsTranspose) {
  const Dct rows(6);
  const Dct columns(5);
  std::vector<float> values(30);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = start_value(i);
  std::vector<float> c(30);
  std::vector<float> back(30);
  std::vector<float> scratch(30);
  dct_forward(rows, columns, values, c, scratch);
  dct_inverse(rows, columns, c, back, scratch);
  double before = 0;
  double after = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(back[i], values[i], 1e-6);
    before += static_cast<double>(values[i]) * values[i];
    after += static_cast<double>(c[i]) * c[i];
  }
  EXPECT_NEAR(after, before, 1e-5);
  // A constant is the first wave alone: 3 * sqrt(30).
  std::fill(values.begin(), values.end(), 3.0F);
  dct_forward(rows, columns, values, c, scratch);
  EXPECT_NEAR(c[0], 3 * std::sqrt(30.0), 1e-5);
  for (std::size_t i = 1; i < c.size(); ++i) EXPECT_NEAR(c[i], 0, 1e-5);
  EXPECT_EQ(largest_divisor(784, 64), 56);
  EXPECT_EQ(largest_divisor(10, 64), 10);
  EXPECT_EQ(largest_divisor(67, 64), 1);
}

TEST(OptimizerSpec, ReadsNamesAndKeys) {
  const OptimizerChoice adam = parse_optimizer("adamw:beta2=0.99,epsilon=1e-6").value();
  EXPECT_EQ(adam.optimizer.name, "adamw");
  EXPECT_EQ(adam.optimizer.beta2, 0.99);
  EXPECT_EQ(adam.optimizer.epsilon, 1e-6);
  EXPECT_FALSE(adam.method.has_value());
  const OptimizerChoice onebit = parse_optimizer("onebit_adam:300").value();
  EXPECT_EQ(onebit.optimizer.name, "onebit_adam");
  EXPECT_EQ(onebit.method->name, "onebit_adam");
  EXPECT_EQ(onebit.method->freeze, 300);
  EXPECT_EQ(parse_optimizer("demo").value().method->optimizer.momentum, 0.999);
  const auto diloco = parse_optimizer("diloco:20,outer_lr=0.5,outer_momentum=0.8,beta1=0.5");
  EXPECT_EQ(diloco.value().method->inner_steps, 20);
  EXPECT_EQ(diloco.value().method->outer_lr, 0.5);
  EXPECT_EQ(diloco.value().method->optimizer.momentum, 0.8);
  EXPECT_EQ(diloco.value().method->optimizer.beta1, 0.5);
}

TEST(OptimizerSpec, RefusesByName) {
  const auto refusal = [](const char* text) { return parse_optimizer(text).error(); };
  EXPECT_THAT(refusal("adam"), fails(kInvalid, "optimizer", "adam", "sgd", "nesterov"));
  EXPECT_THAT(refusal("sgd:beta1=0.5"), fails(kInvalid, "key", "beta1", "none"));
  EXPECT_THAT(refusal("demo:freeze=3"), fails(kInvalid, "freeze", "decay", "chunk", "topk"));
  EXPECT_THAT(refusal("adamw:beta1=x"), fails(kInvalid, "beta1=x", "number"));
  EXPECT_THAT(refusal("onebit_adam:freeze=1.5"), fails(kInvalid, "freeze=1.5", "whole number"));
  EXPECT_THAT(refusal("adamw|sgd"), fails(kInvalid, "adamw|sgd", "stage"));
  EXPECT_THAT(refusal("sgd:0.9"), fails(kInvalid, "key", "''"));
}

}  // namespace
}  // namespace gradwire::testing::optimizer_spec_test
