// What a search says of how far it is.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/mesh/mesh_search.h"
#include "tests/planner/even_cluster.h"
#include "tests/planner/mesh_cases.h"

namespace gradwire::mesh_progress_test {
namespace {

const ClusterRates kRates;

struct Told {
  std::vector<MeshSearchPart> parts;           // in their order
  std::map<MeshSearchPart, std::int64_t> all;  // of each
  std::string best;
  int times = 0;  // that kTried was told
  int whole = 0;  // of these, that it was said to be done
};

// Every part counts upwards, to all of what it counts.
Told search(const MeshProblem& problem, MeshSearchOptions options) {
  Told told;
  std::int64_t last = 0;
  const auto ended = [&] { return told.parts.empty() || last == told.all.at(told.parts.back()); };
  options.progress = [&](const MeshSearchProgress& at) {
    if (told.parts.empty() || told.parts.back() != at.part) {
      EXPECT_TRUE(ended());
      told.parts.push_back(at.part);
      told.all[at.part] = at.all;
      last = 0;
    }
    EXPECT_EQ(at.all, told.all.at(at.part));
    EXPECT_GE(at.done, last);
    last = at.done;
    told.best = at.best;
    told.times += at.part == MeshSearchPart::kTried ? 1 : 0;
    told.whole += at.part == MeshSearchPart::kTried && at.done == at.all ? 1 : 0;
  };
  EXPECT_TRUE(search_mesh(problem, options).has_value());
  EXPECT_TRUE(ended());
  return told;
}

TEST(MeshSearchProgress, CountsEachPartToItsEnd) {
  MeshModel model = small_gpt(8);
  const Cluster cluster = even_cluster(12, 1, 100);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 24);
  problem.shares_tensors = true;
  const Told told = search(problem, {.rows = 3});
  EXPECT_EQ(told.parts, (std::vector{MeshSearchPart::kListed, MeshSearchPart::kBounded,
                                     MeshSearchPart::kTried}));
  // (tp, pp) whose product divides 12, also those of a tp that the model does not serve.
  EXPECT_EQ(told.all.at(MeshSearchPart::kListed), 18);
  EXPECT_EQ(told.all.at(MeshSearchPart::kBounded),
            static_cast<std::int64_t>(mesh_choices(problem).value().all.size()));
  EXPECT_GT(told.times, 20);
  EXPECT_LE(told.whole, 3) << "done is said at the end";
  EXPECT_EQ(told.best, brief_text(search_mesh(problem, {.rows = 1}).value().rows[0].choice));
}

TEST(MeshSearchProgress, OfChoicesThatAreGivenNoneIsListed) {
  MeshModel model = small_gpt(8);
  const Cluster cluster = even_cluster(4, 1, 100);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  std::vector<MeshChoice> some = mesh_choices(problem).value().all;
  some.resize(5);
  const Told told = search(problem, {.rows = 3, .among = some});
  EXPECT_EQ(told.parts, (std::vector{MeshSearchPart::kBounded, MeshSearchPart::kTried}));
  EXPECT_EQ(told.all.at(MeshSearchPart::kTried), 5);
}

}  // namespace
}  // namespace gradwire::mesh_progress_test
