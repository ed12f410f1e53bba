// Programs of the suite `gpu`: skipped (77), with the reason, where what they need is not here. It
// is looked for in a child, since CUDA does not survive the fork of a process that has begun to use
// it, and the ranks of some tests are forks.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <string>

#include "device/ops.h"
#include "gradwire/buffer.h"
#include "tests/support/chosen_files.h"

namespace gradwire::gpu {

// A device with memory.
inline Status has_card() { return Buffer::allocate(1, {MemorySpace::kCuda, 0}).error(); }

// And a library that multiplies matrices there.
inline Status multiplies() {
  constexpr Device kCard{MemorySpace::kCuda, 0};
  GW_ASSIGN(const Buffer memory, Buffer::allocate(sizeof(float) * 3, kCard));
  const TensorView all = memory.tensor(Shape::vector(3), DType::kF32);
  const auto one = [&](int i) {
    return TensorView(all.data() + sizeof(float) * static_cast<std::size_t>(i), Shape::matrix(1, 1),
                      DType::kF32, kCard);
  };
  return gemm(one(0), one(1), one(2), {}, {kCard, nullptr});
}

// What `need` says in a child, where it is kUnsupported; empty: nothing is missing. Other errors, a
// child that crashes, or has not ended in 100 s, are for the tests to show.
inline std::string missing(Status (*need)()) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return {};
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const Status found = need();
    const std::string why(found.code() == Code::kUnsupported ? found.message() : "");
    const bool said = write(ends[1], why.data(), why.size()) == static_cast<ssize_t>(why.size());
    _exit(said ? 0 : 1);
  }
  close(ends[1]);
  pollfd ready{.fd = ends[0], .events = POLLIN, .revents = 0};
  constexpr int kMilliseconds = 100 * 1000;
  std::array<char, 1024> text{};
  ssize_t bytes = 0;
  if (child > 0 && poll(&ready, 1, kMilliseconds) > 0) {
    bytes = read(ends[0], text.data(), text.size());
  } else if (child > 0) {
    kill(child, SIGKILL);
  }
  close(ends[0]);
  if (child > 0) (void)waitpid(child, nullptr, 0);
  return bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : std::string();
}

// The program's end: its tests' where `need` finds nothing missing.
inline int run_where(Status (*need)(), int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!gradwire::testing::keep_files(&argc, argv)) return 1;
  if (const std::string why = missing(need); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}

}  // namespace gradwire::gpu
