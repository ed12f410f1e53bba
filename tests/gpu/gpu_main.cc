// Runs the tests where there is a CUDA device, and is skipped (77) where there is none.
#include <gtest/gtest.h>

#include <cstdio>

#include "gradwire/buffer.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto memory = gradwire::Buffer::allocate(1, {gradwire::MemorySpace::kCuda, 0});
  if (!memory.has_value() && memory.error().code() == gradwire::Code::kUnsupported) {
    std::printf("skipped: %s\n", std::string(memory.error().message()).c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
