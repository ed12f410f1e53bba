#include "bench/exchange_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "gradwire/communicator.h"
#include "tests/support/fails.h"

namespace gradwire::bench::exchange_bench_test {
namespace {

// Rank 0's rows, or the first rank's error.
Result<std::vector<ExchangeRow>> exchange_rows(int ranks, const ExchangeBenchOptions& options) {
  GW_ASSIGN(const auto communicators, make_inproc_communicators(ranks, {}));
  std::vector<ExchangeRow> rows;
  std::vector<Status> outcomes(communicators.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      threads.emplace_back([&, rank] {
        outcomes[rank] = bench_exchanges(*communicators[rank], Registry::builtin(), options,
                                         [&rows](const ExchangeRow& row) {
                                           rows.push_back(row);
                                           return Status();
                                         });
      });
    }
  }
  for (const Status& outcome : outcomes) GW_TRY(outcome);
  return rows;
}

TEST(ExchangeBench, HasARowOfEachCompressorAndSizeAndOfWhatIsBeside) {
  const auto rows = exchange_rows(2, {.compressors = {"none", "topk:ratio=0.5"},
                                      .elements = {8, 300},
                                      .rounds = 3,
                                      .pause_seconds = 1e-4});
  ASSERT_TRUE(rows.has_value()) << rows.error().message();
  std::vector<std::string> found;
  for (const ExchangeRow& row : rows.value()) {
    found.push_back(to_string(row.what) + " " + row.compressor + " " +
                    std::to_string(row.elements) + " " + std::to_string(row.count));
    EXPECT_GT(row.seconds, 0) << found.back();
    EXPECT_LT(row.seconds, 10) << found.back();
  }
  EXPECT_THAT(found, ::testing::ElementsAre(
                         "exchange none 8 1", "exchange none 300 1", "exchange topk:ratio=0.5 8 1",
                         "exchange topk:ratio=0.5 300 1", "tensors none 16 32", "buckets none 16 1",
                         "buckets none 16 8", "message  16 1", "send  16 1"));
}

TEST(ExchangeBench, NamesWhatIsWrong) {
  constexpr Code kInvalid = Code::kInvalidArgument;
  EXPECT_THAT(exchange_rows(3, {}).error(), fails(kInvalid, "got 3 ranks", "expected 2"));
  EXPECT_THAT(exchange_rows(2, {.rounds = 0}).error(), fails(kInvalid, "rounds=0"));
  EXPECT_THAT(exchange_rows(2, {.elements = {0}}).error(), fails(kInvalid, "elements=0"));
  EXPECT_THAT(exchange_rows(2, {.compressors = {"topq"}, .rounds = 1}).error(),
              fails(kInvalid, "topq"));
}

}  // namespace
}  // namespace gradwire::bench::exchange_bench_test
