// Modes that save their state and go on from it: where a mode is deterministic, bit for bit.
#include "adapters/trainer/modes/mode_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/modes/easgd.h"
#include "adapters/trainer/modes/fedavg.h"
#include "adapters/trainer/modes/hogwild.h"
#include "adapters/trainer/modes/server/async_eamsgd.h"
#include "adapters/trainer/modes/server/ps_async.h"
#include "adapters/trainer/modes/server/ps_sync.h"
#include "adapters/trainer/modes/sync_easgd.h"
#include "tests/adapters/modes/toy_source.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::testing::mode_checkpoint_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

namespace fs = std::filesystem;

constexpr std::int64_t kSteps = 20;

// What a rank of a mode does: trains and leaves what it has in `w` and `model`.
struct Rank {
  Communicator& communicator;
  GradientSource& source;
  ModeOptions options;
  Flat& w;
  Flat& model;
};
struct Mode {
  std::string name;
  int ranks = 3;
  int others = 0;  // first ranks that are no workers
  double momentum = 0;
  std::function<Status(Rank& rank)> run;
};

struct Finished {
  std::vector<Status> statuses;
  std::vector<Flat> all;  // w and model, rank after rank
  std::vector<std::int64_t> told;
};

// `folder`: "" for no checkpoints. `resume`: from the last one in it.
Finished run(const Mode& mode, const std::string& folder, bool resume) {
  Finished run;
  run.all.resize(2 * static_cast<std::size_t>(mode.ranks));
  run.statuses = on_ranks(mode.ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    const auto r = static_cast<std::size_t>(communicator->rank());
    ModeCheckpointOptions files;
    files.run.files.folder = folder;
    files.run.files.keep = 10;
    files.run.files.seconds = 30;
    files.run.must_match = {{"mode", mode.name}};
    files.steps = kSteps;
    files.every = 8;
    ModeCheckpoint saver(*communicator, files);
    if (resume) {
      GW_ASSIGN(const auto from, saver.open_last());
      EXPECT_TRUE(from.has_value() && from->step >= 8 && from->step < kSteps) << mode.name;
    }
    ToySource source(communicator->rank() - mode.others);
    run.all[2 * r] = toy_start();
    run.all[2 * r + 1] = toy_start();
    Rank rank{*communicator, source, {}, run.all[2 * r], run.all[2 * r + 1]};
    rank.options.steps = kSteps;
    rank.options.lr = 0.0625;
    rank.options.momentum = mode.momentum;
    if (!folder.empty()) rank.options.saver = &saver;
    return mode.run(rank);
  });
  return run;
}

bool all_ok(const Mode& mode, const Finished& run) {
  for (const Status& status : run.statuses) {
    if (status.ok()) continue;
    ADD_FAILURE() << mode.name << ": " << status.message();
    return false;
  }
  return true;
}

// Of the checkpoints of a run in `folder` the last one, which is of its end, goes.
void lose_the_end(const std::string& folder) {
  EXPECT_GT(fs::remove_all(folder + "/step-0000000020"), 0U);
}

// 20 steps that save every 8, or a little later; the rest of them again from there.
void expect_exact(const Mode& mode) {
  SCOPED_TRACE(mode.name);
  const TemporaryFolder folder;
  const Finished plain = run(mode, "", false);
  const Finished whole = run(mode, folder.path(), false);
  if (!all_ok(mode, plain) || !all_ok(mode, whole)) return;
  EXPECT_EQ(whole.all, plain.all) << "saving changes nothing";
  lose_the_end(folder.path());
  const Finished resumed = run(mode, folder.path(), true);
  if (!all_ok(mode, resumed)) return;
  EXPECT_EQ(resumed.all, whole.all);
}

Mode ps_sync(const std::string& name, double momentum, const SyncServerOptions& sync) {
  return {name, 2 + sync.server.servers, sync.server.servers, momentum, [sync](Rank& rank) {
            return run_ps_sync(rank.communicator, Registry::builtin(), &rank.source, toy_table(),
                               rank.options, sync, rank.model, {});
          }};
}

TEST(ModeCheckpoint, SyncServersGoOnBitForBit) {
  expect_exact(ps_sync("plain", 0, {}));
  expect_exact(ps_sync("momentum", 0.75, {}));
  expect_exact(ps_sync("momentum at workers", 0.75, {.momentum_at_worker = true}));
  SyncServerOptions sync;
  sync.server.optimizer.name = "adamw";
  expect_exact(ps_sync("adamw", 0, sync));
  sync = {};
  sync.server.servers = 2;
  sync.server.block_elems = 100;
  sync.server.push = "topk:ratio=0.1,ef=ef14,min_elems=0";
  sync.server.pull = "topk:ratio=0.3,min_elems=0";
  expect_exact(ps_sync("two servers, coded both ways", 0.5, sync));
  sync = {};
  sync.server.push = "powersgd:rank=2,ef=ef14,min_elems=0";
  sync.server.pull = "qsgd:bits=4";
  sync.server.allow_unsafe = true;
  expect_exact(ps_sync("powersgd pushes", 0, sync));
}

TEST(ModeCheckpoint, ElasticAveragingGoesOnBitForBit) {
  expect_exact({"easgd", 4, 1, 0, [](Rank& rank) {
                  return run_easgd(rank.communicator, &rank.source, rank.options, {.rho = 1.25},
                                   rank.w, {});
                }});
  for (const auto& [compressor, period, momentum] :
       {std::tuple<const char*, std::int64_t, double>{"none", 1, 0},
        {"none", 3, 0.5},
        {"topk:ratio=0.1,ef=ef14,min_elems=0", 1, 0},
        {"powersgd:rank=2,ef=ef14,min_elems=0", 4, 0.5}}) {
    ElasticOptions elastic{.rho = 1.25, .period = period};
    elastic.compressor = compressor;
    elastic.allow_unsafe = true;
    expect_exact({compressor, 3, 0, momentum, [elastic](Rank& rank) {
                    return run_sync_easgd(rank.communicator, Registry::builtin(), rank.source,
                                          rank.options, elastic, rank.w, rank.model, {});
                  }});
  }
}

TEST(ModeCheckpoint, FederatedAveragingGoesOnBitForBit) {
  for (const auto& [compressor, participation] : {std::pair<const char*, double>{"none", 1},
                                                  {"none", 0.5},
                                                  {"topk:ratio=0.1,ef=ef14,min_elems=0", 1},
                                                  {"qsgd:bits=4,ef=ef14,combine=sra", 0.7}}) {
    FedAvgOptions fedavg{.local_steps = 3};
    fedavg.participation = participation;
    fedavg.seed = 5;
    fedavg.aggregator.compressor = compressor;
    fedavg.aggregator.seed = 5;
    expect_exact({compressor, 4, 0, 0.5, [fedavg](Rank& rank) {
                    return run_fedavg(rank.communicator, Registry::builtin(), rank.source,
                                      rank.options, fedavg, rank.model, {});
                  }});
  }
}

Mode async_servers(int workers, const std::string& push) {
  return {"ps-async " + push, workers + 1, 1, 0.5, [push](Rank& rank) {
            AsyncServerOptions async;
            async.server.push = push;
            async.period = 2;
            return run_ps_async(rank.communicator, Registry::builtin(), &rank.source, toy_table(),
                                rank.options, async, rank.model, {})
                .error();
          }};
}
Mode async_eamsgd(int workers, const std::string& compressor) {
  return {"eamsgd " + compressor, workers + 1, 1, 0.5, [compressor](Rank& rank) {
            ElasticOptions elastic{.rho = 1.25, .period = 3};
            elastic.compressor = compressor;
            return run_async_eamsgd(rank.communicator, Registry::builtin(), &rank.source,
                                    toy_table(), rank.options, elastic, rank.w, rank.model, {})
                .error();
          }};
}
Mode hogwild(int threads) {
  return {"hogwild", 1, 0, 0.5, [threads](Rank& rank) {
            std::vector<ToySource> own;
            std::vector<GradientSource*> sources;
            for (int i = 0; i < threads; ++i) own.emplace_back(i);
            for (ToySource& source : own) sources.push_back(&source);
            return run_hogwild(sources, rank.options, rank.model, {}, {});
          }};
}

// One worker's run has one order.
TEST(ModeCheckpoint, AsynchronousModesOfOneWorkerGoOnBitForBit) {
  for (const char* spec : {"none", "topk:ratio=0.1,ef=ef14,min_elems=0"}) {
    expect_exact(async_servers(1, spec));
    expect_exact(async_eamsgd(1, spec));
  }
  expect_exact(hogwild(1));
}

// Several workers' runs are never alike: what was saved is what they had, and all steps are done.
TEST(ModeCheckpoint, AsynchronousModesGoOnFromACompleteState) {
  for (const Mode& mode : {async_servers(3, "none"), async_eamsgd(3, "none"), hogwild(3)}) {
    SCOPED_TRACE(mode.name);
    const TemporaryFolder folder;
    ASSERT_TRUE(all_ok(mode, run(mode, folder.path(), false)));
    lose_the_end(folder.path());
    const Finished resumed = run(mode, folder.path(), true);
    ASSERT_TRUE(all_ok(mode, resumed));
    for (std::size_t r = 1; r < static_cast<std::size_t>(mode.ranks); ++r) {
      EXPECT_EQ(resumed.all[2 * r + 1], resumed.all[1]) << "one model in the end";
    }
    EXPECT_NE(resumed.all[1], toy_start());
  }
}

// What `from` wrote goes on as `to`, which has another number of ranks.
Finished other_ranks(const Mode& from, const Mode& to) {
  const TemporaryFolder folder;
  EXPECT_TRUE(all_ok(from, run(from, folder.path(), false)));
  lose_the_end(folder.path());
  return run(to, folder.path(), true);
}

// Descends along the mean of workers' gradients, added up in their order, in steps [begin, end).
void descend_together(int workers, std::int64_t begin, std::int64_t end, Flat& model) {
  for (std::int64_t t = begin; t < end; ++t) {
    Flat sum(model.size(), 0.0F);
    Flat own(model.size());
    for (int worker = 0; worker < workers; ++worker) {
      EXPECT_TRUE(ToySource(worker).gradient(model, t, own).has_value());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      model[i] -= 0.0625F * (sum[i] / static_cast<float>(workers));
    }
  }
}

// Workers of plain servers keep nothing: their number may change. The checkpoint is of step 16.
TEST(ModeCheckpoint, PlainServersGoOnWithMoreAndFewerWorkers) {
  for (const auto& [before, after] : {std::pair<int, int>{2, 4}, {4, 2}, {3, 1}}) {
    Mode from = ps_sync("plain", 0, {});
    Mode to = from;
    from.ranks = before + 1;
    to.ranks = after + 1;
    const Finished resumed = other_ranks(from, to);
    ASSERT_TRUE(all_ok(to, resumed));
    Flat wanted = toy_start();
    descend_together(before, 0, 16, wanted);
    descend_together(after, 16, kSteps, wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(resumed.all[1][i], wanted[i], 1e-5F) << before << " to " << after;
    }
  }
}

Mode fedavg(int ranks, double momentum, const std::string& compressor) {
  return {"fedavg", ranks, 0, momentum, [compressor](Rank& rank) {
            FedAvgOptions options{.local_steps = 4};
            options.aggregator.compressor = compressor;
            return run_fedavg(rank.communicator, Registry::builtin(), rank.source, rank.options,
                              options, rank.model, {});
          }};
}

// So may that of clients without momentum, in rounds of four steps.
TEST(ModeCheckpoint, PlainFederatedAveragingGoesOnOnAnyNumberOfRanks) {
  for (const auto& [before, after] : {std::pair<int, int>{2, 3}, {4, 2}}) {
    const Mode to = fedavg(after, 0, "none");
    const Finished resumed = other_ranks(fedavg(before, 0, "none"), to);
    ASSERT_TRUE(all_ok(to, resumed));
    Flat wanted = toy_start();
    for (std::int64_t t = 0; t < kSteps; t += 4) {
      const int clients = t < 16 ? before : after;
      Flat sum(wanted.size(), 0.0F);
      for (int client = 0; client < clients; ++client) {
        Flat own = wanted;
        Flat gradient(own.size());
        for (std::int64_t local = t; local < t + 4; ++local) {
          EXPECT_TRUE(ToySource(client).gradient(own, local, gradient).has_value());
          for (std::size_t i = 0; i < own.size(); ++i) own[i] -= 0.0625F * gradient[i];
        }
        for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
      }
      for (std::size_t i = 0; i < sum.size(); ++i) wanted[i] = sum[i] / static_cast<float>(clients);
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(resumed.all[1][i], wanted[i], 1e-5F) << before << " to " << after;
    }
  }
}

// What ranks keep by themselves is not made up for more of them, nor dropped for fewer.
TEST(ModeCheckpoint, RanksWithAStateOfTheirOwnAreAsManyAsWroteIt) {
  const auto refuses = [](Mode from, int ranks) {
    SCOPED_TRACE(from.name + " on " + std::to_string(ranks));
    Mode to = from;
    to.ranks = ranks;
    for (const Status& status : other_ranks(from, to).statuses) {
      EXPECT_THAT(status,
                  fails(kInvalid, std::to_string(from.ranks) + " ranks", std::to_string(ranks)));
    }
  };
  const Mode easgd{"easgd", 3, 1, 0, [](Rank& rank) {
                     return run_easgd(rank.communicator, &rank.source, rank.options, {.rho = 1.25},
                                      rank.w, {});
                   }};
  const Mode elastic{"sync-easgd", 3, 0, 0, [](Rank& rank) {
                       return run_sync_easgd(rank.communicator, Registry::builtin(), rank.source,
                                             rank.options, {.rho = 1.25}, rank.w, rank.model, {});
                     }};
  SyncServerOptions coded;
  coded.server.push = "topk:ratio=0.1,ef=ef14,min_elems=0";
  for (const int ranks : {2, 4}) {
    refuses(easgd, ranks);
    refuses(elastic, ranks);
    refuses(ps_sync("momentum at workers", 0.5, {.momentum_at_worker = true}), ranks);
    refuses(ps_sync("coded pushes", 0, coded), ranks);
    refuses(fedavg(3, 0.5, "none"), ranks);
    refuses(fedavg(3, 0, "topk:ratio=0.1,ef=ef14,min_elems=0"), ranks);
    refuses(async_eamsgd(2, "none"), ranks);
  }
}

TEST(ModeCheckpoint, WhatDoesNotFitIsNamed) {
  const TemporaryFolder folder;
  const Mode mode = ps_sync("two workers", 0, {});
  ASSERT_TRUE(all_ok(mode, run(mode, folder.path(), false)));
  lose_the_end(folder.path());
  Mode other = mode;
  other.name = "another";
  for (const Status& status : run(other, folder.path(), true).statuses) {
    EXPECT_THAT(status, fails(kInvalid, "mode", "two workers", "another"));
  }
  other = ps_sync("two workers", 0.5, {});  // a momentum that was not kept
  for (const Status& status : run(other, folder.path(), true).statuses) {
    EXPECT_THAT(status, fails(kInvalid, "momentum"));
  }
}

// What the aggregator cannot do without it names itself, on all ranks alike.
TEST(ModeCheckpoint, StateThatTheAggregatorMissesIsNamed) {
  const TemporaryFolder folder;
  const Mode mode = fedavg(3, 0, "none");
  ASSERT_TRUE(all_ok(mode, run(mode, folder.path(), false)));
  lose_the_end(folder.path());
  const Mode other = fedavg(3, 0, "topk:ratio=0.1,ef=ef14,min_elems=0");
  for (const Status& status : run(other, folder.path(), true).statuses) {
    EXPECT_THAT(status, fails(kInvalid, "rank 0", ".error", "missing"));
  }
}

}  // namespace
}  // namespace gradwire::testing::mode_checkpoint_test
