// The counters: exact bytes, against closed forms computed here by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/aggregate_job.h"
#include "tests/support/names.h"

namespace gradwire::testing::accounting_test {
namespace {

using ::testing::HasSubstr;

// The MLP 784-128-64-10: 109,386 parameters.
std::vector<JobTensor> mlp() {
  return {{"fc1.weight", Shape::matrix(128, 784)}, {"fc1.bias", Shape::vector(128)},
          {"fc2.weight", Shape::matrix(64, 128)},  {"fc2.bias", Shape::vector(64)},
          {"fc3.weight", Shape::matrix(10, 64)},   {"fc3.bias", Shape::vector(10)}};
}
constexpr std::uint64_t kDenseBytes = 437'544;

JobOutcome run(const std::string& compressor, int ranks, int steps, std::vector<JobTensor> tensors,
               const std::string& algorithm = "ring") {
  Job job;
  job.compressor = compressor;
  job.tensors = std::move(tensors);
  job.ranks = ranks;
  job.steps = steps;
  job.algorithm = algorithm;
  job.bucket_bytes = 100'000;
  job.gradient = [](const std::string&, int rank, int step, std::int64_t e) {
    return static_cast<float>((e * 7 + rank * 3 + step) % 13 - 6);
  };
  JobOutcome outcome = run_job(job);
  EXPECT_TRUE(outcome.status.ok()) << compressor << ": " << outcome.status.message();
  return outcome;
}

TEST(PayloadBytes, OfTheMlpAreTheClosedForms) {
  const std::vector<std::pair<std::string, std::uint64_t>> table{
      {"none", kDenseBytes},
      // k = ceil(n / 100) of each tensor: 1004 + 2 + 82 + 1 + 7 + 1 = 1097, 8 bytes each.
      {"topk:ratio=0.01", 8'776},
      // ceil(n / 8): 12544 + 16 + 1024 + 8 + 80 + 2.
      {"signsgd:scale=none", 13'674},
      {"signsgd:vote=majority", 13'674},
      {"signsgd:bucket=tensor", 13'674 + 6 * 4},
      // 217 buckets of at most 512, 4 bytes each, and the codes rounded up per tensor.
      {"qsgd:levels=15,norm=l2,bucket=512", 868 + 62'720 + 80 + 5'120 + 40 + 400 + 7},
      {"qsgd:levels=3,norm=l2,bucket=512", 868 + 37'632 + 48 + 3'072 + 24 + 240 + 4},
      {"qsgd:levels=1,norm=l2,bucket=512", 868 + 25'088 + 32 + 2'048 + 16 + 160 + 3},
      {"qsgd:bits=8,bucket=512", 868 + 109'386},
      {"qsgd:bits=4,bucket=512", 868 + 54'693},
      {"qsgd:bits=2,bucket=512", 868 + 25'088 + 32 + 2'048 + 16 + 160 + 3},
      // 4 r (n + m) over the matrices, and the biases as they are.
      {"powersgd:rank=1", 5'520},
      {"powersgd:rank=2", 10'232},
      {"powersgd:rank=4", 19'656}};
  for (const auto& [method, bytes] : table) {
    const char first = method.find(':') == std::string::npos ? ':' : ',';
    const JobOutcome outcome =
        run(method + first + "combine=gather,min_elems=0,dense_1d=false", 2, 2, mlp());
    EXPECT_EQ(outcome.stats_of_last_step[0].payload_bytes, bytes) << method;
    EXPECT_EQ(outcome.stats_of_last_step[1].payload_bytes, bytes) << method;
    EXPECT_EQ(outcome.stats_of_last_step[0].gradient_bytes, kDenseBytes) << method;
  }
}

// A ring over 109,386 elements on 3 ranks, three equal pieces of 36,462: each rank sends 4 of them.
TEST(WireBytes, OfADenseRingAreItsPieces) {
  const JobOutcome outcome = run("none", 3, 3, mlp());
  for (const AggregateStats& stats : outcome.stats_of_last_step) {
    EXPECT_EQ(stats.dense_ring_bytes, 4u * 36'462 * 4);
    EXPECT_EQ(stats.payload_bytes, kDenseBytes);
  }
  // Several buckets round differently at each rank, but not in total.
  std::uint64_t wire = 0;
  for (const AggregateStats& stats : outcome.stats_of_last_step) wire += stats.wire_bytes;
  EXPECT_EQ(wire, 2u * 2 * kDenseBytes);
}

TEST(WireBytes, OfAGatherAreTheOthersShares) {
  // Fixed lengths: nothing but payload moves, n - 1 times.
  const JobOutcome outcome =
      run("signsgd:combine=gather,bucket=tensor,min_elems=0,dense_1d=false", 4, 2, mlp());
  std::uint64_t wire = 0;
  for (const AggregateStats& stats : outcome.stats_of_last_step) wire += stats.wire_bytes;
  EXPECT_EQ(wire, 4u * 3 * 13'698);
}

// A rank sends the sum over the others' chunks of B, then (n - 1) B(own chunk), with B(m) = ceil(m
// bits / 8) + metadata bytes * ceil(m / bucket).
TEST(WireBytes, UnderSraAreTheClosedForm) {
  const std::int64_t elems = 1001;
  const int ranks = 3;
  const auto packed = [](std::int64_t m) { return (m * 4 + 7) / 8 + 4 * ((m + 63) / 64); };
  const std::vector<std::int64_t> chunk{334, 334, 333};
  const JobOutcome outcome = run("qsgd:bits=4,bucket=64,combine=sra,min_elems=0", ranks, 2,
                                 {{"w", Shape::matrix(1, elems)}});
  std::int64_t total = 0;
  for (std::size_t r = 0; r < 3; ++r) {
    std::int64_t scattered = 0;
    for (std::size_t j = 0; j < 3; ++j) scattered += j == r ? 0 : packed(chunk[j]);
    EXPECT_EQ(outcome.stats_of_last_step[r].payload_bytes,
              static_cast<std::uint64_t>(scattered + packed(chunk[r])));
    // Others' chunks may pass by a rank on their way: compared in total.
    total += scattered + (ranks - 1) * packed(chunk[r]);
  }
  std::uint64_t wire = 0;
  for (const AggregateStats& stats : outcome.stats_of_last_step) wire += stats.wire_bytes;
  EXPECT_EQ(wire, static_cast<std::uint64_t>(total));
}

// The halves: the others' shards packed, or (n - 1) times one's own. Dense shards of 4 bytes an
// element likewise.
TEST(WireBytes, OfShardedFormsAreTheClosedForms) {
  const auto packed = [](std::int64_t m) { return (m * 4 + 7) / 8 + 4 * ((m + 63) / 64); };
  const auto dense = [](std::int64_t m) { return 4 * m; };
  const std::vector<std::int64_t> shard{334, 334, 333};  // of 1001
  for (const bool compressed : {true, false}) {
    const auto bytes = [&](std::int64_t m) { return compressed ? packed(m) : dense(m); };
    for (const AggregateForm form : {AggregateForm::kReduceScatter, AggregateForm::kAllGather}) {
      Job job;
      job.compressor = compressed ? "qsgd:bits=4,bucket=64,min_elems=0" : "none";
      job.form = form;
      job.tensors = {{"w", Shape::matrix(1, 1001)}};
      job.ranks = 3;
      job.steps = 2;
      job.algorithm = "ring";
      const JobOutcome outcome = run_job(job);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      std::int64_t wanted = 0;
      std::uint64_t wire = 0;
      std::uint64_t ring = 0;
      for (std::size_t r = 0; r < 3; ++r) {
        wanted += 2 * bytes(shard[r]);  // packed twice for others, or sent to two
        wire += outcome.stats_of_last_step[r].wire_bytes;
        ring += outcome.stats_of_last_step[r].dense_ring_bytes;
      }
      EXPECT_EQ(wire, static_cast<std::uint64_t>(wanted));
      EXPECT_EQ(ring, 2u * 4 * 1001);
    }
  }
}

TEST(Seconds, AreCountedWhereTheyPass) {
  const JobOutcome outcome = run("topk:ratio=0.01,ef=ef14", 2, 2, mlp());
  EXPECT_GT(outcome.stats[0].encode_seconds, 0);
  EXPECT_GT(outcome.stats[0].exchange_seconds, 0);
  EXPECT_GT(outcome.stats[0].decode_seconds, 0);
  EXPECT_GT(outcome.stats[0].exposed_seconds, 0);
}

// What an exchange sends beyond a dense one is said once, with the bytes that were sent; exact
// methods run all the same.
TEST(MoreThanDense, IsSaidOnceWithTheBytesThatWereSent) {
  const auto notices = [](const std::string& compressor, int ranks, int steps) {
    Job job;
    job.compressor = compressor;
    job.tensors = {{"w", Shape::matrix(64, 64)}, {"v", Shape::matrix(32, 64)}};
    job.ranks = ranks;
    job.steps = steps;
    job.algorithm = "ring";
    const JobOutcome outcome = run_job(job);
    EXPECT_TRUE(outcome.status.ok()) << compressor << ": " << outcome.status.message();
    std::vector<std::string> found;
    for (const std::string& warning : outcome.warnings) {
      if (warning.find("more than uncompressed") != std::string::npos) found.push_back(warning);
    }
    if (steps == 1 && !found.empty()) {
      EXPECT_THAT(found[0], HasSubstr(std::to_string(outcome.stats[0].wire_bytes))) << compressor;
    }
    return found.size();
  };
  for (const int steps : {1, 3}) {
    EXPECT_EQ(notices("lossless", 3, steps), 1u);
    EXPECT_EQ(notices("block_sparse", 3, steps), 1u);  // every block holds something
    EXPECT_EQ(notices("topk:ratio=0.5", 4, steps), 1u);
    for (const std::string dense_or_less :
         {"none", "cast:bf16", "qsgd:bits=4", "topk:ratio=0.01", "lossless:min_elems=100000"}) {
      EXPECT_EQ(notices(dense_or_less, 3, steps), 0u) << dense_or_less;
    }
    EXPECT_EQ(notices("lossless", 2, steps), 0u);
  }
}

// What stays inside nodes is not compared: of three nodes lossless sends more between them than
// uncompressed sums would, of two it does not.
TEST(MoreThanDense, OfTwoLevelsIsWhatTravelsBetweenNodes) {
  const auto notices = [](const std::string& compressor, int nodes) {
    Job job;
    job.compressor = compressor;
    for (int t = 0; t < 12; ++t) {  // some of which this rank owns
      job.tensors.push_back({"w" + std::to_string(t), Shape::matrix(32, 64)});
    }
    job.ranks = 2 * nodes;
    for (int rank = 0; rank < job.ranks; ++rank) job.node_of.push_back(rank / 2);
    job.steps = 2;
    job.algorithm = "ring";
    const JobOutcome outcome = run_job(job);
    EXPECT_TRUE(outcome.status.ok()) << compressor << ": " << outcome.status.message();
    std::string found;
    for (const std::string& warning : outcome.warnings) {
      if (warning.find("more than uncompressed") != std::string::npos) found += warning;
    }
    return found;
  };
  EXPECT_THAT(notices("lossless:intra_node=none", 3),
              tells("between nodes", "'lossless'", "3 ranks"));
  EXPECT_EQ(notices("lossless:intra_node=none", 2), "");
  EXPECT_EQ(notices("qsgd:bits=4,intra_node=none", 3), "");
  EXPECT_EQ(notices("none:intra_node=none", 3), "");
}

// Steps that are sent as they are say nothing of the compressor.
TEST(MoreThanDense, IsNothingOfStepsThatWarmUp) {
  for (const int steps : {2, 3}) {
    Job job;
    job.compressor = "lossless:warmup_steps=2";
    job.tensors = {{"w", Shape::matrix(64, 64)}};
    job.ranks = 3;
    job.steps = steps;
    job.algorithm = "ring";
    const JobOutcome outcome = run_job(job);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.warnings.size(), steps > 2 ? 1U : 0U);
  }
}

// Of tensors of one element the first rank owns all: gathered alone they are twice what they would
// be as one tensor in pieces of one size. No method adds to that.
TEST(MoreThanDense, IsNothingThatPiecesOfManySizesAreTo) {
  for (const AggregateForm form : {AggregateForm::kAllGather, AggregateForm::kReduceScatter}) {
    for (const int ranks : {2, 3, 4}) {
      Job job;
      for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
        job.tensors.push_back({name, Shape::vector(1)});
      }
      job.ranks = ranks;
      job.form = form;
      const JobOutcome outcome = run_job(job);
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
      EXPECT_THAT(outcome.warnings, ::testing::IsEmpty()) << ranks;
    }
  }
}

}  // namespace
}  // namespace gradwire::testing::accounting_test
