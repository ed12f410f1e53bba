// What a search says of meshes besides their order: bytes, ports, bounds, and what it leaves out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/mesh/mesh_search.h"
#include "tests/planner/even_cluster.h"
#include "tests/planner/mesh_cases.h"
#include "tests/support/fails.h"

namespace gradwire::mesh_answers_test {
namespace {

const ClusterRates kRates;

MeshChoice piped(int ranks, const char* order, int micro_batches) {
  return {.pp = ranks,
          .order = PipelineSpec::parse(order).value(),
          .accumulate = micro_batches,
          .micro_batch = 1};
}

// Ranks 0 and 3 have one pair of stages, 1 and 2 the other: both rings cross both nodes' ports.
TEST(MeshAnswers, RingsOfChimeraShareTheirNodesPorts) {
  const Cluster cluster = uneven_cluster(2, 1);
  const MeshLinks links = mesh_links(cluster, piped(4, "chimera", 4));
  for (const MeshLink& ring : links.data) EXPECT_EQ(ring, (MeshLink{2, 50, 20.0, 0.0}));
  // Of one pipe a stage has one rank, and no ring.
  EXPECT_EQ(mesh_links(cluster, piped(4, "1f1b", 4)).data.front().byte, 0);
}

// Of four stages in a V the middle two are on one rank.
TEST(MeshAnswers, MessagesThatStayOnARankAreNotSent) {
  MeshModel model = small_gpt(4);
  const Cluster cluster = even_cluster(2, 1, 5);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  const double stream = 4.0 * 8 * 16;  // of a sample, fp32
  EXPECT_EQ(answer_mesh(problem, piped(2, "1f1b", 8)).value().bytes.messages, 8 * stream);
  EXPECT_EQ(answer_mesh(problem, piped(2, "zb-v", 8)).value().bytes.messages, 8 * 2 * stream);
}

std::int64_t held_by(const MeshAnswer& answer) {
  return answer.memory.front().bytes[static_cast<std::size_t>(MemoryClass::kCommunication)];
}

// Tensors of 64 x 64, 48 x 64, 48 x 48, 32 x 48 and 10 x 32 with as many vectors, all in one
// bucket: in place among replicas, packed where ranks have shards of gradients and of parameters,
// and under ZeRO 2 and 3 given back behind each step.
TEST(MeshAnswers, WhatExchangesKeepIsMemory) {
  MeshModel model = small_mlp();
  const Cluster cluster = even_cluster(2, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  const std::int64_t matrices = 64 * 64 + 48 * 64 + 48 * 48 + 32 * 48 + 10 * 32;
  const std::int64_t elems = matrices + 64 + 48 + 48 + 32 + 10;
  MeshChoice choice{.dp = 2, .micro_batch = 4};
  const auto held = [&] { return held_by(answer_mesh(problem, choice).value()); };
  EXPECT_EQ(held(), 0);
  choice.zero = 1;
  EXPECT_EQ(held(), 2 * 4 * elems);
  for (const int zero : {2, 3}) {
    choice.zero = zero;
    EXPECT_EQ(held(), 0);
  }
  choice.zero = 0;
  choice.compressor = "topk:ratio=0.01,ef=ef14";  // and vectors go as they are, in their buffer
  const std::int64_t pairs = 8 * (41 + 31 + 24 + 16);
  const std::int64_t small = 4 * (10 * 32 + 64 + 48 + 48 + 32 + 10);
  EXPECT_EQ(held(), 4 * (matrices - 10 * 32) + 3 * pairs + small);
  const std::int64_t room = answer_mesh(problem, choice).value().most_memory();
  problem.device_mem = room;
  EXPECT_TRUE(fits(answer_mesh(problem, choice).value()));
  problem.device_mem = room - 1;
  EXPECT_FALSE(fits(answer_mesh(problem, choice).value()));
}

// Sums of several micro-batches are in fp32, and the 16 bits that are sent lie in their memory.
TEST(MeshAnswers, GradientsOf16BitsArePackedWhereTheyLieApart) {
  MeshModel model = small_mlp();
  const Cluster cluster = even_cluster(2, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  problem.precision = Precision::kBF16;
  MeshChoice choice{.dp = 2, .micro_batch = 4};
  EXPECT_EQ(held_by(answer_mesh(problem, choice).value()), 0);
  choice.accumulate = 2;
  choice.micro_batch = 2;
  EXPECT_EQ(held_by(answer_mesh(problem, choice).value()), 2 * 11530);
}

// Of five layers with parameters, there and back, of three micro-batches.
TEST(MeshAnswers, GathersOfLayersAreDrawn) {
  MeshModel model = small_mlp();
  const Cluster cluster = even_cluster(2, 0.1, 5);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 12);
  const MeshChoice choice{.dp = 2, .zero = 3, .accumulate = 3, .micro_batch = 2};
  const MeshStep step = trace_mesh(problem, choice).value();
  int gathers = 0;
  std::int64_t first = step.ticks;
  for (const MeshSpan& span : step.spans) {
    if (span.kind != MeshSpan::Kind::kGather) continue;
    ++gathers;
    first = std::min(first, span.begin);
    EXPECT_LE(span.end, step.ticks);
    EXPECT_GE(span.micro, 0);
  }
  EXPECT_EQ(gathers, 5 * 2 * 3);
  EXPECT_EQ(first, 0);
}

// No mesh needs less than what is known before its stages are planned.
TEST(MeshAnswers, AMeshHoldsNoLessThanItsLeast) {
  MeshModel model = small_gpt(4);
  const Cluster cluster = even_cluster(4, 1, 5);
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    for (const char* optimizer : {"adamw", "sgd", "lamb"}) {
      MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
      problem.precision = precision;
      problem.optimizer = optimizer;
      problem.allow_stale = true;
      const MeshCompression none = MeshCompression::make("none").value();
      MeshMemory memory(problem);
      const MeshChoices choices = mesh_choices(problem).value();
      int compared = 0;
      for (const MeshChoice& choice : choices.all) {
        const auto ranks = memory.of(choice, none);
        if (!ranks.has_value()) continue;
        std::int64_t all = 0;
        for (const MeshRankMemory& rank : ranks.value()) all += rank.total();
        EXPECT_LE(memory.least(choice).value(), all) << to_string(choice);
        ++compared;
      }
      EXPECT_GT(compared, 100);
    }
  }
}

TEST(MeshAnswers, WhereNothingFitsTheSmallestIsNamed) {
  MeshModel model = small_gpt(4, 64);
  const Cluster cluster = even_cluster(4, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  problem.device_mem = 1000;
  EXPECT_THAT(search_mesh(problem, {}).error(),
              fails(Code::kInvalidArgument, "no mesh fits", "the optimizer's alone are more",
                    "bytes on rank", "has 1000"));
}

// 35 devices, 16 samples, 4 heads: nothing divides.
TEST(MeshAnswers, WhereNoMeshIsServedMemoryIsNotBlamed) {
  MeshModel model = small_gpt(4);
  const Cluster cluster = even_cluster(35, 1, 5);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 16);
  EXPECT_THAT(search_mesh(problem, {}).error(),
              fails(Code::kInvalidArgument, "no mesh of 35 devices is served",
                    "the batch does not divide among dp replicas"));
}

// Of a parameter, its gradient and two moments in fp32 28 bytes are moved.
TEST(MeshAnswers, AnOptimizerTakesWhatItMovesOverTheMemorysRate) {
  MeshModel model = small_mlp();
  Cluster cluster = even_cluster(1, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  const MeshChoice choice{.micro_batch = 8};
  const auto ticks = [&] { return answer_mesh(problem, choice).value().phases.compute; };
  const std::int64_t products = ticks();
  cluster.types.front().memory_bandwidth = 1e9;
  EXPECT_EQ(ticks() - products, 28 * 11530);
  problem.precision = Precision::kBF16;
  EXPECT_EQ(ticks() - products, (2 + 8 + 2 + 16) * 11530);
  problem.precision = Precision::kF32;
  problem.optimizer = "lamb";
  EXPECT_EQ(ticks() - products, 40 * 11530);
  problem.optimizer = "sgd";
  EXPECT_EQ(ticks() - products, 20 * 11530);
  problem.momentum = 0;
  EXPECT_EQ(ticks() - products, 12 * 11530);
}

TEST(MeshAnswers, TiedEndsSendTheirGradients) {
  MeshModel model = small_gpt(4);
  const Cluster cluster = even_cluster(2, 1, 5);
  const MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  EXPECT_EQ(answer_mesh(problem, piped(2, "1f1b", 8)).value().bytes.data, 4.0 * 32 * 16);
  EXPECT_EQ(answer_mesh(problem, piped(2, "zb-v", 8)).value().bytes.data, 0);
}

// Four ranks that divide 32 samples: gradients of the convolutions once a step, the linear layer's
// input gathered and its gradient scattered, maxima and sums of the loss. `gradwire train` counts
// as many bytes.
TEST(MeshAnswers, RanksThatDivideImagesSendWhatTrainingSends) {
  MeshModel model([](TensorShare share, bool /*flush*/) {
    ModelOptions options{"cnn"};
    if (share.divides()) share.layout = TensorShare::Layout::kSamples;
    options.share = share;
    return make_model<float>(options, {1, 8, 8}, 10);
  });
  const Cluster cluster = even_cluster(4, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 32);
  problem.layout = "hybrid";
  const MeshChoice choice{.tp = 4, .layout = "hybrid", .micro_batch = 32};
  constexpr double kOthers = 3.0 / 4;
  EXPECT_EQ(answer_mesh(problem, choice).value().bytes.tensors,
            kOthers * 4 * (2 * 4800 + 2 * 128 * 32 + 2 * (1 + 4) * 32));
}

std::int64_t count(const MeshChoices& choices, const char* why) {
  const auto found = choices.left_out.find(why);
  return found == choices.left_out.end() ? 0 : found->second;
}

TEST(MeshAnswers, WhatTrainingRefusesWithoutAFlushIsNotOffered) {
  MeshModel model = small_gpt(4);
  const Cluster cluster = even_cluster(2, 1, 5);
  MeshProblem problem = mesh_problem(cluster, model, kRates, 8);
  problem.allow_stale = true;
  const auto stale = [&] {
    return std::ranges::count_if(mesh_choices(problem).value().all,
                                 [](const MeshChoice& one) { return !one.has_flush(); });
  };
  EXPECT_GT(stale(), 0);
  problem.precision = Precision::kF16;
  EXPECT_EQ(stale(), 0);
  EXPECT_EQ(count(mesh_choices(problem).value(), "fp16 without a flush"), 2);
  problem.precision = Precision::kF32;
  problem.optimizer = "lamb";
  EXPECT_EQ(stale(), 0);
  EXPECT_EQ(count(mesh_choices(problem).value(), "lamb without a flush"), 2);
}

TEST(MeshAnswers, EveryMeshThatIsLeftOutIsCounted) {
  MeshModel model = small_mlp();
  const Cluster three = even_cluster(3, 1);
  EXPECT_EQ(count(mesh_choices(mesh_problem(three, model, kRates, 6)).value(),
                  "chimera on an odd number of ranks"),
            1);
  const Cluster one = even_cluster(1, 1);
  EXPECT_EQ(count(mesh_choices(mesh_problem(one, model, kRates, 1 << 15)).value(),
                  "more than 4,096 micro-batches"),
            3);
}

// Between steps without a flush nothing is waited for but what the slowest rank does.
TEST(MeshAnswers, WithoutAFlushNoStepIsBelowItsBound) {
  MeshModel gpt = small_gpt(4);
  MeshModel mlp = small_mlp();
  int stale = 0;
  for (MeshModel* model : {&gpt, &mlp}) {
    for (const Cluster& cluster : {even_cluster(4, 0.3, 50), uneven_cluster(2, 0.1)}) {
      MeshProblem problem = mesh_problem(cluster, *model, kRates, 8);
      problem.shares_tensors = false;
      problem.allow_stale = true;
      const MeshChoices choices = mesh_choices(problem).value();
      for (const MeshChoice& choice : choices.all) {
        if (choice.has_flush() || choice.recompute != "none") continue;
        const MeshAnswer answer = answer_mesh(problem, choice).value();
        ++stale;
        EXPECT_LE(answer.bound, answer.ticks) << to_string(choice);
        const MeshPhases& p = answer.phases;
        EXPECT_GE(std::min({p.bubble, p.tensors, p.messages, p.data}), 0) << to_string(choice);
        EXPECT_EQ(p.compute + p.bubble + p.tensors + p.messages + p.data, answer.ticks);
      }
    }
  }
  EXPECT_GT(stale, 20);
}

TEST(MeshAnswers, NoNumberOverflows) {
  MeshModel model([](const TensorShare& share, bool /*flush*/) {
    ModelOptions options{"mlp"};
    options.hidden = {1 << 20, 1 << 20};
    options.share = share;
    return make_model<float>(options, {1, 8, 8}, 10);
  });
  const Cluster cluster = even_cluster(1, 1);
  EXPECT_THAT(search_mesh(mesh_problem(cluster, model, kRates, 1 << 24), {}).error(),
              fails(Code::kInvalidArgument, "batch of 16777216", "at most 2^62"));
}

}  // namespace
}  // namespace gradwire::mesh_answers_test
