// Meshes beside a mesh: each axis by itself, and all of them against a plain definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planner/mesh/mesh_search.h"
#include "tests/planner/even_cluster.h"
#include "tests/planner/mesh_cases.h"

namespace gradwire::mesh_neighbours_test {
namespace {

const ClusterRates kRates;
constexpr int kDevices = 8;
constexpr std::int64_t kBatch = 16;

std::vector<MeshChoice> all_choices(bool allow_stale) {
  MeshModel model = small_gpt(8);
  const Cluster cluster = even_cluster(kDevices, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, kBatch);
  problem.compressors = {"none", "qsgd:bits=4", "topk:ratio=0.1"};
  problem.allow_stale = allow_stale;
  return mesh_choices(problem).value().all;
}

// In the middle of every axis.
MeshChoice middle() {
  return {.dp = 2,
          .tp = 2,
          .pp = 2,
          .order = {.kind = PipelineKind::kInterleaved, .chunks = 2},
          .accumulate = 4,
          .micro_batch = 2};
}

// The factors by which two choices differ. A micro-batch has as many samples as the others leave,
// and moved ranks may have any number of them; what has no pipeline has no schedule.
std::set<std::string> differing(const MeshChoice& a, const MeshChoice& b) {
  std::set<std::string> names;
  std::string moved;
  if (a.dp != b.dp) moved += "dp";
  if (a.tp != b.tp) moved += "tp";
  if (a.pp != b.pp) moved += "pp";
  if (!moved.empty()) names.insert(moved);
  if (a.pp > 1 && b.pp > 1 && a.order.kind != b.order.kind) names.insert("schedule");
  const bool alike = a.pp > 1 && b.pp > 1 && a.order.kind == b.order.kind;
  if (alike && a.order.chunks != b.order.chunks) names.insert("chunks");
  // Stages are cut anew wherever something else than what is exchanged has changed.
  const bool same_work = moved.empty() && alike && a.order.chunks == b.order.chunks &&
                         a.accumulate == b.accumulate && a.recompute == b.recompute;
  if (same_work && a.order.layers != b.order.layers) names.insert("stages");
  if (moved.empty() && a.accumulate != b.accumulate) names.insert("micro-batches");
  if (a.zero != b.zero) names.insert("zero");
  if (a.recompute != b.recompute) names.insert("recompute");
  if (a.compressor != b.compressor) names.insert("compressor");
  return names;
}

struct NamedChange {
  const char* name;
  void (*apply)(MeshChoice&);
};

// One for each axis, and some axes' ends.
const NamedChange kChanges[] = {
    {"dp to pp", [](MeshChoice& c) { c.dp = 1, c.pp = 4, c.micro_batch = 4; }},
    {"pp to dp",
     [](MeshChoice& c) { c.dp = 4, c.pp = 1, c.order = {}, c.accumulate = 4, c.micro_batch = 1; }},
    {"dp to tp", [](MeshChoice& c) { c.dp = 1, c.tp = 4, c.micro_batch = 4; }},
    {"tp to dp", [](MeshChoice& c) { c.dp = 4, c.tp = 1, c.micro_batch = 1; }},
    {"tp to pp", [](MeshChoice& c) { c.tp = 1, c.pp = 4; }},
    {"pp to tp", [](MeshChoice& c) { c.tp = 4, c.pp = 1, c.order = {}; }},
    {"moved, other micro-batches",
     [](MeshChoice& c) { c.tp = 1, c.pp = 4, c.accumulate = 8, c.micro_batch = 1; }},
    {"schedule", [](MeshChoice& c) { c.order = {.kind = PipelineKind::kOneFOneB}; }},
    {"schedule of two pipes", [](MeshChoice& c) { c.order = {.kind = PipelineKind::kChimera}; }},
    {"chunks", [](MeshChoice& c) { c.order.chunks = 4; }},
    {"more micro-batches", [](MeshChoice& c) { c.accumulate = 8, c.micro_batch = 1; }},
    {"fewer micro-batches", [](MeshChoice& c) { c.accumulate = 2, c.micro_batch = 4; }},
    {"ZeRO stage 1", [](MeshChoice& c) { c.zero = 1; }},
    {"ZeRO stage 3", [](MeshChoice& c) { c.zero = 3; }},
    {"recompute", [](MeshChoice& c) { c.recompute = "full"; }},
    {"recompute of a part", [](MeshChoice& c) { c.recompute = "selective"; }},
    {"compressor", [](MeshChoice& c) { c.compressor = "topk:ratio=0.1"; }},
};

TEST(MeshNeighbours, EveryAxisHasItsOwn) {
  const std::vector<MeshChoice> all = all_choices(false);
  ASSERT_THAT(all, ::testing::Contains(middle()));
  const std::vector<MeshChoice> near = mesh_neighbours(all, middle());
  for (const NamedChange& change : kChanges) {
    MeshChoice other = middle();
    change.apply(other);
    ASSERT_THAT(all, ::testing::Contains(other)) << change.name;
    EXPECT_THAT(near, ::testing::Contains(other)) << change.name;
    EXPECT_THAT(mesh_neighbours(all, other), ::testing::Contains(middle()))
        << change.name << ", and back";
  }
}

TEST(MeshNeighbours, TwoChangesAreNone) {
  const std::vector<MeshChoice> all = all_choices(false);
  const std::vector<MeshChoice> near = mesh_neighbours(all, middle());
  EXPECT_THAT(near, ::testing::Not(::testing::Contains(middle())));
  int tried = 0;
  for (const NamedChange& first : kChanges) {
    for (const NamedChange& second : kChanges) {
      MeshChoice other = middle();
      first.apply(other);
      second.apply(other);
      if (differing(middle(), other).size() < 2 || std::ranges::find(all, other) == all.end()) {
        continue;
      }
      ++tried;
      EXPECT_THAT(near, ::testing::Not(::testing::Contains(other)))
          << first.name << " and " << second.name;
    }
  }
  EXPECT_GT(tried, 50);
  // Ranks that leave two axes for the third.
  MeshChoice other = middle();
  other.dp = kDevices;
  other.tp = other.pp = 1;
  other.order = {};
  other.accumulate = 2;
  other.micro_batch = 1;
  ASSERT_THAT(all, ::testing::Contains(other));
  EXPECT_THAT(near, ::testing::Not(::testing::Contains(other)));
}

TEST(MeshNeighbours, AreAllChoicesThatDifferInOneFactor) {
  std::map<std::string, int> counts;
  for (const bool allow_stale : {false, true}) {
    const std::vector<MeshChoice> all = all_choices(allow_stale);
    for (std::size_t i = 0; i < all.size(); i += all.size() / 60) {
      const MeshChoice& choice = all[i];
      std::vector<MeshChoice> expected;
      for (const MeshChoice& other : all) {
        const std::set<std::string> names = differing(choice, other);
        if (names.size() != 1 || names.contains("dptppp")) continue;
        expected.push_back(other);
        ++counts[*names.begin()];
      }
      const std::vector<MeshChoice> near = mesh_neighbours(all, choice);
      ASSERT_TRUE(near == expected) << to_string(choice);
      EXPECT_FALSE(near.empty()) << to_string(choice);
      for (const MeshChoice& one : near) {
        EXPECT_EQ(one.ranks(), kDevices) << to_string(one);
        EXPECT_EQ(one.dp * one.accumulate * one.micro_batch, kBatch) << to_string(one);
        EXPECT_TRUE(allow_stale || one.has_flush()) << to_string(one);
      }
    }
  }
  for (const char* factor : {"dptp", "dppp", "tppp", "schedule", "chunks", "micro-batches", "zero",
                             "recompute", "compressor"}) {
    EXPECT_GT(counts[factor], 0) << factor;
  }
}

}  // namespace
}  // namespace gradwire::mesh_neighbours_test
