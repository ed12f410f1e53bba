// Row Z1 against the system's own count: classes of memory sum to what the process grew by. A
// build whose allocations take more than they ask for (sanitizers) cannot tell: it says that it was
// skipped (77).
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <utility>

#include "tests/trainer/training_problems.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire {
namespace {

// Without what was freed and is kept for the next allocation (products pack their operands).
std::int64_t resident_set() {
  (void)::malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0;
  std::int64_t resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

bool counts_what_is_asked_for() {
  constexpr std::size_t kBytes = 64 << 20;
  const std::int64_t before = resident_set();
  const Buffer buffer = std::move(Buffer::allocate(kBytes)).value();
  std::memset(buffer.bytes().data(), 1, kBytes);
  const auto grown = static_cast<double>(resident_set() - before);
  return before > 0 && grown > 0.995 * kBytes && grown < 1.005 * kBytes;
}

TEST(Memory, Z1_ClassesAreWhatTheProcessGrewBy) {
  const auto model =
      std::move(make_model<float>({"mlp", {2048, 2048}}, digits().shape(), 10)).value();
  TrainingOptions options;
  options.batch = 16;
  options.steps = 1;
  options.lr = 1e-3;
  options.optimizer.name = "adamw";
  SingleProcess alone;
  {  // what the program itself takes for its first step
    TrainingOptions small = options;
    small.places = {};
    auto warm = Trainer::create(mlp(), digits(), small);
    ASSERT_TRUE(warm.has_value() && warm.value().run(alone, nullptr).has_value());
  }
  const std::int64_t before = resident_set();
  auto trainer = Trainer::create(model, digits(), options);
  ASSERT_TRUE(trainer.has_value());
  ASSERT_TRUE(trainer.value().run(alone, nullptr).has_value());
  const auto grown = static_cast<double>(resident_set() - before);
  const auto counted = static_cast<double>(options.places.device.use().total);
  // 4,349,962 parameters of 16 bytes, and activations.
  EXPECT_GT(counted, 16.0 * 4349962);
  EXPECT_NEAR(grown, counted, 0.03 * counted);
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!gradwire::counts_what_is_asked_for()) return 77;
  return RUN_ALL_TESTS();
}
