// The asynchronous parameter server: its log computed again, its bounds, its codes.
#include "adapters/trainer/modes/server/ps_async.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "tests/adapters/modes/small_problem.h"
#include "tests/adapters/modes/toy_source.h"
#include "tests/support/aggregate_job.h"

namespace gradwire::testing::ps_async_test {
namespace {

struct Finished {
  std::vector<Status> statuses;
  std::vector<Flat> params;  // by rank
  std::vector<AsyncOutcome> outcomes;
  std::vector<ModeStep> steps;
};
using MakeSource = std::function<std::unique_ptr<GradientSource>(int worker, int workers)>;

Finished run(int ranks, const ParameterTable& table, const Flat& start, const ModeOptions& options,
             AsyncServerOptions async, const MakeSource& make_source) {
  Finished run;
  async.log_most = 1000;
  const auto n = static_cast<std::size_t>(ranks);
  run.params.assign(n, Flat(start.size()));
  run.outcomes.resize(n);
  run.statuses = on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    const auto r = static_cast<std::size_t>(communicator->rank());
    const int worker = communicator->rank() - async.server.servers;
    // Servers alone know the start.
    if (worker < 0) run.params[r] = start;
    auto source = worker < 0 ? nullptr : make_source(worker, ranks - async.server.servers);
    GW_ASSIGN(run.outcomes[r],
              run_ps_async(*communicator, Registry::builtin(), source.get(), table, options, async,
                           run.params[r], [&](const ModeStep& step) {
                             run.steps.push_back(step);
                             return Status();
                           }));
    return {};
  });
  return run;
}

std::unique_ptr<GradientSource> toy(int worker, int) { return std::make_unique<ToySource>(worker); }

// Computes a run again from its servers' logs, serially: every gradient at the versions of the
// blocks that it was computed at, every push in the order of its server.
class Replay {
 public:
  Replay(const ParameterTable& table, const Flat& start, const ModeOptions& options,
         const AsyncServerOptions& async, int workers, const MakeSource& make_source)
      : options_(options), async_(async), flat_(start.size()) {
    blocks_ =
        std::move(cut_into_blocks(table, async.server.block_elems, async.server.servers)).value();
    for (const KeyBlock& block : blocks_) {
      const auto first = start.begin() + block.offset;
      history_.push_back({Flat(first, first + block.shape.elems())});
      momentum_.emplace_back(static_cast<std::size_t>(block.shape.elems()), 0.0F);
    }
    for (int w = 0; w < workers; ++w) sources_.push_back(make_source(w, workers));
  }

  Flat run(const std::vector<AsyncOutcome>& servers) {
    for (const AsyncOutcome& server : servers) logs_.push_back(&server.log);
    std::vector<std::size_t> next(logs_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < logs_.size(); ++s) {
        if (next[s] == logs_[s]->size() || !apply((*logs_[s])[next[s]], s)) continue;
        ++next[s];
        moved = true;
      }
    }
    for (std::size_t s = 0; s < logs_.size(); ++s) EXPECT_EQ(next[s], logs_[s]->size());
    Flat last;
    for (const auto& block : history_)
      last.insert(last.end(), block.back().begin(), block.back().end());
    return last;
  }

 private:
  // False while a version that the gradient needs has not been computed yet.
  bool apply(const Application& push, std::size_t server) {
    const std::pair key(push.worker, push.step);
    if (!gradients_.contains(key) && !compute(key)) return false;
    const Flat& g = gradients_.at(key);
    const auto rate = static_cast<float>(push.rate);
    const auto momentum = static_cast<float>(options_.momentum);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      if (blocks_[b].server != static_cast<int>(server)) continue;
      Flat x = history_[b].back();
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float own = g[static_cast<std::size_t>(blocks_[b].offset) + i];
        const float direction = momentum > 0 ? momentum * momentum_[b][i] + own : own;
        momentum_[b][i] = direction;
        x[i] = x[i] - rate * direction;
      }
      history_[b].push_back(std::move(x));
    }
    return true;
  }

  bool compute(std::pair<int, std::int64_t> key) {
    for (std::size_t s = 0; s < logs_.size(); ++s) {
      const auto push = std::ranges::find_if(*logs_[s], [&](const Application& a) {
        return a.worker == key.first && a.step == key.second;
      });
      EXPECT_NE(push, logs_[s]->end());
      std::size_t own = 0;
      for (std::size_t b = 0; b < blocks_.size(); ++b) {
        if (blocks_[b].server != static_cast<int>(s)) continue;
        const auto version = static_cast<std::size_t>(push->base[own++]);
        if (version >= history_[b].size()) return false;
        std::ranges::copy(history_[b][version], flat_.begin() + blocks_[b].offset);
      }
    }
    Flat g(flat_.size());
    GradientSource& source = *sources_[static_cast<std::size_t>(key.first)];
    EXPECT_TRUE(source.gradient(flat_, key.second, g).has_value());
    gradients_.emplace(key, std::move(g));
    return true;
  }

  const ModeOptions& options_;
  const AsyncServerOptions& async_;
  std::vector<KeyBlock> blocks_;
  std::vector<std::vector<Flat>> history_;  // by block, by version
  std::vector<Flat> momentum_;
  std::vector<std::unique_ptr<GradientSource>> sources_;
  std::vector<const std::vector<Application>*> logs_;
  std::map<std::pair<int, std::int64_t>, Flat> gradients_;
  Flat flat_;
};

void expect_replayed(const ParameterTable& table, const Flat& start, const ModeOptions& options,
                     const AsyncServerOptions& async, int workers, const MakeSource& make_source) {
  const int servers = async.server.servers;
  const Finished got = run(servers + workers, table, start, options, async, make_source);
  for (const Status& status : got.statuses) ASSERT_TRUE(status.ok()) << status.message();
  const std::vector<AsyncOutcome> logs(got.outcomes.begin(), got.outcomes.begin() + servers);
  const Flat wanted = Replay(table, start, options, async, workers, make_source).run(logs);
  for (const Flat& params : got.params) EXPECT_EQ(params, wanted);
  for (const AsyncOutcome& server : logs) {
    EXPECT_EQ(server.overlaps, 0);
    ASSERT_EQ(server.log.size(), static_cast<std::size_t>(workers * options.steps));
    for (std::size_t v = 0; v < server.log.size(); ++v) {
      const Application& push = server.log[v];
      const std::int64_t oldest = *std::ranges::min_element(push.base);
      EXPECT_EQ(push.staleness, static_cast<std::int64_t>(v) - oldest);
      EXPECT_GE(push.staleness, 0);
    }
  }
}

TEST(PsAsync, P2_ReplayingTheLogReproducesTheWeightsBitForBit) {
  for (const int servers : {1, 2}) {
    for (const double momentum : {0.0, 0.5}) {
      AsyncServerOptions async;
      async.server.servers = servers;
      async.server.block_elems = 200;
      expect_replayed(toy_table(), toy_start(), {.steps = 40, .lr = 0.02, .momentum = momentum},
                      async, 4, toy);
    }
  }
}

TEST(PsAsync, P2_ReplayHoldsForAModel) {
  expect_replayed(mlp().parameters(), mlp_start(), {.steps = 15, .lr = 0.02}, {}, 3,
                  [](int worker, int workers) { return share(worker, workers); });
}

TEST(PsAsync, P3_TheRateFallsWithTheStaleness) {
  AsyncServerOptions async;
  async.damped = true;
  const ModeOptions options{.steps = 30, .lr = 0.05};
  const Finished got = run(5, toy_table(), toy_start(), options, async, toy);
  for (const Status& status : got.statuses) ASSERT_TRUE(status.ok()) << status.message();
  for (const Application& push : got.outcomes[0].log) {
    EXPECT_EQ(push.rate, 0.05 / static_cast<double>(std::max<std::int64_t>(push.staleness, 1)));
  }
  EXPECT_EQ(got.params[0],
            Replay(toy_table(), toy_start(), options, async, 4, toy).run({got.outcomes[0]}));
}

// Worker 0 is as fast as it may be; worker 1's first gradient comes when worker 0 has begun `until`
// steps, so that the bound is reached in every run.
struct Meeting {
  std::mutex mutex;
  std::condition_variable moved;
  std::int64_t begun = 0;
};
class PacedSource final : public ToySource {
 public:
  PacedSource(int worker, Meeting& meeting, std::int64_t until)
      : ToySource(worker), meeting_(meeting), until_(until) {}
  Result<double> gradient(std::span<const float> params, std::int64_t step,
                          std::span<float> grads) override {
    std::unique_lock lock(meeting_.mutex);
    if (worker() == 0) {
      meeting_.begun = step + 1;
      meeting_.moved.notify_all();
    } else if (step == 0) {
      EXPECT_TRUE(meeting_.moved.wait_for(lock, std::chrono::seconds(30),
                                          [&] { return meeting_.begun >= until_; }));
    }
    return ToySource::gradient(params, step, grads);
  }

 private:
  Meeting& meeting_;
  std::int64_t until_;
};

std::int64_t lead_of_the_fast(std::optional<std::int64_t> bound, std::int64_t until) {
  Meeting meeting;
  AsyncServerOptions async;
  async.staleness = bound;
  const Finished got =
      run(3, toy_table(), toy_start(), {.steps = 12, .lr = 0.02, .deadline_seconds = 60}, async,
          [&](int worker, int) { return std::make_unique<PacedSource>(worker, meeting, until); });
  for (const Status& status : got.statuses) EXPECT_TRUE(status.ok()) << status.message();
  return got.outcomes[0].most_lead();
}

TEST(PsAsync, P3_BoundedStalenessIsNeverExceededAndIsReached) {
  for (const std::int64_t bound : {0, 1, 3, 7}) {
    EXPECT_EQ(lead_of_the_fast(bound, bound + 1), bound);
  }
  EXPECT_EQ(lead_of_the_fast(std::nullopt, 12), 11);  // all its steps but the first
}

TEST(PsAsync, OneWorkerIsPlainDescent) {
  const ModeOptions options{.steps = 25, .lr = 0.05, .momentum = 0.5};
  Flat wanted = toy_start();
  Flat m(kToyElems, 0.0F);
  Flat g(kToyElems);
  ToySource source(0);
  for (std::int64_t t = 0; t < 25; ++t) {
    ASSERT_TRUE(source.gradient(wanted, t, g).has_value());
    for (std::size_t i = 0; i < kToyElems; ++i) {
      m[i] = 0.5F * m[i] + g[i];
      wanted[i] -= 0.05F * m[i];
    }
  }
  const Finished got = run(2, toy_table(), toy_start(), options, {}, toy);
  for (const Flat& params : got.params) EXPECT_EQ(params, wanted);
  ASSERT_EQ(got.steps.size(), 25U);
  for (std::size_t t = 0; t < 25; ++t) {
    EXPECT_EQ(got.steps[t].step, static_cast<std::int64_t>(t));
    EXPECT_FALSE(got.steps[t].together);
  }
}

// P8, Downpour: a worker goes on by itself for `period` steps, then pushes the sum.
TEST(PsAsync, P8_DownpourPushesTheSumOfItsPeriod) {
  constexpr std::int64_t kPeriod = 4;
  Flat wanted = toy_start();
  Flat local;
  Flat g(kToyElems);
  Flat sum;
  ToySource source(0);
  for (std::int64_t t = 0; t < 10; ++t) {
    if (t % kPeriod == 0) {
      local = wanted;
      sum.assign(kToyElems, 0.0F);
    }
    ASSERT_TRUE(source.gradient(local, t, g).has_value());
    const bool ends = t % kPeriod == kPeriod - 1 || t == 9;
    for (std::size_t i = 0; i < kToyElems; ++i) {
      local[i] -= 0.05F * g[i];
      sum[i] = t % kPeriod == 0 ? g[i] : sum[i] + g[i];
      if (ends) wanted[i] -= 0.05F * sum[i];
    }
  }
  AsyncServerOptions async;
  async.period = kPeriod;
  const Finished got = run(2, toy_table(), toy_start(), {.steps = 10, .lr = 0.05}, async, toy);
  for (const Status& status : got.statuses) ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(got.params[0], wanted);
  EXPECT_EQ(got.outcomes[0].log.size(), 3U);
  EXPECT_EQ(got.outcomes[0].counts.pushes, 3);
  EXPECT_EQ(got.steps.size(), 10U);
}

double distance_to_optimum(const Flat& params, int workers) {
  double squares = 0;
  for (std::size_t i = 0; i < kToyElems; ++i) {
    double mean = 0;
    for (int w = 0; w < workers; ++w) mean += static_cast<double>(toy_target(w, i)) / workers;
    squares += (params[i] - mean) * (params[i] - mean);
  }
  return std::sqrt(squares / kToyElems);
}

TEST(PsAsync, CodedPushesAndPullsConverge) {
  AsyncServerOptions async;
  async.staleness = 2;
  async.server.servers = 2;
  async.server.block_elems = 400;
  async.server.push = "topk:ratio=0.2,ef=ef14,dense_1d=false,min_elems=0";
  async.server.pull = "topk:ratio=0.4,dense_1d=false,min_elems=0";
  const Finished got = run(5, toy_table(), toy_start(), {.steps = 300, .lr = 0.02}, async, toy);
  for (const Status& status : got.statuses) ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_LT(distance_to_optimum(got.params[0], 3), 0.15);
  for (const Flat& params : got.params) EXPECT_EQ(params, got.params[0]);
}

TEST(PsAsync, NoStepsLeaveTheModelAsItIs) {
  const Finished got = run(3, toy_table(), toy_start(), {.steps = 0, .lr = 0.02}, {}, toy);
  for (const Status& status : got.statuses) ASSERT_TRUE(status.ok()) << status.message();
  for (const Flat& params : got.params) EXPECT_EQ(params, toy_start());
}

}  // namespace
}  // namespace gradwire::testing::ps_async_test
