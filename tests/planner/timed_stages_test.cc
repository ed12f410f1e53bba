// Stages that are cut by their time: against every other cut, and what a search makes of them.
#include "planner/mesh/timed_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
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

std::int64_t there_and_back(const MeshLayerCost& layer) {
  return layer.there() + layer.input() + layer.backward_weight;
}

// The slowest replica's times of the layers that a rank has, by what a step is simulated of.
std::vector<std::int64_t> simulated(const MeshCosts& costs, std::size_t rank, int stage) {
  std::vector<std::int64_t> ticks;
  for (const auto& replica : costs.replicas) {
    for (const MeshStageCost& one : replica[rank]) {
      if (one.stage != stage) continue;
      ticks.resize(one.layers.size());
      for (std::size_t layer = 0; layer < ticks.size(); ++layer) {
        ticks[layer] = std::max(ticks[layer], there_and_back(one.layers[layer]));
      }
    }
  }
  return ticks;
}

void expect_simulated_times(const Cluster& cluster, const MeshProblem& problem,
                            const MeshChoice& choice) {
  SCOPED_TRACE(to_string(choice));
  const MeshCompression none = MeshCompression::make("none", 0).value();
  const MeshLinks links = mesh_links(cluster, choice);
  const MeshCosts costs = mesh_costs(problem, choice, links, none).value();
  const Ticks ticks = mesh_rank_ticks(problem, choice, links).value();
  ASSERT_EQ(ticks.size(), static_cast<std::size_t>(choice.pp));
  const std::vector<LayerRange> cuts = problem.model->cuts(choice.stages(), true).value();
  for (int rank = 0; rank < choice.pp; ++rank) {
    for (const auto& [pipe_of, stage] : choice.stages_of(rank)) {
      const LayerRange range = cuts[static_cast<std::size_t>(stage)];
      const auto& all = ticks[static_cast<std::size_t>(rank)];
      const std::vector<std::int64_t> here(all.begin() + static_cast<std::ptrdiff_t>(range.begin),
                                           all.begin() + static_cast<std::ptrdiff_t>(range.end));
      std::vector<std::int64_t> expected = simulated(costs, static_cast<std::size_t>(rank), stage);
      EXPECT_EQ(here, expected) << "stage " << stage;
    }
  }
}

// Stages are cut by what simulated ranks take: with sums of tp, in the slowest of unlike replicas,
// with what is computed again.
TEST(TimedStages, TimesAreThoseOfSimulatedLayers) {
  MeshModel model = small_gpt(6);
  const Cluster cluster = uneven_cluster(4, 0.1);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 16);
  MeshChoice pipe = staged(8, "1f1b", 16), shared = staged(4, "interleaved[chunks=2]", 16);
  shared.tp = 2;
  MeshChoice replicas = staged(2, "1f1b", 2), again = replicas;
  replicas.dp = again.dp = 4;
  replicas.micro_batch = again.micro_batch = 2;
  again.recompute = "full";
  MeshChoice unlike = staged(4, "gpipe", 4);
  unlike.dp = 2;
  unlike.micro_batch = 2;
  for (const MeshChoice& choice : {pipe, shared, replicas, again, unlike}) {
    expect_simulated_times(cluster, problem, choice);
  }
  // Of the middle stage one replica is on a fast device, and the other on a slow one.
  const Cluster odd = uneven_cluster(3, 0.1);
  const MeshProblem of_odd = mesh_problem(odd, model, kRates, 16);
  MeshChoice mixed = staged(3, "1f1b", 4);
  mixed.dp = 2;
  mixed.micro_batch = 2;
  EXPECT_EQ(mesh_links(odd, mixed).replicas.size(), 2U);
  expect_simulated_times(odd, of_odd, mixed);
}
std::int64_t time_of(const Ticks& ticks, std::size_t rank, std::size_t begin, std::size_t end) {
  const auto first = ticks[rank].begin();
  return std::accumulate(first + static_cast<std::ptrdiff_t>(begin),
                         first + static_cast<std::ptrdiff_t>(end), std::int64_t{0});
}

// What the ranks take that have stages of so many layers.
std::int64_t slowest(const Ticks& ticks, const MeshChoice& choice, const std::vector<int>& layers) {
  std::vector<std::size_t> ends{0};
  for (const int count : layers) ends.push_back(ends.back() + static_cast<std::size_t>(count));
  std::int64_t most = 0;
  for (int rank = 0; rank < choice.pp; ++rank) {
    std::int64_t sum = 0;
    for (const auto& [pipe, stage] : choice.stages_of(rank)) {
      const auto at = static_cast<std::size_t>(stage);
      sum += time_of(ticks, static_cast<std::size_t>(rank), ends[at], ends[at + 1]);
    }
    most = std::max(most, sum);
  }
  return most;
}

// Over all divisions of layers that begin stages as `begins` says, which has the end behind it.
std::int64_t least_of_all(const Ticks& ticks, const MeshChoice& choice,
                          const std::vector<std::size_t>& begins, std::vector<int>& layers,
                          std::size_t run) {
  const std::size_t left = static_cast<std::size_t>(choice.stages()) - layers.size();
  const auto count = [&](std::size_t end) { return static_cast<int>(begins[end] - begins[run]); };
  std::int64_t least = INT64_MAX;
  const std::size_t first = left == 1 ? begins.size() - 1 : run + 1;
  for (std::size_t next = first; next + left - 1 < begins.size(); ++next) {
    layers.push_back(count(next));
    least = std::min(least, left == 1 ? slowest(ticks, choice, layers)
                                      : least_of_all(ticks, choice, begins, layers, next));
    layers.pop_back();
  }
  return least;
}

// Devices of the first node are twice as fast as those of the second. Of ranks with one stage no
// division is better; of ranks with several none is by more than a tenth.
TEST(TimedStages, NoOtherDivisionHasAFasterSlowestRank) {
  MeshModel model = small_gpt(6);
  for (const int devices : {1, 2}) {
    const Cluster cluster = uneven_cluster(devices, 1);
    const MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
    TimedStages stages(problem);
    for (const char* order : {"1f1b", "zb-v", "interleaved[chunks=2]", "chimera", "2bw"}) {
      MeshChoice choice = staged(2 * devices, order, 8);
      SCOPED_TRACE(to_string(choice));
      const Ticks ticks = mesh_rank_ticks(problem, choice, mesh_links(cluster, choice)).value();
      std::vector<std::size_t> begins = stage_begins(*model.part(1, choice.has_flush()).value());
      begins.push_back(ticks.front().size());
      const TimedStages::Divisions divisions = stages.of(choice).value();
      // Chimera's ranks have a stage each way, on a fast and on a slow device: little is won.
      if (choice.pipes() == 2 && divisions.empty()) continue;
      const std::vector<int> layers = divisions.at(0);
      ASSERT_THAT(layers, ::testing::SizeIs(static_cast<std::size_t>(choice.stages())));
      std::vector<int> tried;
      const std::int64_t best = least_of_all(ticks, choice, begins, tried, 0);
      const std::int64_t found = slowest(ticks, choice, layers);
      if (choice.stages() == choice.pp && choice.pipes() == 1) {
        EXPECT_EQ(found, best);
      }
      EXPECT_LE(found * 10, best * 11);
    }
  }
}

// What it keeps is of one question alone.
TEST(TimedStages, AnswersAreThoseOfEachQuestion) {
  MeshModel model = small_gpt(10);
  const Cluster cluster = uneven_cluster(4, 1);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 64);
  TimedStages kept(problem);
  std::set<TimedStages::Divisions> answers;
  for (const int dp : {1, 2}) {
    for (const int tp : {1, 2}) {
      for (const char* order : {"1f1b", "zb-v", "interleaved[chunks=2]", "2bw"}) {
        for (const char* recompute : {"none", "selective", "full"}) {
          MeshChoice choice = staged(8 / dp / tp, order, 8);
          choice.dp = dp;
          choice.tp = tp;
          choice.micro_batch = 8 / dp;
          choice.recompute = recompute;
          const TimedStages::Divisions answer = kept.of(choice).value();
          EXPECT_EQ(answer, TimedStages(problem).of(choice).value()) << to_string(choice);
          answers.insert(answer);
        }
      }
    }
  }
  EXPECT_GT(answers.size(), 8U);
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
  problem.cuts_stages = false;
  const MeshSearchResult products = search_mesh(problem, {}).value();
  problem.cuts_stages = true;
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
  EXPECT_EQ(brief_parallel_text(choice), "dp=2,pp=14/gpipe[stages=3+1+2+2+2+2+...+4]");
  choice.order.layers.resize(12);
  EXPECT_EQ(brief_parallel_text(choice), parallel_text(choice));
}

}  // namespace
}  // namespace gradwire::timed_stages_test
