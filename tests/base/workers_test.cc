#include "base/workers.h"

#include <gtest/gtest.h>

#include <vector>

namespace gradwire::workers_test {
namespace {

TEST(Workers, EveryTaskIsDoneOnceByAWorkerThatThereIs) {
  for (const int threads : {1, 2, 3, 8}) {
    Workers workers(threads);
    EXPECT_EQ(workers.threads(), threads);
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{1000}}) {
      std::vector<int> done(count, 0);
      std::vector<int> by(count, -1);
      workers.run(count, [&](std::size_t i, int worker) {
        ++done[i];
        by[i] = worker;
      });
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(done[i], 1) << threads << " threads, task " << i;
        EXPECT_GE(by[i], 0);
        EXPECT_LT(by[i], threads);
      }
    }
  }
}

// What tasks of one worker share needs no lock.
TEST(Workers, TasksOfOneWorkerDoNotOverlap) {
  Workers workers(4);
  std::vector<std::int64_t> sums(4, 0);
  for (int loop = 0; loop < 200; ++loop) {
    workers.run(50, [&](std::size_t i, int worker) {
      sums[static_cast<std::size_t>(worker)] += static_cast<std::int64_t>(i);
    });
  }
  EXPECT_EQ(sums[0] + sums[1] + sums[2] + sums[3], 200 * (49 * 50 / 2));
}

TEST(Workers, ALoopInsideATaskIsDoneByItsCallerAlone) {
  Workers workers(3);
  std::vector<std::vector<int>> inner(20, std::vector<int>(30, 0));
  workers.run(inner.size(), [&](std::size_t i, int) {
    workers.run(inner[i].size(), [&, i](std::size_t j, int worker) {
      EXPECT_EQ(worker, 0);
      ++inner[i][j];
    });
  });
  for (const auto& row : inner) EXPECT_EQ(row, std::vector<int>(30, 1));
}

}  // namespace
}  // namespace gradwire::workers_test
