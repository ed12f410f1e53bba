// Meshes: links, steps against the simulator of pipelines, bounds and searches against all choices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "planner/mesh/mesh_bound.h"
#include "planner/mesh/mesh_search.h"
#include "tests/planner/even_cluster.h"
#include "tests/planner/mesh_cases.h"
#include "tests/support/fails.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire::mesh_test {
namespace {

const ClusterRates kRates;

MeshCosts costs_for(const MeshProblem& problem, const MeshChoice& choice, const MeshLinks& links) {
  return mesh_costs(problem, choice, links, MeshCompression::make(choice.compressor).value())
      .value();
}

// The same costs for the simulator of pipelines, whose ranks reduce nothing.
PipelineCosts pipeline_costs(const MeshChoice& choice, const MeshCosts& costs,
                             std::int64_t latency) {
  PipelineCosts all{.link = {.alpha = latency, .beta = 1}};
  all.stages.resize(static_cast<std::size_t>(choice.stages()));
  for (const auto& rank : costs.replicas.front()) {
    for (const MeshStageCost& one : rank) {
      PipelineStageCost& stage = all.stages[static_cast<std::size_t>(one.stage)];
      stage.forward = one.there();
      stage.backward_input = one.input();
      stage.backward_weight = one.weight();
      stage.output_bytes = static_cast<std::int64_t>(one.output_bytes);
      stage.input_bytes = static_cast<std::int64_t>(one.input_bytes);
    }
  }
  return all;
}

TEST(MeshStep, OfOnePipelineIsThatOfTheSimulatorOfPipelines) {
  MeshModel model = small_gpt(8);
  for (const int ranks : {2, 4}) {
    const Cluster cluster = even_cluster(ranks, 1, 100);
    const MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
    for (const char* order :
         {"gpipe", "1f1b", "zb-h1", "interleaved[chunks=2]", "zb-v", "breadth-first[chunks=2]"}) {
      MeshChoice choice{.pp = ranks, .order = PipelineSpec::parse(order).value(), .accumulate = 8};
      const MeshLinks links = mesh_links(cluster, choice);
      const MeshCosts costs = costs_for(problem, choice, links);
      const MeshStep step = simulate_mesh(choice, links, costs, {.data = true}).value();
      const PipelineSchedule schedule = generate_pipeline(choice.order, ranks, 8).value();
      const PipelineSimulation simulation =
          simulate_pipeline(schedule, pipeline_costs(choice, costs, 100)).value();
      EXPECT_EQ(step.ticks, simulation.makespan) << order << " of " << ranks;
    }
  }
}

TEST(MeshStep, ReductionsHideBehindTheBackwardOfEarlierLayers) {
  MeshModel model = small_mlp();
  const Cluster cluster = even_cluster(2, 1, 10);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 4);
  problem.bucket_bytes = 1;  // each layer's gradients by themselves
  const MeshChoice choice{.dp = 2, .micro_batch = 2};
  const MeshLinks links = mesh_links(cluster, choice);
  const MeshCosts costs = costs_for(problem, choice, links);
  // One rank's queue: a layer's reduction begins behind its backward and the one before it.
  std::int64_t now = 0;
  std::int64_t queue = 0;
  std::int64_t end = 0;
  const std::vector<MeshLayerCost>& layers = costs.replicas.front().front().front().layers;
  for (const MeshLayerCost& layer : layers) now += layer.there();
  for (std::size_t i = layers.size(); i-- > 0;) {
    now += layers[i].input() + layers[i].backward_weight;
    if (layers[i].parameters == 0) continue;
    queue = std::max(queue, now) + layers[i].reduce.ticks;
    end = std::max(end, queue + layers[i].reduce.latency);
  }
  EXPECT_EQ(simulate_mesh(choice, links, costs).value().ticks, std::max(now, end));
  EXPECT_GT(layers.front().reduce.ticks + layers[1].reduce.ticks, 0);
}

// Two replicas of two stages, one micro-batch: what the second stage sends back does not wait for
// the reduction of its own gradients, which takes longest of all.
TEST(MeshStep, GradientsGoBackBesideTheReductionOfTheStageBehind) {
  MeshModel model = small_mlp();
  const Cluster cluster = even_cluster(4, 1000);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 4);
  problem.bucket_bytes = 1;
  const MeshChoice choice{
      .dp = 2, .pp = 2, .order = {.kind = PipelineKind::kGpipe}, .micro_batch = 2};
  const MeshLinks links = mesh_links(cluster, choice);
  const MeshCosts costs = costs_for(problem, choice, links);
  const auto& ranks = costs.replicas.front();
  const auto reduced = [](const MeshStageCost& stage) {
    std::int64_t sum = 0;
    for (const MeshLayerCost& layer : stage.layers) sum += layer.reduce.ticks;
    return sum;
  };
  const MeshStageCost& first = ranks[0].front();
  const MeshStageCost& second = ranks[1].front();
  const auto there = first.there() + static_cast<std::int64_t>(first.output_bytes) * 1000 +
                     second.there() + second.input() + second.weight() +
                     static_cast<std::int64_t>(second.input_bytes) * 1000;
  // Both queues are free for their own stage's; the first one begins when its last layer is back.
  const MeshStep step = simulate_mesh(choice, links, costs).value();
  EXPECT_LE(step.ticks, std::max(there + first.input() + first.weight() + reduced(first),
                                 there + reduced(second)));
  EXPECT_GE(step.ticks, there + reduced(first));
}

// Small layers are gathered, one latency, large ones go by their owners, two: the last reduction is
// that of the first layer, which is small here.
TEST(MeshStep, IsNoFasterThanItsBoundWhereReductionsHaveOtherLatencies) {
  MeshModel model([](const TensorShare& share, bool /*flush*/) {
    ModelOptions options{"mlp"};
    options.hidden = {4, 128, 128};
    options.share = share;
    return make_model<float>(options, {1, 8, 8}, 10);
  });
  for (const int ranks : {2, 3, 4}) {
    for (const std::int64_t latency : {0, 10'000, 50'000, 1'000'000}) {
      const Cluster cluster = even_cluster(ranks, 100, latency);
      const MeshProblem problem = mesh_problem(cluster, model, kRates, ranks);
      for (const char* compressor : {"none", "qsgd:bits=4", "topk:ratio=0.1"}) {
        const MeshChoice choice{.dp = ranks, .compressor = compressor};
        const MeshLinks links = mesh_links(cluster, choice);
        const MeshCosts costs = costs_for(problem, choice, links);
        const MeshStep step = simulate_mesh(choice, links, costs).value();
        EXPECT_LE(mesh_bound(choice, costs), step.ticks)
            << ranks << ' ' << compressor << ' ' << latency;
      }
    }
  }
}

// Two blocks of two halves: each half has a sum there and one back, the embedding and the head one;
// attention, or every half, has one more where it is computed again. Beside them the loss: maxima,
// and two sums in fp64, of 2 samples of 8 positions.
TEST(MeshStep, WhatIsComputedAgainIsAddedUpAgain) {
  MeshModel model = small_gpt(2);
  const Cluster cluster = even_cluster(2, 1);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 2);
  problem.shares_tensors = true;
  std::vector<double> sums;
  for (const char* recompute : {"none", "selective", "full"}) {
    const MeshChoice choice{.tp = 2, .micro_batch = 2, .recompute = recompute};
    const MeshCosts costs = costs_for(problem, choice, mesh_links(cluster, choice));
    sums.push_back(costs.replicas.front().front().front().sum_bytes - 2 * 8 * (4 + 2 * 8));
  }
  EXPECT_EQ(sums[1] * 10, sums[0] * 12);
  EXPECT_EQ(sums[2] * 10, sums[0] * 14);
}

TEST(MeshLinks, APortThatRanksShareDividesItsBandwidth) {
  const Cluster cluster = uneven_cluster(2, 1);
  const MeshLinks pairs = mesh_links(cluster, {.dp = 2, .tp = 2});
  EXPECT_EQ(pairs.replicas.size(), 2U) << "the second node is slower";
  EXPECT_EQ(pairs.replicas.front().sums.front(), (MeshLink{2, 3, 1.0, 0.0}));
  EXPECT_EQ(pairs.data.front(), (MeshLink{2, 50, 20.0, 0.0}))
      << "two rings over a port of 10 ns a byte";
  const MeshLinks four = mesh_links(cluster, {.dp = 4});
  EXPECT_EQ(four.data.front(), (MeshLink{4, 50, 10.0, 0.0})) << "one ring crosses each port once";
  EXPECT_EQ(four.direct.front().byte, 20.0) << "both devices of a node send out at once";
  EXPECT_EQ(mesh_links(cluster, {.pp = 4}).memory.back(), std::int64_t{1} << 30);
}

// Every choice by itself.
struct Best {
  std::int64_t ticks = std::numeric_limits<std::int64_t>::max();
  int tried = 0;
};
Best best_of_all(const MeshProblem& problem) {
  Best best;
  const MeshChoices choices = mesh_choices(problem).value();
  for (const MeshChoice& choice : choices.all) {
    const auto answer = answer_mesh(problem, choice);
    if (!answer.has_value()) continue;
    ++best.tried;
    const MeshAnswer& one = answer.value();
    EXPECT_LE(one.bound, one.ticks) << to_string(choice);
    const MeshPhases& p = one.phases;
    EXPECT_EQ(p.compute + p.bubble + p.tensors + p.messages + p.data, one.ticks)
        << to_string(choice);
    if (fits(one)) best.ticks = std::min(best.ticks, one.ticks);
  }
  return best;
}

TEST(MeshSearch, FindsWhatASearchOverEverythingFinds) {
  MeshModel gpt = small_gpt(4);
  MeshModel mlp = small_mlp();
  for (MeshModel* model : {&gpt, &mlp}) {
    for (const Cluster& cluster : {even_cluster(4, 0.01, 5, true), uneven_cluster(2, 0.1)}) {
      MeshProblem problem = mesh_problem(cluster, *model, kRates, 4);
      problem.shares_tensors = model == &gpt;
      problem.compressors = {"none", "qsgd:bits=4"};
      const Best best = best_of_all(problem);
      ASSERT_GT(best.tried, 100);
      const MeshSearchResult found = search_mesh(problem, {.rows = 3}).value();
      EXPECT_EQ(found.rows.front().ticks, best.ticks) << to_string(found.rows.front().choice);
      EXPECT_LT(found.simulated, best.tried) << "a bound leaves some out";
    }
  }
}

TEST(MeshSearch, RowsFitAndWhatDoesNotIsCounted) {
  MeshModel model = small_gpt(4, 64);
  Cluster cluster = even_cluster(4, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 16);
  problem.cuts_stages = false;  // else what does not fit would be cut otherwise
  const auto found = search_mesh(problem, {.rows = 1000});
  ASSERT_TRUE(found.has_value()) << found.error().message();
  const MeshSearchResult& free = found.value();
  std::int64_t most = 0;
  for (const MeshAnswer& row : free.rows) most = std::max(most, row.most_needed());
  problem.device_mem = most / 2;
  const auto fitted = search_mesh(problem, {.rows = 1000});
  ASSERT_TRUE(fitted.has_value()) << fitted.error().message();
  const MeshSearchResult& tight = fitted.value();
  std::set<std::string> fitting;
  for (const MeshAnswer& row : free.rows) {
    if (row.most_needed() <= problem.device_mem) fitting.insert(to_string(row.choice));
  }
  std::set<std::string> kept;
  for (const MeshAnswer& row : tight.rows) kept.insert(to_string(row.choice));
  ASSERT_LT(free.rows.size(), 1000U) << "all of them are rows";
  EXPECT_EQ(kept, fitting);
  // Each is a row, is outdone by one, does not fit, or is not served.
  const auto left_out = [](const MeshSearchResult& result, const char* why) {
    const auto one = result.left_out.find(why);
    return one == result.left_out.end() ? 0 : one->second;
  };
  const auto unserved = [](const MeshSearchResult& result) {
    std::int64_t count = 0;
    for (const auto& [why, times] : result.left_out) {
      if (why.starts_with("stages that are not served")) count += times;
    }
    return count;
  };
  const auto too_large = [](const MeshSearchResult& result) {
    std::int64_t count = 0;
    for (const auto& [why, times] : result.left_out) {
      if (why.starts_with("do not fit")) count += times;
    }
    return count;
  };
  const char* const kOutdone =
      "no faster and no smaller than a row with another ZeRO stage, recompute or layers of stages "
      "alone";
  EXPECT_GT(left_out(free, kOutdone), 0);
  EXPECT_EQ(static_cast<std::int64_t>(free.rows.size()) + left_out(free, kOutdone) + unserved(free),
            free.choices);
  EXPECT_EQ(static_cast<std::int64_t>(kept.size()) + left_out(tight, kOutdone) + unserved(tight) +
                too_large(tight),
            tight.choices);
  problem.device_mem = 16;
  EXPECT_THAT(search_mesh(problem, {}).error(),
              fails(Code::kInvalidArgument, "no mesh fits", "memory",
                    "the smallest of those looked at, dp=", "bytes on rank", "has 16"));
}

TEST(MeshSearch, SchedulesWithoutAFlushAreAskedFor) {
  MeshModel model = small_gpt(4);
  const Cluster cluster = even_cluster(2, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  const auto stale = [&] {
    std::int64_t count = 0;
    const MeshSearchResult found = search_mesh(problem, {.rows = 1000}).value();
    for (const MeshAnswer& row : found.rows) {
      count += row.choice.has_flush() ? 0 : 1;
    }
    return count;
  };
  EXPECT_EQ(stale(), 0);
  problem.allow_stale = true;
  EXPECT_GT(stale(), 0);
}

TEST(MeshSearch, BadProblemsAreNamed) {
  MeshModel model = small_gpt(4);
  const Cluster cluster = even_cluster(2, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  problem.compressors = {"nonesuch"};
  EXPECT_THAT(search_mesh(problem, {}).error(), fails(Code::kInvalidArgument, "nonesuch"));
  problem.compressors = {"none"};
  problem.compressors = {"qsgd:bits=4,intra_node=none"};
  EXPECT_THAT(search_mesh(problem, {}).error(), fails(Code::kUnsupported, "intra_node"));
  problem.compressors = {"none"};
  problem.batch = 0;
  EXPECT_THAT(search_mesh(problem, {}).error(), fails(Code::kInvalidArgument, "batch of 0"));
  problem.batch = std::int64_t{1} << 40;
  EXPECT_THAT(search_mesh(problem, {}).error(), fails(Code::kInvalidArgument, "1099511627776"));
}

}  // namespace
}  // namespace gradwire::mesh_test
