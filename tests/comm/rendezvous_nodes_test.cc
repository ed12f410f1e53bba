// Ranks find out who shares a node with whom.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/agree.h"
#include "gradwire/rendezvous.h"
#include "tests/support/fails.h"

namespace gradwire::rendezvous_nodes_test {
namespace {

using Nodes = std::vector<int>;

// What every rank finds, ranks as threads that call their nodes by these names.
std::vector<Nodes> found_by_all(const std::vector<std::string>& names) {
  const auto store = make_inproc_store();
  std::vector<Nodes> found(names.size());
  std::vector<std::jthread> ranks;
  for (std::size_t r = 0; r < names.size(); ++r) {
    ranks.emplace_back([&, r] {
      const Rendezvous own{.rank = static_cast<int>(r),
                           .size = static_cast<int>(names.size()),
                           .store = store,
                           .timeout_seconds = 20};
      auto nodes = rendezvous::nodes_of_job(own, names[r]);
      EXPECT_TRUE(nodes.has_value()) << nodes.error().message();
      if (nodes.has_value()) found[r] = nodes.value();
    });
  }
  ranks.clear();
  return found;
}

TEST(RendezvousNodes, AreNumberedByTheirFirstRanksOnAllRanksAlike) {
  for (const Nodes& nodes : found_by_all({"b", "a", "b", "c", "a"})) {
    EXPECT_EQ(nodes, (Nodes{0, 1, 0, 2, 1}));
  }
}

TEST(RendezvousNodes, OfOneHostAreOne) {
  for (const Nodes& nodes : found_by_all({"x", "x", "x"})) EXPECT_EQ(nodes, (Nodes{0, 0, 0}));
}

TEST(RendezvousNodes, OfALoneRankNeedNoStore) {
  const auto nodes = rendezvous::nodes_of_job({.rank = 0, .size = 1, .store = nullptr}, "x");
  ASSERT_TRUE(nodes.has_value());
  EXPECT_EQ(nodes.value(), Nodes{0});
}

TEST(RendezvousNodes, RefuseWhatIsNoHash) {
  const auto store = make_inproc_store();
  const std::string garbage = "not 16 digits at all";
  ASSERT_TRUE(
      store->set("node/1", std::as_bytes(std::span(garbage.data(), garbage.size())), deadline_in(5))
          .ok());
  const auto nodes = rendezvous::nodes_of_job({.rank = 0, .size = 2, .store = store}, "x");
  ASSERT_FALSE(nodes.has_value());
  EXPECT_THAT(nodes.error(), fails(Code::kCorruptPayload, "rank 1", "node", "20", "16"));
}

TEST(RendezvousNodes, NameARankThatSaysNothing) {
  const auto nodes = rendezvous::nodes_of_job(
      {.rank = 0, .size = 2, .store = make_inproc_store(), .timeout_seconds = 0.05}, "x");
  ASSERT_FALSE(nodes.has_value());
  EXPECT_THAT(nodes.error(), fails(Code::kTimedOut, "node/1"));
}

}  // namespace
}  // namespace gradwire::rendezvous_nodes_test
