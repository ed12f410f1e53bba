// How the host waits for a device: never without end, and beside what others capture.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "compress/cuda/verdict.h"
#include "device/copy_lane.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/host_copy.h"
#include "device/ops.h"
#include "device/patience.h"
#include "device/stream_gate.h"
#include "gradwire/buffer.h"
#include "tests/emulation/default_stream.h"
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

cuda::OwnedStream make_stream_apart() {
  auto made = cuda::OwnedStream::create_apart(kDevice);
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

// Its matrices come with the stream.
TEST(Waits, AProductIsMadeWhenItsStreamComesToIt) {
  const cuda::OwnedStream stream = make_stream_apart();
  const Buffer here = make_buffer(kPinned), out = make_buffer(kPinned);
  const Buffer factors = make_buffer(kDevice), products = make_buffer(kDevice);
  const auto matrix = [](const Buffer& buffer) {
    return buffer.tensor(Shape::matrix(2, 2), DType::kF32);
  };
  auto* const values = reinterpret_cast<float*>(here.bytes().data());
  std::iota(values, values + 4, 1.0F);
  emulation::hold(stream.stream().native);
  EXPECT_TRUE(copy_bytes(here.bytes(), kPinned, factors.bytes(), kDevice, stream.stream()).ok());
  EXPECT_TRUE(gemm(matrix(factors), matrix(factors), matrix(products), {}, stream.stream()).ok());
  EXPECT_TRUE(copy_bytes(products.bytes(), kDevice, out.bytes(), kPinned, stream.stream()).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  emulation::release(stream.stream().native);
  EXPECT_TRUE(cuda::synchronize(stream.stream()).ok());
  const auto* const seen = reinterpret_cast<const float*>(out.bytes().data());
  EXPECT_THAT(std::vector<float>(seen, seen + 4), testing::ElementsAre(7, 10, 15, 22));
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

// Two gates that are closed one after the other have words of their own while the first one's
// stream has not come past.
TEST(Waits, AGateThatWasOpenedOpensForAStreamThatIsLate) {
  const cuda::OwnedStream late = make_stream_apart();
  const cuda::OwnedStream other = make_stream_apart();
  emulation::hold(late.stream().native);
  {
    const auto gate = StreamGate::close(late.stream());
    ASSERT_TRUE(gate.has_value());
    gate.value()->open();
  }
  auto closed = StreamGate::close(other.stream());
  ASSERT_TRUE(closed.has_value());
  emulation::release(late.stream().native);
  {
    const DevicePatience patience(5);
    EXPECT_TRUE(cuda::synchronize(late.stream()).ok());
  }
  {
    const DevicePatience patience(0.05);
    EXPECT_THAT(cuda::synchronize(other.stream()), fails(Code::kTimedOut));
  }
  closed.value().reset();
  EXPECT_TRUE(cuda::synchronize(other.stream()).ok());
}

// Streams apart from the default one do nothing while it lives.
class HeldApart {
 public:
  HeldApart() { emulation::hold_apart(true); }
  ~HeldApart() { emulation::hold_apart(false); }
};

class ShortMemory {
 public:
  explicit ShortMemory(std::size_t more) { emulation::limit_memory(more); }
  ~ShortMemory() { emulation::limit_memory(emulation::kEndless); }
};

// Of device memory, when its streams, and all others, have run what they were given.
std::byte first_byte(const cuda::Scratch& memory, const Stream& stream) {
  static_cast<void>(emulation::allocations());
  const Buffer here = make_buffer(kPinned);
  EXPECT_TRUE(copy_bytes({memory.as<std::byte>(), here.bytes().size()}, kDevice, here.bytes(),
                         kPinned, stream)
                  .ok());
  EXPECT_TRUE(cuda::synchronize(stream).ok());
  return here.bytes()[0];
}

void write_zeros(const cuda::Scratch& memory, const Buffer& zeros, const Stream& stream) {
  EXPECT_TRUE(copy_bytes(zeros.bytes(), kPinned, {memory.as<std::byte>(), zeros.bytes().size()},
                         kDevice, stream)
                  .ok());
  EXPECT_TRUE(cuda::synchronize(stream).ok());
}

TEST(Waits, MemoryOfAnOperationIsItsStreams) {
  const cuda::OwnedStream stream = make_stream();
  const Buffer zeros = make_buffer(kPinned);
  std::optional<HeldApart> others(std::in_place);
  const auto memory = cuda::Scratch::allocate(64, stream.stream());
  ASSERT_TRUE(memory.has_value());
  write_zeros(memory.value(), zeros, stream.stream());
  others.reset();
  EXPECT_EQ(first_byte(memory.value(), stream.stream()), std::byte{0});
}

// A device whose memory is out until its default stream has come to the end of something long and,
// behind it, frees 64 bytes. Then ended() is true.
class MemoryThatComes {
 public:
  MemoryThatComes() {
    // Asking for the count has streams run what they have: frees of earlier tests, for instance,
    // which else would come in between.
    static_cast<void>(emulation::allocations());
    const Buffer all = make_buffer(kDevice);
    limit_.emplace(0);
    emulation::run_on_default_of(0, [this] { end_.get_future().wait(); });
  }
  ~MemoryThatComes() {
    if (thread_.joinable()) thread_.join();
  }
  MemoryThatComes(const MemoryThatComes&) = delete;
  MemoryThatComes& operator=(const MemoryThatComes&) = delete;
  void end_soon() {
    thread_ = std::thread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ended_ = true;
      end_.set_value();
    });
  }
  bool ended() const { return ended_; }

 private:
  std::optional<ShortMemory> limit_;
  std::promise<void> end_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

TEST(Waits, MemoryThatIsStillToBeFreedIsWaitedFor) {
  const cuda::OwnedStream stream = make_stream();
  const Buffer zeros = make_buffer(kPinned);
  MemoryThatComes comes;
  std::optional<HeldApart> others(std::in_place);
  comes.end_soon();
  const auto memory = cuda::Scratch::allocate(64, stream.stream());
  EXPECT_TRUE(comes.ended());
  ASSERT_TRUE(memory.has_value());
  write_zeros(memory.value(), zeros, stream.stream());
  others.reset();
  EXPECT_EQ(first_byte(memory.value(), stream.stream()), std::byte{0});
}

// A wait would spoil the capture.
TEST(Waits, MemoryThatIsShortIsNotWaitedForInACapture) {
  const cuda::OwnedStream stream = make_stream_apart();
  const cudaStream_t native = cuda::native(stream.stream());
  MemoryThatComes comes;
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeRelaxed), cudaSuccess);
  comes.end_soon();
  EXPECT_THAT(cuda::Scratch::allocate(64, stream.stream()).error(), fails(Code::kOutOfMemory));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

// It is freed where it is zeroed, which comes to it.
TEST(Waits, MemoryThatIsNotZeroedInTimeIsFreed) {
  const std::size_t before = emulation::allocations();
  const HeldApart others;
  const DevicePatience patience(0.05);
  EXPECT_THAT(Buffer::allocate(64, kDevice).error(), fails(Code::kTimedOut));
  EXPECT_EQ(emulation::allocations(), before);
}

// Copies from and to memory that is not pinned may wait for as long as a stream takes.
TEST(Waits, ADeviceThatIsLateEndsACopyToTheHost) {
  const cuda::OwnedStream stream = make_stream_apart();
  const Buffer there = make_buffer(kDevice);
  const TensorView tensor(there.bytes().data(), Shape::vector(64), DType::kU8, kDevice);
  std::vector<std::byte> ones(64, std::byte{1});
  emulation::hold(stream.stream().native);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    emulation::release(stream.stream().native);
  });
  emulation::wait_in_copies(true);
  {
    const DevicePatience patience(0.05);
    EXPECT_THAT(HostCopy::of(tensor, stream.stream()).error(), fails(Code::kTimedOut));
    EXPECT_THAT(write_from_host(ones, tensor, stream.stream()), fails(Code::kTimedOut));
  }
  emulation::wait_in_copies(false);
  later.join();
  EXPECT_TRUE(cuda::synchronize(stream.stream()).ok());
  const auto copy = HostCopy::of(tensor, stream.stream());
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy.value().bytes()[0], std::byte{0});
}

// Neither the memory of the host, nor that of the device, is used behind the end of the call.
TEST(Waits, CopiesToTheHostAndBackAreThereWhenTheyEnd) {
  const Buffer there = make_buffer(kDevice);
  const TensorView tensor(there.bytes().data(), Shape::vector(64), DType::kU8, kDevice);
  for (int time = 1; time <= 32; ++time) {
    const cuda::OwnedStream stream = make_stream_apart();
    {
      const std::vector<std::byte> from(64, static_cast<std::byte>(time));
      ASSERT_TRUE(write_from_host(from, tensor, stream.stream()).ok());
    }
    const cuda::OwnedStream other = make_stream_apart();
    const auto copy = HostCopy::of(tensor, other.stream());
    ASSERT_TRUE(copy.has_value());
    EXPECT_EQ(copy.value().bytes()[0], static_cast<std::byte>(time));
    ASSERT_TRUE(cuda::synchronize(stream.stream()).ok());
  }
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

TEST(Waits, PinnedMemoryOutlivesWhatALaneHadNoTimeFor) {
  { const Buffer any = make_buffer(kPinned); }  // frees what is kept from before
  const std::size_t before = emulation::allocations();
  auto lane = CopyLane::create(kDevice);
  ASSERT_TRUE(lane.has_value());
  const Stream stream = lane.value()->to_device();
  const Buffer there = make_buffer(kDevice);
  {
    const Buffer here = make_buffer(kPinned);
    emulation::hold(stream.native);
    ASSERT_TRUE(copy_bytes(here.bytes(), kPinned, there.bytes(), kDevice, stream).ok());
    EXPECT_THAT(lane.value()->finish(0.05), fails(Code::kTimedOut, "CUDA device 0"));
  }
  EXPECT_EQ(emulation::allocations(), before + 2);
  emulation::release(stream.native);
  ASSERT_TRUE(lane.value()->finish(20).ok());
  { const Buffer next = make_buffer(kPinned); }  // frees what waited, too
  EXPECT_EQ(emulation::allocations(), before + 1);
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
