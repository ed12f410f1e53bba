// The compressor of three_bytes.h keeps gradwire's laws, and averages gradients.
#include "three_bytes.h"

#include <gtest/gtest.h>

#include <thread>

#include "gradwire/testing/compressor_laws.h"

using namespace gradwire;
using namespace gradwire::laws;

// A registry is a value: the built-in methods, and this one.
Registry own_registry() {
  Registry registry = Registry::builtin();
  EXPECT_TRUE(registry.add(three_bytes::method()).ok());
  return registry;
}

INSTANTIATE_TEST_SUITE_P(Own, CompressorLaws,
                         ::testing::ValuesIn(subjects(
                             own_registry(), {{"three_bytes"}, {"topk:ratio=0.1|three_bytes"}})),
                         name_of);

// One step of one rank of three, whose gradients are 1, 2 and 3 and a little more than 24 bits
// hold.
void train(Communicator& world, std::vector<float>& gradient) {
  const auto aggregator =
      Aggregator::create(world, own_registry(), {.compressor = "three_bytes:ef=ef14"});
  ASSERT_TRUE(aggregator.has_value()) << aggregator.error().message();
  gradient.assign(64 * 32, static_cast<float>(world.rank() + 1) + 0x1p-20F);
  const TensorView view(reinterpret_cast<std::byte*>(gradient.data()), Shape::matrix(64, 32),
                        DType::kF32);
  EXPECT_TRUE(aggregator.value()->add("layer.weight", view).ok());
  EXPECT_TRUE(aggregator.value()->ready(0).ok());
  EXPECT_TRUE(aggregator.value()->finish().ok());
  EXPECT_LT(aggregator.value()->stats().wire_bytes, aggregator.value()->stats().dense_ring_bytes);
}

TEST(ThreeBytes, AverageOnThreeRanks) {
  auto ranks = make_inproc_communicators(3);
  ASSERT_TRUE(ranks.has_value()) << ranks.error().message();
  std::vector<std::vector<float>> means(3);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] { train(*ranks.value()[r], means[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& mean : means) EXPECT_EQ(mean, std::vector<float>(64 * 32, 2));
}
