// What every way of averaging promises of the same gradients, whatever is changed around them: for
// the suites that go through the ways.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/aggregate_job.h"

namespace gradwire::testing {

// A spec as the name of a test: letters and digits, and _ for everything else.
inline std::string test_name(std::string spec) {
  std::replace_if(
      spec.begin(), spec.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return spec;
}

// Two of equal shape, odd sizes, a single element, and room for dense ones among them.
inline std::vector<JobTensor> odd_tensors() {
  return {{"a.weight", Shape::matrix(12, 10)}, {"a.bias", Shape::vector(12)},
          {"b.weight", Shape::matrix(33, 40)}, {"twin.weight", Shape::matrix(33, 40)},
          {"c.weight", {{5, 3, 3, 3}, 4}},     {"c.bias", Shape::vector(129)},
          {"scale", Shape::vector(1)}};
}

// One bucket of gradients that are ready in order, and a bucket for each in any order, one behind
// the other in memory.
inline void expect_buckets_change_no_bit(Job one) {
  one.bucket_bytes = 1 << 20;
  one.permute = false;
  Job many = one;
  many.bucket_bytes = 1;
  many.permute = true;
  many.contiguous = true;
  const JobOutcome a = run_job(one);
  const JobOutcome b = run_job(many);
  ASSERT_TRUE(a.status.ok()) << a.status.message();
  ASSERT_TRUE(b.status.ok()) << b.status.message();
  EXPECT_EQ(a.means, b.means);
}

// Everything built anew from its state() after so many steps.
inline void expect_restart_changes_no_bit(const Job& through, int after) {
  Job interrupted = through;
  interrupted.restart_after = after;
  const JobOutcome a = run_job(through);
  const JobOutcome b = run_job(interrupted);
  ASSERT_TRUE(a.status.ok()) << a.status.message();
  ASSERT_TRUE(b.status.ok()) << b.status.message();
  EXPECT_EQ(a.means, b.means);
  EXPECT_TRUE(a.saved == b.saved);
}

}  // namespace gradwire::testing
