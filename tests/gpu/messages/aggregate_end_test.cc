// An aggregator that fails, or ends within a step, over a device that is late: what it waits for,
// what it says, and what becomes of its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/patience.h"
#include "gradwire/aggregator.h"
#include "tests/emulation/emulated_device.h"
#include "tests/gpu/messages/gradients_at.h"
#include "tests/support/names.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::aggregate_end_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using Kind = AggregateSpan::Kind;

constexpr double kAmpleSeconds = 30;

std::vector<std::unique_ptr<Communicator>> worlds(int ranks, double deadline_seconds,
                                                  std::vector<int> node_of = {}) {
  auto made = make_inproc_communicators(
      ranks, {.deadline_seconds = deadline_seconds, .node_of = std::move(node_of)});
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

std::unique_ptr<Aggregator> make(Communicator& world, const AggregatorOptions& options,
                                 const GradientsAt& gradients) {
  auto aggregator = Aggregator::create(world, Registry::builtin(), options);
  EXPECT_TRUE(aggregator.has_value());
  EXPECT_TRUE(gradients.add_to(*aggregator.value()).ok());
  return std::move(aggregator).value();
}

// Until `condition` holds; false when it does not in ample time.
bool eventually(const std::function<bool()>& condition) {
  const Deadline until = deadline_in(kAmpleSeconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Rank 0's stream never comes to where its gradients are final.
std::string finish_behind_a_held_stream(Communicator& world,
                                        const AggregatorOptions& options = {}) {
  const std::vector<Shape> shapes = {Shape::vector(100), Shape::vector(200)};
  auto gradients = GradientsAt::make(kFirstDevice, shapes);
  if (!gradients.has_value()) return code_and_message(gradients.error());
  const GradientsAt& there = *gradients.value();
  const auto aggregator = make(world, options, there);
  void* const stream = there.stream().native;
  if (world.rank() == 0) emulation::hold(stream);
  std::vector<std::vector<float>> values;
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    values.push_back(gradient_of(t, shapes[t].elems(), world.rank(), 0));
    const Status wrote = there.write(t, values.back());
    const Status told = wrote.ok() ? aggregator->ready(static_cast<int>(t), there.stream()) : wrote;
    if (!told.ok()) return code_and_message(told);
  }
  const Status ended = aggregator->finish();
  emulation::release(stream);
  // What the stream had to do comes last: nobody else has written there. (Other nodes may have
  // added up theirs.)
  const bool untouched = world.rank() == 0 || options.compressor == "none";
  for (std::size_t t = 0; untouched && t < shapes.size(); ++t) {
    const auto now = there.read(t);
    if (!now.has_value() || now.value() != values[t]) return "a gradient has changed";
  }
  return code_and_message(ended);
}

// What a rank says that waited for rank 0: where, and that rank 0 is why, or, where its own
// deadline was over before it heard so, that it was.
void expect_waited(const std::string& text, int phase, const std::string& operation) {
  EXPECT_THAT(text, AllOf(tells("step 0", "bucket 0", "phase " + std::to_string(phase), operation),
                          AnyOf(tells(to_string(Code::kPeerLost), "rank 0"),
                                tells(to_string(Code::kTimedOut)))));
}

TEST(AggregateEnd, GradientsThatAreNeverFinalEndAtTheDeadlineAndAreNamed) {
  for (const int ranks : {1, 2}) {
    const auto made = worlds(ranks, 1);  // time to come as far as that
    const auto outcomes = on_threads<std::string>(ranks, [&](int rank) {
      return finish_behind_a_held_stream(*made[static_cast<std::size_t>(rank)]);
    });
    EXPECT_THAT(outcomes[0], tells(to_string(Code::kTimedOut), "step 0", "bucket 0", "'tensor0'",
                                   "CUDA device 0", "1.0", "ready()"));
    if (ranks == 1) continue;
    expect_waited(outcomes[1], 0, "all_reduce_fused");
  }
}

// Of the others rank 1, on the same node, waits inside it; the other node's have done that, and
// wait between nodes for the owners of their shards: rank 2 for rank 0, and rank 3 for rank 1. They
// begin later: were theirs the first deadline to pass, rank 3 would name rank 1, which has not
// come.
TEST(AggregateEnd, OnTwoLevelsAllRanksEndAtTheDeadlineToo) {
  const auto made = worlds(4, 3, {0, 0, 1, 1});
  const AggregatorOptions options{.compressor =
                                      "qsgd:bits=4,intra_node=none,min_elems=0,dense_1d=false"};
  const auto outcomes = on_threads<std::string>(4, [&](int rank) {
    if (rank >= 2) std::this_thread::sleep_for(std::chrono::seconds(2));
    return finish_behind_a_held_stream(*made[static_cast<std::size_t>(rank)], options);
  });
  EXPECT_THAT(outcomes[0], tells(to_string(Code::kTimedOut), "step 0", "bucket 0", "'tensor0'",
                                 "CUDA device 0", "3.0", "ready()"));
  expect_waited(outcomes[1], 0, "reduce_scatter_v");
  expect_waited(outcomes[2], 1, "all_to_all_v");
  expect_waited(outcomes[3], 1, "all_to_all_v");
}

// The gradients of the bucket that is next are not waited for while another one is under way.
TEST(AggregateEnd, ABucketEndsWhileTheDeviceComesToTheNext) {
  const auto held = CopyLane::create(kFirstDevice);
  const auto gradients = GradientsAt::make(kFirstDevice, {Shape::vector(100), Shape::vector(100)});
  ASSERT_TRUE(held.has_value() && gradients.has_value());
  const Stream late = held.value()->to_device();
  std::atomic<bool> ended = false;
  AggregatorOptions options;
  options.bucket_bytes = 400;
  options.arrival = [&](int index, const Status&) { ended = ended || index == 1; };
  const auto made = worlds(1, kAmpleSeconds);
  const auto aggregator = make(*made.front(), options, *gradients.value());
  emulation::hold(late.native);
  EXPECT_TRUE(aggregator->ready(1, gradients.value()->stream()).ok());
  EXPECT_TRUE(aggregator->ready(0, late).ok());
  EXPECT_TRUE(eventually([&] { return ended.load(); }));
  emulation::release(late.native);
  EXPECT_TRUE(aggregator->finish().ok());
}

TEST(AggregateEnd, ADeviceThatDoesNotEndABucketIsNamedWithIt) {
  AggregatorOptions options;
  options.on_span = [](const AggregateSpan& span) {
    if (span.kind == Kind::kExchange) emulation::hold_apart(true);  // before decoding
  };
  const auto made = worlds(1, 0.3);
  auto gradients = GradientsAt::make(kFirstDevice, {Shape::vector(100)});
  ASSERT_TRUE(gradients.has_value());
  const auto aggregator = make(*made.front(), options, *gradients.value());
  const Status ended = gradients.value()->average(*aggregator, 0, 0);
  emulation::hold_apart(false);
  EXPECT_THAT(ended, fails(Code::kTimedOut, "step 0", "bucket 0", "phase 0", "CUDA device 0", "0.3",
                           "freed"));
}

// A copy to memory that is not pinned would wait for as long as the device takes.
TEST(AggregateEnd, StateThatADeviceDoesNotGiveEndsAtTheDeadline) {
  const auto made = worlds(1, 0.3);
  const auto gradients = GradientsAt::make(kFirstDevice, {Shape::vector(1000)});
  ASSERT_TRUE(gradients.has_value());
  const auto aggregator =
      make(*made.front(), {.compressor = "topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false"},
           *gradients.value());
  ASSERT_TRUE(gradients.value()->average(*aggregator, 0, 0).ok());
  EXPECT_FALSE(aggregator->state().empty());
  std::atomic<bool> released = false;
  emulation::hold_apart(true);
  emulation::wait_in_copies(true);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    released = true;
    emulation::hold_apart(false);
  });
  EXPECT_TRUE(aggregator->state().empty());
  EXPECT_FALSE(released);
  emulation::wait_in_copies(false);
  later.join();
}

TEST(AggregateEnd, WaitsOfItsThreadForADeviceHaveTheOperationsDeadline) {
  std::atomic<double> patience = 0;
  AggregatorOptions options;
  options.on_span = [&](const AggregateSpan&) { patience = DevicePatience::seconds(); };
  const auto made = worlds(1, 12.5);
  const auto gradients = GradientsAt::make(kFirstDevice, {Shape::vector(100)});
  ASSERT_TRUE(gradients.has_value());
  const auto aggregator = make(*made.front(), options, *gradients.value());
  ASSERT_TRUE(gradients.value()->average(*aggregator, 0, 0).ok());
  EXPECT_EQ(patience, 12.5);
}

// Hands gradients over and ends with what was encoded of them still to be run; `late` is called
// when the aggregator has failed over that.
void end_within_a_step(double deadline_seconds, const GradientsAt& gradients,
                       const std::function<void()>& late) {
  AggregatorOptions options{.compressor = "cast:fp16,combine=gather,min_elems=0,dense_1d=false"};
  std::atomic<bool> encoded = false;
  std::thread later;
  options.on_span = [&](const AggregateSpan& span) {
    if (span.kind != Kind::kEncode) return;
    emulation::hold_apart(true);
    encoded = true;
  };
  options.arrival = [&](int index, const Status& outcome) {
    if (index >= 0) return;
    EXPECT_THAT(outcome, fails(Code::kCancelled, "freed", "CUDA device 0"));
    later = std::thread(late);
  };
  const auto made = worlds(1, deadline_seconds);
  auto aggregator = make(*made.front(), options, gradients);
  const std::vector<float> values = gradient_of(0, 1000, 0, 0);
  ASSERT_TRUE(gradients.write(0, values).ok());
  ASSERT_TRUE(aggregator->ready(0, gradients.stream()).ok());
  EXPECT_TRUE(eventually([&] { return encoded.load(); }));
  aggregator.reset();
  later.join();
}

TEST(AggregateEnd, WithinAStepItWaitsForItsDeviceBeforeItFreesMemory) {
  const auto gradients = GradientsAt::make(kFirstDevice, {Shape::vector(1000)});
  ASSERT_TRUE(gradients.has_value());
  const std::size_t before = emulation::allocations();
  const std::size_t careless = emulation::frees_before_their_time();
  end_within_a_step(kAmpleSeconds, *gradients.value(), [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    emulation::hold_apart(false);
  });
  EXPECT_EQ(emulation::frees_before_their_time(), careless);
  EXPECT_TRUE(eventually([&] { return emulation::allocations() == before; }));
}

TEST(AggregateEnd, MemoryOfADeviceThatIsTooLateIsFreedWhenItIsThrough) {
  const auto gradients = GradientsAt::make(kFirstDevice, {Shape::vector(1000)});
  ASSERT_TRUE(gradients.has_value());
  const std::size_t before = emulation::allocations();
  const std::size_t careless = emulation::frees_before_their_time();
  end_within_a_step(0.3, *gradients.value(), [] {});
  EXPECT_GT(emulation::allocations(), before);
  emulation::hold_apart(false);
  EXPECT_TRUE(eventually([&] { return emulation::allocations() == before; }));
  EXPECT_EQ(emulation::frees_before_their_time(), careless);
}

}  // namespace
}  // namespace gradwire::aggregate_end_test
