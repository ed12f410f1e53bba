// The whole sentences of refused calls and of failures, which other tests judge by their code and
// by what they name. Whoever words a message anew changes it here alone.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "base/elements.h"
#include "collectives/plan/arguments.h"
#include "collectives/schedules/selection.h"
#include "comm/inproc/inproc_transport.h"
#include "gradwire/communicator.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::messages_golden_test {
namespace {

TEST(CollectiveMessages, ArgumentsThatAreRefused) {
  std::vector<float> memory(20);
  const auto at = [&](std::size_t begin, std::int64_t count) {
    return TensorView(reinterpret_cast<std::byte*>(memory.data() + begin), Shape::vector(count),
                      DType::kF32);
  };
  const std::vector<std::int64_t> counts{4, -1, 2};
  const auto refusal = [](const OpCall& call, double factor = 1) {
    const OpOptions options{.deadline = {}, .stream = {}, .factor = factor};
    return std::string(check_call(call, options, 1, 3).error().message());
  };
  EXPECT_EQ(refusal({.kind = OpKind::kBroadcast, .out = at(0, 4), .peer = 3}),
            "broadcast: root 3 (expected 0 to 2)");
  EXPECT_EQ(refusal({.kind = OpKind::kAllReduce, .in = at(0, 4), .out = at(8, 5)}),
            "all_reduce: out has 5 elements (expected 4)");
  EXPECT_EQ(refusal({.kind = OpKind::kScatterV, .out = at(0, 2), .peer = 0, .counts = counts}),
            "scatter_v: counts[1] is -1 elements (expected 0 or more, 2^50 at most together)");
  EXPECT_EQ(refusal({.kind = OpKind::kAllReduce, .in = at(0, 4), .out = at(0, 4)}, 0.5),
            "all_reduce: factor 0.5 without pre_mul_sum (expected 1)");
  EXPECT_EQ(refusal({.kind = OpKind::kAllReduce, .in = at(0, 4), .out = at(3, 4)}),
            "all_reduce: out overlaps in, 12 bytes after its beginning (expected 0, which is in "
            "place, or no overlap)");
  EXPECT_EQ(resolve_algorithm(OpKind::kAllToAll, "bruck", true).error().message(),
            "no algorithm 'bruck' for all_to_all_v (known: auto, pairwise, direct)");
}

Status wait_for(Result<Work> work) { return work.has_value() ? work.value().wait() : work.error(); }

// Two ranks, each with a hook to its transport.
struct Pair {
  explicit Pair(double deadline_seconds) {
    auto transports = make_inproc_transports(2);
    for (auto& transport : transports.value()) {
      hooks.push_back(transport.get());
      worlds.push_back(
          make_communicator(std::move(transport),
                            {.deadline_seconds = deadline_seconds, .algorithm = "auto"})
              .value());
    }
  }
  std::vector<Transport*> hooks;
  std::vector<std::unique_ptr<Communicator>> worlds;
};

// What the rank's first operation came to, T in place of the time that had passed, N of a tag.
std::string sentence(const Status& status) {
  const std::string text =
      std::regex_replace(std::string(status.message()), std::regex("after [0-9.]+ s"), "after T s");
  return std::regex_replace(text, std::regex("tag 0x[0-9a-f]{10}"), "tag N");
}

TEST(CollectiveMessages, Failures) {
  std::vector<float> data(1000, 1.0F);
  const TensorView tensor = view_of(std::span(data));
  {
    Pair pair(60);
    kill_rank(*pair.hooks[1]);
    EXPECT_EQ(sentence(wait_for(pair.worlds[0]->all_reduce(tensor, ReduceOp::kSum))),
              "rank 1 lost in all_reduce (operation 0) after T s: killed (deadline 60.0 s)");
  }
  {
    Pair pair(0.2);
    EXPECT_EQ(sentence(wait_for(pair.worlds[0]->recv(tensor, 1))),
              "rank 0 timed out in recv (operation 0) after T s: waiting for rank 1 (deadline 0.2 "
              "s)");
  }
  {
    Pair pair(0.2);
    EXPECT_EQ(sentence(wait_for(pair.worlds[0]->all_reduce(tensor, ReduceOp::kSum))),
              "rank 1 lost in all_reduce (operation 0) after T s: took no part (deadline 0.2 s)");
  }
  {
    Pair pair(60);
    pair.worlds[1]->abort("out of disk");
    EXPECT_EQ(sentence(wait_for(pair.worlds[0]->all_reduce(tensor, ReduceOp::kSum))),
              "rank 1 gave up in all_reduce (operation 0) after T s: reported by rank 1: out of "
              "disk (deadline 60.0 s)");
  }
  {
    Pair pair(60);
    std::vector<float> longer(1001);
    auto sent = pair.worlds[1]->send(view_of(std::span(longer)), 0);
    EXPECT_EQ(sentence(wait_for(pair.worlds[0]->recv(tensor, 1))),
              "ranks disagree in recv (operation 0) after T s: message of 4004 bytes from rank 1, "
              "tag N: the receive takes 4000");
  }
}

}  // namespace
}  // namespace gradwire::messages_golden_test
