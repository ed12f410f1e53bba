#include "collectives/schedules/selection.h"
#include "tests/support/fails.h"

#include <gtest/gtest.h>

namespace gradwire::selection_test {
namespace {

TEST(Selection, AutoIsTheRing) {
  EXPECT_EQ(resolve_algorithm(OpKind::kAllReduce, "auto").value(), "ring");
  EXPECT_EQ(resolve_algorithm(OpKind::kReduceScatter, "auto").value(), "ring");
  EXPECT_EQ(resolve_algorithm(OpKind::kBroadcast, "auto").value(), "binomial");
}

TEST(Selection, KnownNamesStay) {
  EXPECT_EQ(resolve_algorithm(OpKind::kAllReduce, "canonical").value(), "canonical");
}

TEST(Selection, AnUnknownNameIsRefusedWithTheList) {
  const Status error = resolve_algorithm(OpKind::kAllReduce, "rign").error();
  EXPECT_THAT(error,
              fails(Code::kInvalidArgument, "rign", "all_reduce", "auto", "ring", "canonical",
                    "direct", "recursive_doubling", "halving_doubling", "double_tree", "tree",
                    "knomial", "parameter_server", "two_level", "blueconnect"));
  EXPECT_FALSE(resolve_algorithm(OpKind::kBarrier, "ring").has_value());
}

TEST(Selection, BruckTakesNoUnequalRows) {
  EXPECT_TRUE(resolve_algorithm(OpKind::kAllToAll, "bruck").has_value());
  EXPECT_THAT(resolve_algorithm(OpKind::kAllToAll, "bruck", true).error(),
              fails(Code::kInvalidArgument, "bruck", "all_to_all_v", "auto", "pairwise", "direct"));
}

TEST(Selection, MakesTheNamedSchedule) {
  EXPECT_EQ(make_schedule(OpKind::kAllReduce, "ring", 0, 4, 8).rounds.size(), 6u);
  EXPECT_EQ(make_schedule(OpKind::kAllReduce, "canonical", 0, 4, 8).rounds.size(), 2u);
  EXPECT_EQ(make_schedule(OpKind::kReduceScatter, "ring", 0, 4, 8).out_elems, 8);
}

}  // namespace
}  // namespace gradwire::selection_test
