// The whole sentences of two families of errors: specs of optimizers and modes, and transports. All
// other tests judge an error by its code and by what it names.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "adapters/launch/launch.h"
#include "adapters/trainer/modes/elastic.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"

namespace gradwire::messages_golden_test {
namespace {

struct Golden {
  Status error;
  std::string text;
};

void expect_all(const std::vector<Golden>& errors) {
  for (const Golden& one : errors) {
    EXPECT_EQ(one.error.code(), Code::kInvalidArgument) << one.text;
    EXPECT_EQ(one.error.message(), one.text);
  }
}

TEST(Messages, OfOptimizersAndModes) {
  expect_all({
      {parse_optimizer("adam").error(),
       "unknown optimizer 'adam'; did you mean 'adamw'? (expected sgd, nesterov, adamw, lamb, "
       "onebit_adam, zero_one_adam, onebit_lamb, demo or diloco)"},
      {parse_optimizer("adamw|sgd").error(),
       "optimizer 'adamw|sgd' (expected one stage, without '|')"},
      {parse_optimizer("demo:freeze=3").error(),
       "optimizer demo: unknown key 'freeze' (expected decay, chunk, topk)"},
      {check_elasticity({.rho = 1, .alpha = 0.5}),
       "elastic averaging: rho 1 and alpha 0.5 (expected one of them)"},
      {check_elasticity({.rho = -1, .alpha = 0}),
       "elastic averaging: rho -1 (expected a finite number above 0)"},
  });
}

TEST(Messages, OfTransports) {
  const auto refused = [](const char* name) {
    return launch::check_settings(name, [](const std::string&) { return std::nullopt; });
  };
  expect_all({
      {refused("pigeon"),
       "unknown transport 'pigeon' between processes (expected auto, shm, ucx, tcp, nccl or "
       "nccl:N)"},
      {refused("nccl:x"), "transport: 'nccl:x' (expected nccl or nccl:N, N >= 0)"},
  });
}

}  // namespace
}  // namespace gradwire::messages_golden_test
