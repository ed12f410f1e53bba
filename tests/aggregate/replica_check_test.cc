#include "aggregate/state/replica_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::replica_check_test {
namespace {

// Every rank checks tensors a, b, c after `spoil` had its way with them.
std::vector<Status> check(int ranks, void (*spoil)(int rank, std::vector<Flat>& tensors)) {
  return on_ranks(ranks, [spoil](std::unique_ptr<Communicator>& communicator) {
    std::vector<Flat> tensors{{1, 2, 3}, {}, {4, 5}};
    spoil(communicator->rank(), tensors);
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      named.push_back({std::string(1, static_cast<char>('a' + i)), view_of(std::span(tensors[i]))});
    }
    return check_replicas(*communicator, named, "after step 7");
  });
}

TEST(ReplicaCheck, EqualBytesPass) {
  for (const int ranks : {1, 2, 4}) {
    for (const Status& status : check(ranks, [](int, std::vector<Flat>&) {})) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST(ReplicaCheck, TheFirstDifferingTensorAndItsRanksAreNamedOnAllRanks) {
  const auto spoil = [](int rank, std::vector<Flat>& tensors) {
    if (rank == 1 || rank == 3) tensors[2][1] = -0.0F;
  };
  for (const Status& status : check(4, spoil)) {
    EXPECT_THAT(status, fails(Code::kRankMismatch, "step 7", "c", "ranks 1, 3"));
  }
}

// Signed zeros and the bits of a NaN count: replicas are equal as bytes or not at all.
TEST(ReplicaCheck, ComparesBytesNotValues) {
  const auto zeros = [](int rank, std::vector<Flat>& tensors) {
    tensors[0][0] = rank == 0 ? 0.0F : -0.0F;
  };
  EXPECT_FALSE(check(2, zeros)[0].ok());
}

}  // namespace
}  // namespace gradwire::testing::replica_check_test
