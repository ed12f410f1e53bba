// Misuse, lost ranks, bad numbers and early ends: an error that says what, and no hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::failure_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::AnyOf;
using ::testing::StartsWith;

constexpr double kDeadlineSeconds = 2;  // where it is waited for
constexpr double kAmpleSeconds = 30;    // where it must not matter

// Two gradients of 64 elements.
struct Grads {
  std::vector<float> a = std::vector<float>(64, 1.0F);
  std::vector<float> b = std::vector<float>(64, 2.0F);
  Status add_to(Aggregator& aggregator) {
    GW_TRY(aggregator.add("a", view_of(std::span<float>(a))));
    return aggregator.add("b", view_of(std::span<float>(b)));
  }
};

Result<std::unique_ptr<Aggregator>> make(Communicator& communicator, const std::string& compressor,
                                         std::int64_t bucket_bytes = 256) {
  AggregatorOptions options;
  options.compressor = compressor;
  options.bucket_bytes = bucket_bytes;
  return Aggregator::create(communicator, Registry::builtin(), options);
}

// That `rank` is gone or gave up: whoever reports it is named in its error, too.
::testing::Matcher<const Status&> is_lost(int rank) {
  const std::string who = "rank " + std::to_string(rank);
  return AnyOf(fails(Code::kPeerLost, who + " lost"), fails(Code::kPeerLost, who + " gave up"),
               fails(Code::kTimedOut, who + " lost"));
}

TEST(Misuse, IsRefusedByName) {
  const auto outcomes = on_ranks(1, [](std::unique_ptr<Communicator>& communicator) -> Status {
    GW_ASSIGN(auto aggregator, make(*communicator, "none"));
    EXPECT_THAT(aggregator->ready(0), fails(kInvalid, "no parameter"));
    EXPECT_TRUE(aggregator->finish().ok());
    Grads grads;
    GW_TRY(grads.add_to(*aggregator));
    EXPECT_THAT(grads.add_to(*aggregator), fails(kInvalid, "'a'", "already"));
    std::vector<std::int64_t> integers(3);
    EXPECT_THAT(aggregator->add("i", view_of(std::span(integers))),
                fails(kInvalid, "'i'", "i64", "f32", "f64"));
    EXPECT_THAT(aggregator->ready(2), fails(kInvalid, "gradient 2", "0", "1"));
    GW_TRY(aggregator->ready(1));
    EXPECT_THAT(aggregator->ready(1), fails(kInvalid, "'b'", "ready", "second"));
    EXPECT_THAT(aggregator->finish(), fails(kInvalid, "1 of 2", "'a'"));
    EXPECT_THAT(aggregator->add("c", view_of(std::span(grads.a))),
                fails(kInvalid, "'c'", "ready()"));
    EXPECT_THAT(aggregator->load_state({}), fails(kInvalid, "load_state()", "step", "finish()"));
    GW_TRY(aggregator->ready(0));
    return aggregator->finish();
  });
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0].message();
}

TEST(Misuse, RanksWithOtherParametersAreNamed) {
  const auto outcomes = on_ranks(3, [](std::unique_ptr<Communicator>& communicator) -> Status {
    GW_ASSIGN(auto aggregator, make(*communicator, "none"));
    std::vector<float> grad(communicator->rank() == 2 ? 5 : 4);
    GW_TRY(aggregator->add("w", view_of(std::span(grad))));
    GW_TRY(aggregator->ready(0));
    return aggregator->finish();
  });
  for (const Status& status : outcomes) {
    EXPECT_THAT(status, fails(Code::kRankMismatch, "first step", "'parameters and options'"));
    // The last clause says who differs from whom.
    const std::string text(status.message());
    EXPECT_THAT(text.substr(text.rfind(": ") + 2), StartsWith("rank 2 ")) << text;
  }
}

TEST(Loss, OfARankEndsTheOthersWithAnErrorThatNamesIt) {
  const auto outcomes = on_ranks(
      3,
      [](std::unique_ptr<Communicator>& communicator) -> Status {
        GW_ASSIGN(auto aggregator, make(*communicator, "signsgd:min_elems=0,dense_1d=false"));
        Grads grads;
        GW_TRY(grads.add_to(*aggregator));
        for (int step = 0; step < 5; ++step) {
          if (step == 3 && communicator->rank() == 1) {
            aggregator.reset();
            communicator.reset();
            return {};
          }
          GW_TRY(aggregator->ready(1));
          GW_TRY(aggregator->ready(0));
          GW_TRY(aggregator->finish());
        }
        return {};
      },
      {.deadline_seconds = kAmpleSeconds, .algorithm = "auto"});
  EXPECT_TRUE(outcomes[1].ok());
  for (const std::size_t r : {0u, 2u}) {
    EXPECT_THAT(outcomes[r], is_lost(1));
  }
}

TEST(Loss, StaysAndComesOutOfEveryCall) {
  const auto outcomes = on_ranks(2,
                                 [](std::unique_ptr<Communicator>& communicator) -> Status {
                                   GW_ASSIGN(auto aggregator, make(*communicator, "none"));
                                   Grads grads;
                                   GW_TRY(grads.add_to(*aggregator));
                                   if (communicator->rank() == 1) return {};  // never takes part
                                   GW_TRY(aggregator->ready(0));
                                   GW_TRY(aggregator->ready(1));
                                   const Status first = aggregator->finish();
                                   EXPECT_FALSE(first.ok());
                                   EXPECT_EQ(aggregator->ready(0).message(), first.message());
                                   EXPECT_EQ(aggregator->finish().message(), first.message());
                                   return first;
                                 },
                                 {.deadline_seconds = kDeadlineSeconds, .algorithm = "auto"});
  EXPECT_THAT(outcomes[0], is_lost(1));
}

TEST(EarlyEnd, InTheMiddleOfAStepNeverHangs) {
  const auto outcomes = on_ranks(2,
                                 [](std::unique_ptr<Communicator>& communicator) -> Status {
                                   GW_ASSIGN(auto aggregator, make(*communicator, "none"));
                                   Grads grads;
                                   GW_TRY(grads.add_to(*aggregator));
                                   GW_TRY(aggregator->ready(1));  // the other never comes
                                   return {};
                                 },
                                 {.deadline_seconds = kAmpleSeconds, .algorithm = "auto"});
  // Whoever is later may find the other gone already, and says so; it never waits for it.
  for (const std::size_t r : {0u, 1u}) {
    if (outcomes[r].ok()) continue;
    EXPECT_THAT(outcomes[r], is_lost(static_cast<int>(1 - r)));
  }
}

TEST(EarlyEnd, OfOneRankOnlyEndsTheOther) {
  const auto outcomes = on_ranks(2,
                                 [](std::unique_ptr<Communicator>& communicator) -> Status {
                                   GW_ASSIGN(auto aggregator, make(*communicator, "none"));
                                   Grads grads;
                                   GW_TRY(grads.add_to(*aggregator));
                                   GW_TRY(aggregator->ready(1));
                                   if (communicator->rank() == 1) return {};
                                   GW_TRY(aggregator->ready(0));
                                   return aggregator->finish();
                                 },
                                 {.deadline_seconds = kAmpleSeconds, .algorithm = "auto"});
  EXPECT_THAT(outcomes[0], is_lost(1));
  EXPECT_TRUE(outcomes[1].ok());
}

TEST(BadNumbers, UnderErrorFeedbackAreNamedAndEndTheJob) {
  for (const std::string combine : {"gather", "sra"}) {
    SCOPED_TRACE(combine);
    const auto outcomes = on_ranks(
        2,
        [&combine](std::unique_ptr<Communicator>& communicator) -> Status {
          GW_ASSIGN(
              auto aggregator,
              make(*communicator, "signsgd:ef=ef14,min_elems=0,dense_1d=false,combine=" + combine));
          Grads grads;
          if (communicator->rank() == 0) grads.b[7] = std::numeric_limits<float>::quiet_NaN();
          GW_TRY(grads.add_to(*aggregator));
          GW_TRY(aggregator->ready(0));
          GW_TRY(aggregator->ready(1));
          return aggregator->finish();
        },
        {.deadline_seconds = kAmpleSeconds, .algorithm = "auto"});
    EXPECT_THAT(outcomes[0], fails(kInvalid, "'b'", "element 7"));
    EXPECT_THAT(outcomes[1], fails(Code::kPeerLost, "rank 0 gave up", "'b'", "element 7"));
  }
}

}  // namespace
}  // namespace gradwire::testing::failure_test
