#include "collectives/cost/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/elements.h"
#include "collectives/cost/simulate.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::cost_choice_test {
namespace {

constexpr LinkModel kSlow{.alpha = 50e-6, .beta = 8e-9, .gamma = 0.04e-9};

TEST(AlgorithmChoice, IsTheCheapest) {
  AlgorithmChoice choice(16, kSlow, 512 << 10);
  for (const std::int64_t bytes : {64, 4096, 1 << 20, 64 << 20}) {
    CostQuestion question{OpKind::kAllReduce, 16, 16, bytes, 4, kSlow, 512 << 10};
    const auto chosen = choice.choose(OpKind::kAllReduce, bytes, false);
    for (const std::string_view other : algorithms_of(OpKind::kAllReduce)) {
      const auto cost = cost_of(question, other);
      ASSERT_TRUE(cost.has_value()) << other;
      EXPECT_LE(cost_of(question, chosen).value().time.seconds(),
                1.01 * cost.value().time.seconds())
          << bytes << " " << other;
    }
  }
  // Few messages for small tensors, few bytes for large ones.
  EXPECT_EQ(choice.choose(OpKind::kAllReduce, 64, false), "recursive_doubling");
  // The ring's 30 starts are nothing beside its bytes, which are halving-doubling's too.
  EXPECT_EQ(choice.choose(OpKind::kAllReduce, 64 << 20, false), "ring");
}

TEST(AlgorithmChoice, NodesDecideWhatCrossesTheSlowLinks) {
  LinkModel links = kSlow;
  links.alpha_intra = 1e-6;
  links.beta_intra = 0.1e-9;
  const std::vector<int> node_of = blocks_of_ranks(32, 4);
  AlgorithmChoice choice(32, links, 512 << 10, node_of);
  CostQuestion question{OpKind::kAllReduce, 32, 4, 1 << 20, 4, links, 512 << 10};
  EXPECT_EQ(choice.choose(OpKind::kAllReduce, 1 << 20, false), choose_algorithm(question));
  EXPECT_NE(choice.choose(OpKind::kAllReduce, 1 << 20, false), "ring");
}

TEST(AlgorithmChoice, UnequalRowsGetAnAlgorithmThatTakesThem) {
  AlgorithmChoice choice(16, kSlow, 512 << 10);
  EXPECT_EQ(choice.choose(OpKind::kAllToAll, 16 * 16, false), "bruck");
  EXPECT_NE(choice.choose(OpKind::kAllToAll, 16 * 16, true), "bruck");
}

// Beside one another they cost the same; which one keeps its time was measured.
TEST(AlgorithmChoice, LongRowsOfFewRanksLeaveAllAtOnce) {
  const LinkModel gigabit{.alpha = 30e-6, .beta = 8.4e-9, .gamma = 0};
  AlgorithmChoice few(4, gigabit, 512 << 10);
  EXPECT_EQ(few.choose(OpKind::kAllToAll, 4 << 20, true), "pairwise");
  EXPECT_EQ(few.choose(OpKind::kAllToAll, 8 << 20, true), "direct");
  EXPECT_EQ(few.choose(OpKind::kAllToAll, 64 << 20, true), "direct");
  AlgorithmChoice many(16, gigabit, 512 << 10);
  EXPECT_EQ(many.choose(OpKind::kAllToAll, 256 << 20, true), "pairwise");
}

TEST(AlgorithmChoice, ReductionsOfCutsHideBehindTheWire) {
  CostQuestion question{OpKind::kAllReduce, 4, 4, 64 << 20, 4, kSlow, 0};
  const auto time = [&](const char* algorithm) {
    return cost_of(question, algorithm).value().time;
  };
  const ExactTime ring = time("ring");
  const ExactTime halving = time("halving_doubling");
  question.segment_bytes = 512 << 10;
  const ExactTime gamma = ExactTime::from_seconds(kSlow.gamma);
  // Of 16 MiB in each of 3 rounds 512 KiB are seen.
  EXPECT_EQ(ring - time("ring"), 3 * ((16 << 20) - (512 << 10)) * gamma);
  EXPECT_EQ(time("halving_doubling"), halving);  // its cells are not cut
}

// A chain of p - 1 links, k cuts of m/k bytes: k + p - 2 of them one behind the other.
TEST(AlgorithmChoice, APipelineHasTheCutsThatMakeItFastest) {
  constexpr int kRanks = 4;
  constexpr std::int64_t kBytes = 1 << 20;
  const LinkModel links{.alpha = 60e-6, .beta = 8.4e-9, .gamma = 0};
  const auto seconds = [&](std::int64_t cuts) {
    const auto k = static_cast<double>(cuts);
    return (k + kRanks - 2) * (links.alpha + static_cast<double>(kBytes) / k * links.beta);
  };
  std::int64_t best = 4;  // cuts of 256 KiB, as the executor makes
  for (std::int64_t cuts = 8; cuts <= 256; cuts *= 2) {
    if (seconds(cuts) < seconds(best)) best = cuts;
  }
  ASSERT_EQ(best, 16);
  AlgorithmChoice choice(kRanks, links, 256 << 10);
  EXPECT_EQ(choice.choose(OpKind::kBroadcast, kBytes, false), "chain");
  EXPECT_EQ(choice.segment_bytes(OpKind::kBroadcast, kBytes, "chain"), kBytes / best);
  const auto cost =
      cost_of({OpKind::kBroadcast, kRanks, kRanks, kBytes, 4, links, 256 << 10}, "chain");
  EXPECT_NEAR(cost.value().time.seconds(), seconds(best), 1e-12);
  // A ring has nothing to gain, and start-ups that cost much want few cuts, but never larger ones.
  EXPECT_EQ(choice.segment_bytes(OpKind::kAllReduce, kBytes, "ring"), 0);
  LinkModel slow = links;
  slow.alpha = 1;
  AlgorithmChoice patient(kRanks, slow, 256 << 10);
  EXPECT_EQ(patient.segment_bytes(OpKind::kBroadcast, kBytes, "chain"), 256 << 10);
}

// The root of a chain sends one message a cut.
TEST(AlgorithmChoice, PipelinesRunInTheirCuts) {
  constexpr int kRanks = 4;
  const LinkModel links{.alpha = 60e-6, .beta = 8.4e-9, .gamma = 0};
  auto communicators = make_inproc_communicators(kRanks, {.links = links});
  ASSERT_TRUE(communicators.has_value());
  const auto sent = on_threads<std::uint64_t>(kRanks, [&](int r) -> std::uint64_t {
    Communicator& own = *communicators.value()[static_cast<std::size_t>(r)];
    std::vector<float> values(1 << 18, r == 0 ? 5.0F : 0.0F);
    const std::uint64_t before = own.transport_stats().messages_sent;
    auto work = own.broadcast(view_of(std::span(values)), 0);
    EXPECT_TRUE(work.has_value() && work.value().wait().ok());
    EXPECT_EQ(std::ranges::count(values, 5.0F), 1 << 18);
    return own.transport_stats().messages_sent - before;
  });
  for (std::size_t r = 0; r < sent.size(); ++r) EXPECT_EQ(sent[r], r == 3 ? 0U : 16U) << r;
}

TEST(AlgorithmChoice, AllRanksChooseAlikeAndAreRight) {
  constexpr int kRanks = 5;
  auto communicators = make_inproc_communicators(kRanks);
  ASSERT_TRUE(communicators.has_value());
  std::set<std::string> names;
  for (const std::int64_t elems : {1, 100, 20'000, 700'000}) {
    const auto answers = on_threads<std::string>(kRanks, [&](int r) -> std::string {
      Communicator& own = *communicators.value()[static_cast<std::size_t>(r)];
      std::vector<float> values(static_cast<std::size_t>(elems), static_cast<float>(r));
      auto work = own.all_reduce(view_of(std::span(values)), ReduceOp::kSum);
      if (!work.has_value()) return std::string(work.error().message());
      if (const Status status = work.value().wait(); !status.ok()) {
        return std::string(status.message());
      }
      for (const float value : values) {
        if (value != 10) return "a wrong sum";
      }
      return std::string(own.algorithm_for(OpKind::kAllReduce, 4 * elems).value());
    });
    for (const std::string& answer : answers) EXPECT_EQ(answer, answers.front()) << elems;
    names.insert(answers.front());
  }
  EXPECT_GE(names.size(), 2u);
  EXPECT_EQ(names.count("a wrong sum"), 0u);
}

TEST(AlgorithmChoice, OtherNumbersMakeOtherChoices) {
  auto communicators = make_inproc_communicators(1, {.links = kSlow});
  ASSERT_TRUE(communicators.has_value());
  Communicator& own = *communicators.value().front();
  EXPECT_EQ(own.links(), kSlow);
  EXPECT_EQ(own.algorithm_for(OpKind::kAllReduce, 4096, "canonical").value(), "canonical");
  EXPECT_FALSE(own.algorithm_for(OpKind::kAllReduce, 4096, "nonesuch").has_value());
  EXPECT_FALSE(own.algorithm_for(OpKind::kSend, 4096).has_value());
  own.set_link_parameters(LinkModel{});
  EXPECT_EQ(own.links(), LinkModel{});
}

}  // namespace
}  // namespace gradwire::cost_choice_test
