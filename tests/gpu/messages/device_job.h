// Jobs of the aggregator whose gradients are on a device, beside the same ones on the host.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/gpu/messages/gradients_at.h"
#include "tests/support/aggregate_job.h"

namespace gradwire::testing {

// A matrix that is compressed, a vector that travels dense, and a large and a small matrix beside
// them, in several buckets; under sra the large one goes in strips.
inline Job job_of(const std::string& spec, int ranks) {
  Job job;
  job.compressor = spec;
  job.tensors = {{"first", Shape::matrix(70, 61)},
                 {"bias", Shape::vector(77)},
                 {"large", Shape::matrix(101, 701)},
                 {"small", Shape::matrix(40, 41)}};
  job.ranks = ranks;
  job.steps = 3;
  job.bucket_bytes = 64 << 10;
  job.allow_unsafe = true;
  return job;
}

inline Job there(Job job) {
  job.device = kFirstDevice;
  return job;
}

// Of `job` on the host, and of `other`: means and state have the same bits.
inline void expect_equal(const Job& job, const Job& other) {
  const JobOutcome here = run_job(job);
  const JobOutcome device = run_job(other);
  ASSERT_TRUE(here.status.ok()) << here.status.message();
  ASSERT_TRUE(device.status.ok()) << device.status.message();
  EXPECT_EQ(device.first_difference, -1);
  ASSERT_EQ(device.means.size(), static_cast<std::size_t>(job.steps));
  for (std::size_t step = 0; step < device.means.size(); ++step) {
    EXPECT_TRUE(here.means[step] == device.means[step]) << "step " << step;
  }
  ASSERT_EQ(device.saved.size(), static_cast<std::size_t>(job.ranks));
  for (std::size_t rank = 0; rank < device.saved.size(); ++rank) {
    ASSERT_EQ(here.saved[rank].size(), device.saved[rank].size());
    for (std::size_t i = 0; i < device.saved[rank].size(); ++i) {
      EXPECT_TRUE(here.saved[rank][i] == device.saved[rank][i])
          << "rank " << rank << ": " << here.saved[rank][i].name;
    }
  }
}

inline void expect_equal(const Job& job) { expect_equal(job, there(job)); }

}  // namespace gradwire::testing
