// Stages that are cut by their time: against every other cut, and what a search makes of them.
#include "planner/mesh/timed_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "planner/mesh/mesh_costs.h"
#include "planner/mesh/mesh_search.h"
#include "tests/planner/even_cluster.h"
#include "tests/planner/mesh_cases.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire::timed_stages_test {
namespace {

const ClusterRates kRates;
using Ticks = std::vector<std::vector<std::int64_t>>;

MeshChoice staged(int ranks, const char* order, int micro_batches) {
  return {.pp = ranks,
          .order = PipelineSpec::parse(order).value(),
          .accumulate = micro_batches,
          .micro_batch = 1};
}

std::int64_t time_of(const Ticks& ticks, std::size_t stage, std::size_t begin, std::size_t end) {
  const auto first = ticks[stage].begin();
  return std::accumulate(first + static_cast<std::ptrdiff_t>(begin),
                         first + static_cast<std::ptrdiff_t>(end), std::int64_t{0});
}

std::int64_t slowest(const Ticks& ticks, const std::vector<int>& layers) {
  std::int64_t most = 0;
  std::size_t begin = 0;
  for (std::size_t stage = 0; stage < layers.size(); ++stage) {
    const std::size_t end = begin + static_cast<std::size_t>(layers[stage]);
    most = std::max(most, time_of(ticks, stage, begin, end));
    begin = end;
  }
  return most;
}

// Over all ways to go on from `begins[run]` with stage `stage`; `begins` has the end behind it.
std::int64_t least_of_all(const Ticks& ticks, const std::vector<std::size_t>& begins,
                          std::size_t run, std::size_t stage) {
  if (stage + 1 == ticks.size()) return time_of(ticks, stage, begins[run], begins.back());
  std::int64_t least = INT64_MAX;
  const std::size_t left = ticks.size() - stage - 1;
  for (std::size_t next = run + 1; next + left < begins.size(); ++next) {
    least = std::min(least, std::max(time_of(ticks, stage, begins[run], begins[next]),
                                     least_of_all(ticks, begins, next, stage + 1)));
  }
  return least;
}

// Devices of the first node are twice as fast as those of the second.
TEST(TimedStages, NoOtherCutHasAFasterSlowestStage) {
  MeshModel model = small_gpt(6);
  const Cluster cluster = uneven_cluster(2, 1);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  TimedStages stages(problem);
  for (const char* order : {"1f1b", "zb-v", "interleaved[chunks=2]", "chimera", "2bw"}) {
    MeshChoice choice = staged(4, order, 8);
    const Ticks ticks = mesh_stage_ticks(problem, choice, mesh_links(cluster, choice)).value();
    ASSERT_EQ(ticks.size(), static_cast<std::size_t>(choice.stages()));
    std::vector<std::size_t> begins = stage_begins(*model.part(1, choice.has_flush()).value());
    begins.push_back(ticks.front().size());
    const std::vector<int> layers = stages.of(choice).value();
    // Chimera's ranks have a stage each way, on a fast and on a slow device: nothing is won.
    ASSERT_EQ(layers.empty(), choice.pipes() == 2) << order;
    if (layers.empty()) continue;
    EXPECT_EQ(slowest(ticks, layers), least_of_all(ticks, begins, 0, 0)) << order;
    // What was cut by hand is what it was compared with.
    choice.order.layers = layers;
    EXPECT_THAT(TimedStages(problem).of(choice).value(), ::testing::IsEmpty()) << order;
  }
}

TEST(TimedStages, AreNoneWhereProductsSayTheSame) {
  MeshModel model = small_gpt(6);
  const Cluster cluster = even_cluster(4, 1);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  EXPECT_THAT(TimedStages(problem).of(staged(4, "1f1b", 8)).value(), ::testing::IsEmpty());
}

TEST(TimedStages, ASearchFindsThemAndStandsThemBesideTheOthers) {
  MeshModel model = small_gpt(8, 64);
  const Cluster cluster = uneven_cluster(2, 0.001);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  const MeshSearchResult both = search_mesh(problem, {}).value();
  problem.timed_stages = false;
  const MeshSearchResult products = search_mesh(problem, {}).value();
  problem.timed_stages = true;
  EXPECT_LT(products.choices, both.choices);
  EXPECT_LT(both.rows.front().ticks, products.rows.front().ticks);
  const MeshChoice& best = both.rows.front().choice;
  ASSERT_THAT(best.order.layers, ::testing::SizeIs(best.stages()));
  EXPECT_EQ(answer_mesh(problem, best).value().ticks, both.rows.front().ticks);
  // It is read again as it is, and the same mesh cut by its products is its neighbour.
  const PipelineSpec read = PipelineSpec::parse(best.order.text()).value();
  EXPECT_EQ(read, best.order);
  MeshChoice plain = best;
  plain.order.layers.clear();
  const MeshChoices all = mesh_choices(problem).value();
  EXPECT_THAT(mesh_neighbours(all.all, best), ::testing::Contains(plain));
  EXPECT_THAT(mesh_neighbours(all.all, plain), ::testing::Contains(best));
  plain.zero = plain.zero == 0 ? 1 : 0;
  if (plain.dp > 1) {
    EXPECT_THAT(mesh_neighbours(all.all, best), ::testing::Not(::testing::Contains(plain)));
  }
}

// A stage's layers are held to memory as they are cut, and sent about as they are.
TEST(TimedStages, MemoryAndMessagesAreThoseOfTheCut) {
  MeshModel model = small_gpt(4);
  const Cluster cluster = even_cluster(2, 1, 5);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  MeshChoice choice = staged(2, "1f1b", 8);
  const MeshAnswer own = answer_mesh(problem, choice).value();
  const auto layers = static_cast<int>(model.part(1, true).value()->layers());
  choice.order.layers = {2, layers - 2};
  const MeshAnswer uneven = answer_mesh(problem, choice).value();
  EXPECT_GT(uneven.ticks, own.ticks);
  EXPECT_LT(uneven.memory[0].parameters, own.memory[0].parameters);
  EXPECT_GT(uneven.memory[1].parameters, own.memory[1].parameters);
  choice.order.layers = {2, layers - 1};
  EXPECT_FALSE(answer_mesh(problem, choice).has_value());
}

TEST(TimedStages, NamesOfManyAreShortForPeopleAlone) {
  MeshChoice choice{.dp = 2, .pp = 14, .order = {.kind = PipelineKind::kGpipe}};
  choice.order.layers = {3, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 4};
  EXPECT_EQ(parallel_text(choice), "dp=2,pp=14/gpipe[stages=3+1+2+2+2+2+2+2+2+2+2+2+2+4]");
  EXPECT_EQ(short_parallel_text(choice), "dp=2,pp=14/gpipe[stages=3+1+2+2+2+2+...+4]");
  choice.order.layers.resize(12);
  EXPECT_EQ(short_parallel_text(choice), parallel_text(choice));
}

}  // namespace
}  // namespace gradwire::timed_stages_test
