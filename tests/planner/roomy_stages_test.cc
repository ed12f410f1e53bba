// Stages that are cut otherwise where a rank has no room: against every other cut, and in a search.
#include "planner/mesh/roomy_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "planner/mesh/mesh_search.h"
#include "tests/planner/even_cluster.h"
#include "tests/planner/mesh_cases.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire::roomy_stages_test {
namespace {

const ClusterRates kRates;
const MeshCompression kNone = MeshCompression::make("none", 0).value();

// Words are most of its parameters: the first stage, which has them, has few products.
MeshModel gpt_of_many_words(std::int64_t layers) {
  return MeshModel([=](const TensorShare& share, bool flush) {
    ModelOptions options{"gpt"};
    options.width = 16;
    options.layers = layers;
    options.heads = 4;
    options.tied = flush;
    options.share = share;
    return make_model<float>(options, {8, 1, 1}, 400);
  });
}

MeshChoice staged(const char* order, const char* recompute = "none", int zero = 0) {
  MeshChoice choice{.dp = zero > 0 ? 2 : 1,
                    .pp = 4,
                    .order = PipelineSpec::parse(order).value(),
                    .zero = zero,
                    .accumulate = 8,
                    .micro_batch = 2,
                    .recompute = recompute};
  return choice;
}

// The part of its room that the rank needs which is fullest.
double fullest(const std::vector<MeshRankMemory>& ranks, const std::vector<std::int64_t>& rooms) {
  double most = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    most =
        std::max(most, static_cast<double>(ranks[rank].most()) / static_cast<double>(rooms[rank]));
  }
  return most;
}

class Divisions {
 public:
  Divisions(const MeshProblem& problem, const MeshChoice& choice)
      : memory_(problem), choice_(choice) {
    const Model<float>& model = *problem.model->part(1, choice.has_flush()).value();
    begins_ = stage_begins(model);
    begins_.push_back(model.layers());
  }
  std::vector<MeshRankMemory> memory(const std::vector<int>& layers) {
    MeshChoice choice = choice_;
    choice.order.layers = layers;
    return memory_.of(choice, kNone).value();
  }
  // Of all divisions the one whose fullest rank has most room.
  double best(const std::vector<std::int64_t>& rooms) {
    std::vector<int> layers;
    return best_from(rooms, layers, 0);
  }

 private:
  double best_from(const std::vector<std::int64_t>& rooms, std::vector<int>& layers,
                   std::size_t run) {
    const std::size_t left = static_cast<std::size_t>(choice_.stages()) - layers.size();
    if (left == 0) return fullest(memory(layers), rooms);
    double least = std::numeric_limits<double>::max();
    const std::size_t first = left == 1 ? begins_.size() - 1 : run + 1;
    for (std::size_t next = first; next + left - 1 < begins_.size(); ++next) {
      layers.push_back(static_cast<int>(begins_[next] - begins_[run]));
      least = std::min(least, best_from(rooms, layers, next));
      layers.pop_back();
    }
    return least;
  }

  MeshMemory memory_;
  MeshChoice choice_;
  std::vector<std::size_t> begins_;
};

// Rooms in which the best of all divisions leaves a part free, and whether the choice's own stages
// do not fit there.
bool are_too_small(Divisions& divisions, double free, std::vector<std::int64_t>& rooms) {
  const double best = divisions.best(rooms);
  for (std::int64_t& room : rooms) {
    room = static_cast<std::int64_t>(static_cast<double>(room) * best / (1 - free));
  }
  return fullest(divisions.memory({}), rooms) > 1;
}

// By how many layers ends of stages are elsewhere.
std::size_t moved(const std::vector<LayerRange>& own, const std::vector<int>& layers) {
  std::size_t sum = 0;
  std::size_t end = 0;
  for (std::size_t stage = 0; stage < own.size(); ++stage) {
    end += static_cast<std::size_t>(layers[stage]);
    sum += std::max(end, own[stage].end) - std::min(end, own[stage].end);
  }
  return sum;
}

// On devices alike, and where the latter or the former half has half as much. How often the own
// stages do not fit; one that is found does. Counts where two are found.
int found_where_any_fits(const MeshChoice& choice, std::int64_t layers, double free, int& nearer) {
  SCOPED_TRACE(to_string(choice));
  MeshModel model = gpt_of_many_words(layers);
  const Cluster cluster = even_cluster(choice.ranks(), 1);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 16 * choice.dp);
  Divisions divisions(problem, choice);
  int times = 0;
  for (std::vector<std::int64_t> rooms : {std::vector<std::int64_t>(4, 1 << 20),
                                          {1 << 20, 1 << 20, 1 << 19, 1 << 19},
                                          {1 << 19, 1 << 19, 1 << 20, 1 << 20}}) {
    if (!are_too_small(divisions, free, rooms)) continue;
    ++times;
    const auto found = roomy_stages(problem, choice, divisions.memory({}), rooms).value();
    EXPECT_THAT(found, ::testing::Contains(::testing::Truly([&](const std::vector<int>& cut) {
                  return fullest(divisions.memory(cut), rooms) <= 1;
                })))
        << times;
    if (found.size() < 2) continue;
    // The first one is nearer to the own stages.
    const std::vector<LayerRange> own = model.cuts(choice.stages(), choice.has_flush()).value();
    EXPECT_LT(moved(own, found[0]), moved(own, found[1]));
    ++nearer;
  }
  return times;
}

TEST(RoomyStages, OfRanksWithOneStageFitWhereAnyDivisionDoes) {
  int times = 0;
  int nearer = 0;
  for (const MeshChoice& choice :
       {staged("1f1b"), staged("gpipe"), staged("zb-h1"), staged("1f1b", "full"),
        staged("1f1b", "none", 1), staged("gpipe", "selective", 3), staged("2bw")}) {
    times += found_where_any_fits(choice, 6, 0.05, nearer);
  }
  EXPECT_GE(times, 12);
  EXPECT_GE(nearer, 1);
}

// What a rank holds of activations is another part for each of its stages, which the estimate does
// not know.
TEST(RoomyStages, OfRanksWithSeveralStagesFitWhereSomeRoomIsLeft) {
  int times = 0;
  int nearer = 0;
  for (const char* order : {"interleaved[chunks=2]", "zb-v", "chimera"}) {
    times += found_where_any_fits(staged(order), 6, 0.15, nearer);
  }
  EXPECT_GE(times, 4);
}

TEST(RoomyStages, AreNoneWhereNoDivisionFits) {
  MeshModel model = gpt_of_many_words(4);
  const Cluster cluster = even_cluster(4, 1);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 16);
  for (const char* order : {"1f1b", "zb-v"}) {
    Divisions divisions(problem, staged(order));
    std::vector<std::int64_t> rooms(4, 1 << 20);
    const double best = divisions.best(rooms);
    std::ranges::fill(rooms, static_cast<std::int64_t>(best * 0.8 * (1 << 20)));
    EXPECT_THAT(roomy_stages(problem, staged(order), divisions.memory({}), rooms).value(),
                ::testing::IsEmpty());
    rooms[0] = 1;  // less than what is needed whatever the layers are
    EXPECT_THAT(roomy_stages(problem, staged(order), divisions.memory({}), rooms).value(),
                ::testing::IsEmpty());
  }
}

// Where stages as runs cut them fit on no mesh, others do, and are told as what they are.
TEST(RoomyStages, ASearchFindsThem) {
  MeshModel model = gpt_of_many_words(4);
  const Cluster cluster = even_cluster(4, 1);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 16);
  problem.orders = {PipelineSpec::parse("1f1b").value(), PipelineSpec::parse("zb-v").value()};
  problem.shares_tensors = false;
  problem.cuts_stages = false;
  MeshSearchOptions pipelines;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const MeshChoices choices = mesh_choices(problem).value();
  for (const MeshChoice& choice : choices.all) {
    const auto answer = answer_mesh(problem, choice);
    if (choice.pp != 4 || !answer.has_value()) continue;
    least = std::min(least, answer.value().most_needed());
    pipelines.among.push_back(choice);
  }
  problem.device_mem = least - 1;
  EXPECT_FALSE(search_mesh(problem, pipelines).has_value());
  problem.cuts_stages = true;
  const auto searched = search_mesh(problem, pipelines);
  ASSERT_TRUE(searched.has_value()) << searched.error().message();
  const MeshSearchResult& found = searched.value();
  for (const MeshAnswer& row : found.rows) {
    EXPECT_TRUE(fits(row));
    EXPECT_THAT(row.choice.order.layers, ::testing::SizeIs(row.choice.stages()));
    const MeshAnswer again = answer_mesh(problem, row.choice).value();
    EXPECT_EQ(again.ticks, row.ticks);
    EXPECT_EQ(again.most_needed(), row.most_needed());
    EXPECT_LE(row.bound, row.ticks);
  }
  std::set<std::string> names;
  for (const MeshAnswer& row : found.rows) names.insert(to_string(row.choice));
  EXPECT_EQ(names.size(), found.rows.size()) << "each once";
  // All choices are rows, or counted with a reason; so is what was none before.
  auto counted = static_cast<std::int64_t>(found.rows.size());
  for (const auto& [reason, count] : found.left_out) counted += count;
  EXPECT_EQ(counted, found.choices) << reasons_text(found.left_out);
}

}  // namespace
}  // namespace gradwire::roomy_stages_test
