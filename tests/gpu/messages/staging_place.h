// What tests of operations on a device's tensors over messages have: ranks as threads, each with a
// stream and some memory there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "device/cuda/memory_calls.h"
#include "device/cuda/stream.h"
#include "device/ops.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::staging {

inline constexpr Device kDevice{MemorySpace::kCuda, 0};

// One rank's stream and some of its memory on the device.
struct Place {
  static Place make(std::int64_t elems) {
    auto stream = cuda::OwnedStream::create(kDevice);
    auto buffer = Buffer::allocate(static_cast<std::size_t>(elems) * sizeof(float), kDevice);
    EXPECT_TRUE(stream.has_value() && buffer.has_value());
    return {std::move(stream).value(), std::move(buffer).value(), elems};
  }
  TensorView tensor() const { return buffer.tensor(Shape::vector(elems), DType::kF32); }
  OpOptions options() const {
    return {.algorithm = "auto", .deadline = {}, .stream = stream.stream()};
  }
  // Enqueued, so nothing waits; `values` live until it has run.
  Status write(const std::vector<float>& values) const {
    return copy_bytes(std::as_bytes(std::span(values)), {}, tensor().bytes(), kDevice,
                      stream.stream());
  }
  // As they are when the stream has run what it has; it waits for no other.
  std::vector<float> read() const {
    std::vector<float> values(static_cast<std::size_t>(elems));
    const Status copied = copy_bytes(
        tensor().bytes(), kDevice, std::as_writable_bytes(std::span(values)), {}, stream.stream());
    EXPECT_TRUE(copied.ok()) << copied.message();
    const Status ran = cuda::synchronize(stream.stream());
    EXPECT_TRUE(ran.ok()) << ran.message();
    return values;
  }

  cuda::OwnedStream stream;
  Buffer buffer;
  std::int64_t elems;
};

using Program = std::function<std::string(Communicator& world)>;

// What each rank's program says.
inline std::vector<std::string> on_ranks(int ranks, const Program& program,
                                         const CommunicatorOptions& options = {}) {
  auto made = make_inproc_communicators(ranks, options);
  if (!made.has_value()) return {std::string(made.error().message())};
  return on_threads<std::string>(ranks, [&](int rank) {
    auto world = std::move(made.value()[static_cast<std::size_t>(rank)]);
    return program(*world);
  });
}

inline std::string text(const Status& status) {
  return status.ok() ? ""
                     : std::string(to_string(status.code())) + ": " + std::string(status.message());
}

inline std::vector<float> ramp(std::int64_t elems, int rank) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  std::iota(values.begin(), values.end(), static_cast<float>(rank));
  return values;
}

// The sum of ramp() over two ranks.
inline std::vector<float> ramps_of_two(std::int64_t elems) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 2 * static_cast<float>(i) + 1;
  return values;
}

}  // namespace gradwire::staging
