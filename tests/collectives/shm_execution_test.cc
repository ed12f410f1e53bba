// What a rank takes from another's tensors once that one has given its operation up.
#include "collectives/shm/execution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/elements.h"
#include "collectives/engine/progress.h"
#include "comm/inproc/inproc_transport.h"

namespace gradwire::shm_execution_test {
namespace {

constexpr std::int64_t kElems = 1 << 18;  // far from small: each reads where the other's tensor is

// Two ranks of one process that share an arena, without messages.
struct Pair {
  std::vector<std::shared_ptr<ShmBoards>> boards;
  std::vector<std::shared_ptr<ShmChannel>> channels;
  std::vector<Buffer> tensors;

  ShmCall broadcast_of(int rank) {
    std::byte* data = tensors[static_cast<std::size_t>(rank)].bytes().data();
    return {
        .kind = OpKind::kBroadcast, .dtype = DType::kF32, .in = data, .out = data, .elems = kElems};
  }
};

void make_pair(Pair& pair) {
  auto made = shm::Arena::create(0, 2);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  auto opened = shm::Arena::open(made.value()->token(), 1, 2);
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  pair.boards = {std::make_shared<ShmBoards>(made.value(), false),
                 std::make_shared<ShmBoards>(opened.value(), false)};
  const auto board = pair.boards[0]->make(2);
  ASSERT_TRUE(board.has_value()) << board.error().message();
  for (int r = 0; r < 2; ++r) {
    const auto& boards = pair.boards[static_cast<std::size_t>(r)];
    pair.channels.push_back(
        std::make_shared<ShmChannel>(boards, board.value(), std::vector<int>{0, 1}, r));
    auto tensor = boards->arena().allocate(kElems * sizeof(float));
    ASSERT_TRUE(tensor.has_value()) << tensor.error().message();
    pair.tensors.push_back(std::move(tensor).value());
  }
}

// As far as it goes without the other rank; the last error, or ok.
Status run(ShmExecution& execution) {
  for (int steps = 0; steps < 1000; ++steps) {
    const Result<bool> moved = execution.step();
    if (!moved.has_value()) return moved.error();
    if (!moved.value()) return {};
  }
  return {Code::kInternal, "no end"};
}

// Its caller has begun the operation, its engine has failed meanwhile: the caller has its tensor
// back, and does with it what it likes.
TEST(ShmExecution, NobodyTakesForGoodWhatARankReadsInAnOperationThatAnEngineRefuses) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(make_pair(pair));
  const ShmMoves& moves = shm_moves_of(OpKind::kBroadcast);
  ShmExecution root(*pair.channels[0], moves, pair.broadcast_of(0), 1);
  ShmExecution other(*pair.channels[1], moves, pair.broadcast_of(1), 1);
  ASSERT_TRUE(root.step().value());
  ASSERT_TRUE(other.step().value());
  ASSERT_TRUE(run(root).ok());
  ASSERT_FALSE(root.done());  // the other has yet to read

  auto transports = make_inproc_transports(1);
  ASSERT_TRUE(transports.has_value());
  const auto engine = std::make_shared<ProgressEngine>(std::move(transports.value()[0]));
  engine->abort("enough");
  auto execution = std::make_unique<ShmExecution>(std::move(root));
  execution->hand_over(pair.channels[0],
                       {std::make_shared<const std::vector<int>>(std::vector{0}), 0, 0, 0});
  auto work = std::make_shared<WorkState>(engine);
  const Status refused = engine->submit(std::make_unique<Operation>(
      Operation{.signature = {.name = "broadcast"},
                .started = std::chrono::steady_clock::now(),
                .deadline = deadline_in(60),
                .execution = std::move(execution),
                .work = work,
                .bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0)}));
  EXPECT_EQ(refused.code(), Code::kCancelled) << refused.message();
  EXPECT_TRUE(work->done());

  std::ranges::fill(pair.tensors[0].bytes(), std::byte{0xd6});
  ASSERT_TRUE(run(other).ok());
  EXPECT_FALSE(other.done());
}

// The same two ranks without a failure.
TEST(ShmExecution, ABroadcastEndsOnBoth) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(make_pair(pair));
  std::ranges::fill(pair.tensors[0].bytes(), std::byte{5});
  const ShmMoves& moves = shm_moves_of(OpKind::kBroadcast);
  ShmExecution root(*pair.channels[0], moves, pair.broadcast_of(0), 1);
  ShmExecution other(*pair.channels[1], moves, pair.broadcast_of(1), 1);
  for (int rounds = 0; rounds < 10; ++rounds) {
    ASSERT_TRUE(run(root).ok());
    ASSERT_TRUE(run(other).ok());
  }
  EXPECT_TRUE(root.done());
  EXPECT_TRUE(other.done());
  EXPECT_EQ(std::ranges::count(pair.tensors[1].bytes(), std::byte{5}),
            std::ssize(pair.tensors[1].bytes()));
}

}  // namespace
}  // namespace gradwire::shm_execution_test
