// How the host waits for a device: never without end, and beside what others capture.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "compress/cuda/verdict.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/ops.h"
#include "device/patience.h"
#include "device/stream_gate.h"
#include "gradwire/buffer.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/fails.h"

namespace gradwire {
namespace {

constexpr Device kDevice{MemorySpace::kCuda, 0};
constexpr Device kPinned{MemorySpace::kPinnedHost, 0};

cuda::OwnedStream make_stream() {
  auto made = cuda::OwnedStream::create(kDevice);
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

Buffer make_buffer(Device device) {
  auto made = Buffer::allocate(64, device);
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

TEST(Waits, PatienceIsTheThreadsAndNests) {
  EXPECT_EQ(DevicePatience::seconds(), DevicePatience::kAmple);
  const DevicePatience outer(5);
  {
    const DevicePatience inner(0.5);
    EXPECT_EQ(DevicePatience::seconds(), 0.5);
    double others = 0;
    std::thread([&] { others = DevicePatience::seconds(); }).join();
    EXPECT_EQ(others, DevicePatience::kAmple);
  }
  EXPECT_EQ(DevicePatience::seconds(), 5);
}

TEST(Waits, AStreamThatIsHeldUpEndsTheWaitForIt) {
  const cuda::OwnedStream stream = make_stream();
  emulation::hold(stream.stream().native);
  const DevicePatience patience(0.1);
  const Status late = cuda::synchronize(stream.stream());
  emulation::release(stream.stream().native);
  EXPECT_THAT(late, fails(Code::kTimedOut, "CUDA device 0", "0.1"));
  EXPECT_TRUE(cuda::synchronize(stream.stream()).ok());
}

// What a stream was given before runs, what it is given later does not, also behind a second gate.
TEST(Waits, AGateHoldsItsStreamUntilItIsOpened) {
  const cuda::OwnedStream stream = make_stream();
  for (int round = 0; round < 3; ++round) {
    const Buffer first = make_buffer(kPinned);
    const Buffer second = make_buffer(kPinned);
    const Buffer ones = make_buffer(kPinned);
    const Buffer there = make_buffer(kDevice);
    ones.bytes()[0] = std::byte{1};
    const auto write = [&](const Buffer& to) {
      EXPECT_TRUE(copy_bytes(ones.bytes(), kPinned, there.bytes(), kDevice, stream.stream()).ok());
      EXPECT_TRUE(copy_bytes(there.bytes(), kDevice, to.bytes(), kPinned, stream.stream()).ok());
    };
    write(first);
    auto outer = StreamGate::close(stream.stream());
    auto inner = StreamGate::close(stream.stream());
    ASSERT_TRUE(outer.has_value() && inner.has_value());
    write(second);
    {
      const DevicePatience patience(0.1);
      EXPECT_THAT(cuda::synchronize(stream.stream()), fails(Code::kTimedOut));
      EXPECT_EQ(first.bytes()[0], std::byte{1});
      outer.value()->open();
      EXPECT_THAT(cuda::synchronize(stream.stream()), fails(Code::kTimedOut));
      EXPECT_EQ(second.bytes()[0], std::byte{0});
    }
    inner.value().reset();  // its end opens it
    EXPECT_TRUE(cuda::synchronize(stream.stream()).ok());
    EXPECT_EQ(second.bytes()[0], std::byte{1});
  }
  EXPECT_THAT(StreamGate::close(Stream{}).error(), fails(Code::kUnsupported, "the host"));
}

TEST(Waits, ACodersLookAtWhatKernelsFoundEnds) {
  const cuda::OwnedStream stream = make_stream();
  auto verdict = cuda::Verdict::open(kDevice);
  ASSERT_TRUE(verdict.has_value());
  ASSERT_TRUE(verdict.value().clear(stream.stream()).ok());
  emulation::hold(stream.stream().native);
  const DevicePatience patience(0.1);
  const auto found = verdict.value().read(stream.stream());
  emulation::release(stream.stream().native);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), Code::kTimedOut);
}

TEST(Waits, PinnedMemoryOutlivesACopyThatCameTooLate) {
  { const Buffer any = make_buffer(kPinned); }  // frees what is kept from before
  const std::size_t before = emulation::allocations();
  const cuda::OwnedStream stream = make_stream();
  const Buffer there = make_buffer(kDevice);
  {
    const Buffer here = make_buffer(kPinned);
    emulation::hold(stream.stream().native);
    const DevicePatience patience(0.05);
    ASSERT_TRUE(copy_bytes(there.bytes(), kDevice, here.bytes(), kPinned, stream.stream()).ok());
    EXPECT_EQ(cuda::synchronize(stream.stream()).code(), Code::kTimedOut);
  }
  EXPECT_EQ(emulation::allocations(), before + 2);
  emulation::release(stream.stream().native);
  ASSERT_TRUE(cuda::synchronize(stream.stream()).ok());
  { const Buffer next = make_buffer(kPinned); }  // frees what waited, too
  EXPECT_EQ(emulation::allocations(), before + 1);
}

cuda::OwnedStream make_stream_apart() {
  auto made = cuda::OwnedStream::create_apart(kDevice);
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

// A stream that this thread captures, as CUDA does unless it is told otherwise.
class GlobalCapture {
 public:
  explicit GlobalCapture(cuda::OwnedStream stream = make_stream_apart())
      : stream_(std::move(stream)) {
    EXPECT_EQ(cudaStreamBeginCapture(native(), cudaStreamCaptureModeGlobal), cudaSuccess);
  }
  // Whether nothing has spoiled it.
  bool ends_well() {
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(native(), &graph);
    if (graph != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    return ended == cudaSuccess;
  }

 private:
  cudaStream_t native() const { return cuda::native(stream_.stream()); }
  cuda::OwnedStream stream_;
};

TEST(Waits, WhatIsDoneBesideACaptureSpoilsNone) {
  GlobalCapture capture;
  std::thread([] {
    const cuda::OwnedStream stream = make_stream();
    const Buffer there = make_buffer(kDevice);
    const Buffer here = make_buffer(kPinned);
    EXPECT_TRUE(copy_bytes(there.bytes(), kDevice, here.bytes(), kPinned, stream.stream()).ok());
    EXPECT_TRUE(cuda::synchronize(stream.stream()).ok());
  }).join();
  EXPECT_TRUE(capture.ends_well());
}

// Another stream is captured from where it waits for the first one's event on, and must be waited
// for by the end.
TEST(Waits, StreamsJoinACaptureByEvents) {
  for (const bool joined : {true, false}) {
    const cuda::OwnedStream first = make_stream_apart();
    const cuda::OwnedStream second = make_stream_apart();
    const cudaStream_t here = cuda::native(first.stream());
    const cudaStream_t there = cuda::native(second.stream());
    const Buffer data = make_buffer(kDevice);
    cudaEvent_t fork = nullptr;
    cudaEvent_t join = nullptr;
    ASSERT_EQ(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(here, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(fork, here), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(there, fork, 0), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(data.bytes().data(), 7, 1, there), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(join, there), cudaSuccess);
    if (joined) {
      ASSERT_EQ(cudaStreamWaitEvent(here, join, 0), cudaSuccess);
    }
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(here, &graph),
              joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    EXPECT_EQ(graph != nullptr, joined);
    if (graph != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    EXPECT_EQ(cudaEventDestroy(fork), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(join), cudaSuccess);
  }
}

// The graph would wait for the host each time that it is launched.
TEST(Waits, NoGateClosesAStreamThatIsCaptured) {
  const cuda::OwnedStream stream = make_stream_apart();
  const cudaStream_t native = cuda::native(stream.stream());
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_THAT(StreamGate::close(stream.stream()).error(), fails(Code::kUnsupported, "captured"));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

// Memory is freed in the order of the default stream, which such a capture forbids: another time.
TEST(Waits, MemoryThatACaptureKeepsFromBeingFreedIsFreedWithOther) {
  const std::size_t before = emulation::allocations();
  {
    GlobalCapture capture(make_stream());
    { const Buffer freed = make_buffer(kDevice); }
    EXPECT_EQ(emulation::allocations(), before + 1);
    EXPECT_FALSE(capture.ends_well());
  }
  { const Buffer next = make_buffer(kDevice); }
  EXPECT_EQ(emulation::allocations(), before);
}

// As on a card, where whoever is not told forbids and is forbidden.
TEST(Waits, QuestionsOfOthersSpoilACaptureOnThePlayedDevice) {
  GlobalCapture capture;
  std::thread([] {
    cudaEvent_t event = nullptr;
    ASSERT_EQ(cudaEventCreateWithFlags(&event, 0), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  }).join();
  EXPECT_FALSE(capture.ends_well());
}

}  // namespace
}  // namespace gradwire
