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
  std::vector<std::shared_ptr<ShmChannel>> channels;  // of the first queue
  std::vector<std::shared_ptr<ShmChannel>> others;    // of the second
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
  static constexpr ShmQueue kQueues[] = {{.small_bytes = 32 << 10, .slot_bytes = 64 << 10},
                                         {.small_bytes = 32 << 10, .slot_bytes = 4 << 10}};
  const ShmLayout layout{{std::begin(kQueues), std::end(kQueues)}, 2};
  const auto board = pair.boards[0]->make(layout.bytes(), layout.channels());
  ASSERT_TRUE(board.has_value()) << board.error().message();
  for (int r = 0; r < 2; ++r) {
    const auto& boards = pair.boards[static_cast<std::size_t>(r)];
    const std::vector<int> members{0, 1};
    pair.channels.push_back(
        std::make_shared<ShmChannel>(boards, board.value(), layout, 0, members, r));
    pair.others.push_back(
        std::make_shared<ShmChannel>(boards, board.value(), layout, 1, members, r));
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

ShmCall sum_of(std::vector<float>& data, std::uint64_t number) {
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  return {.kind = OpKind::kAllReduce,
          .dtype = DType::kF32,
          .in = bytes,
          .out = bytes,
          .elems = std::ssize(data),
          .number = number};
}

// Started after it, in another queue.
TEST(ShmExecution, OneEndsWhileAnotherOfTheSameRanksIsUnderWay) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(make_pair(pair));
  const ShmMoves& moves = shm_moves_of(OpKind::kAllReduce);
  std::vector<std::vector<float>> large(2, std::vector<float>(100'000, 1.0f));
  std::vector<std::vector<float>> small(2, std::vector<float>(100, 2.0f));
  std::vector<ShmExecution> under_way;
  std::vector<ShmExecution> beside;
  for (std::size_t r = 0; r < 2; ++r) {
    under_way.emplace_back(*pair.others[r], moves, sum_of(large[r], 1), 1);
    beside.emplace_back(*pair.channels[r], moves, sum_of(small[r], 2), 1);
  }
  for (int steps = 0; steps < 5; ++steps) {
    for (ShmExecution& one : under_way) ASSERT_TRUE(one.step().has_value());
  }
  for (int rounds = 0; rounds < 4; ++rounds) {
    for (ShmExecution& one : beside) ASSERT_TRUE(run(one).ok());
  }
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(beside[r].done());
    EXPECT_FALSE(under_way[r].done());
    EXPECT_EQ(small[r], std::vector<float>(100, 4.0f));
  }
  for (int rounds = 0; rounds < 1000; ++rounds) {
    for (ShmExecution& one : under_way) ASSERT_TRUE(run(one).ok());
  }
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(under_way[r].done());
    EXPECT_EQ(large[r], std::vector<float>(100'000, 2.0f));
  }
}

// Neither is ever met in its own queue.
TEST(ShmExecution, TheSameOperationInTwoQueuesIsAMismatchOnBothRanks) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(make_pair(pair));
  const ShmMoves& moves = shm_moves_of(OpKind::kAllReduce);
  std::vector<float> longer(3000);
  std::vector<float> shorter(10);
  ShmExecution here(*pair.channels[0], moves, sum_of(shorter, 7), 1);
  ShmExecution there(*pair.others[1], moves, sum_of(longer, 7), 1);
  ASSERT_TRUE(run(here).ok());
  for (ShmExecution* one : {&there, &here}) {
    const Status status = run(*one);
    EXPECT_EQ(status.code(), Code::kRankMismatch);
    EXPECT_NE(status.message().find("all_reduce of 3000"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("all_reduce of 10"), std::string::npos) << status.message();
  }
}

// Both are the first of their queue, and alike but for that.
TEST(ShmExecution, OperationsOfOtherNumbersAreAMismatch) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(make_pair(pair));
  const ShmMoves& moves = shm_moves_of(OpKind::kAllReduce);
  std::vector<std::vector<float>> data(2, std::vector<float>(10));
  ShmExecution here(*pair.channels[0], moves, sum_of(data[0], 3), 1);
  ShmExecution there(*pair.channels[1], moves, sum_of(data[1], 4), 1);
  ASSERT_TRUE(run(here).ok());
  for (ShmExecution* one : {&there, &here}) {
    const Status status = run(*one);
    EXPECT_EQ(status.code(), Code::kRankMismatch);
    EXPECT_NE(status.message().find("as operation 3"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("as operation 4"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace gradwire::shm_execution_test
