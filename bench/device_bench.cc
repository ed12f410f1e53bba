#include "bench/device_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "base/workers.h"
#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/legality.h"
#include "device/cuda/devices.h"
#include "device/cuda/memory_calls.h"
#include "device/cuda/stream.h"
#include "device/ops.h"

namespace gradwire::bench {
namespace {

constexpr Device kDevice{MemorySpace::kCuda, 0};
constexpr Stream kStream{kDevice, nullptr};
constexpr int kUntimed = 2;
constexpr std::int64_t kColumns = 4096;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Times what is enqueued on the stream.
class StageClock {
 public:
  static Result<StageClock> create() {
    GW_ASSIGN(cuda::Event from, cuda::Event::create_timed(kDevice));
    GW_ASSIGN(cuda::Event to, cuda::Event::create_timed(kDevice));
    return StageClock(std::move(from), std::move(to));
  }

  // Adds what `work` takes from an idle device on.
  template <typename F>
  Status add(StageTime& time, const F& work) {
    GW_TRY(cuda::synchronize(kStream));
    const double start = seconds_now();
    GW_TRY(from_.record(kStream));
    GW_TRY(work());
    GW_TRY(to_.record(kStream));
    GW_TRY(cuda::synchronize(kStream));
    time.host_seconds += seconds_now() - start;
    GW_ASSIGN(const double milliseconds, to_.milliseconds_since(from_));
    time.seconds += milliseconds * 1e-3;
    return {};
  }

 private:
  StageClock(cuda::Event from, cuda::Event to) : from_(std::move(from)), to_(std::move(to)) {}
  cuda::Event from_;
  cuda::Event to_;
};

// One rank's steps of a coder on the device, with their memory.
class DeviceSteps {
 public:
  static Result<DeviceSteps> open(std::unique_ptr<Compressor> compressor, const Shape& shape,
                                  bool feedback, double scale) {
    GW_ASSIGN(StageClock clock, StageClock::create());
    DeviceSteps steps(std::move(clock));
    const Compressor::Placement where{.device = kDevice, .tensor = 1};
    GW_ASSIGN(steps.coder_, compressor->open(shape, where));
    steps.moved_ = moved_step(*compressor, *steps.coder_, shape.elems());
    steps.moved_.feedback = feedback;
    if (feedback) {
      GW_ASSIGN(steps.coder_, make_ef14(std::move(steps.coder_), shape, where, scale));
    }
    for (int round = 0; round < compressor->traits().rounds; ++round) {
      const std::size_t most = compressor->max_payload_bytes(shape, DType::kF32, round);
      GW_ASSIGN(Buffer room, Buffer::allocate(most, kDevice));
      steps.rooms_.push_back(std::move(room));
    }
    steps.moved_.payloads.resize(steps.rooms_.size());
    steps.compressor_ = std::move(compressor);
    return steps;
  }

  // Adds a round of each stage.
  Status step(ConstTensorView gradient, TensorView mean, std::vector<StageTime>& encode,
              std::vector<StageTime>& decode) {
    StageTime encoding;
    StageTime decoding;
    for (std::size_t round = 0; round < rooms_.size(); ++round) {
      const int r = static_cast<int>(round);
      const ByteSpan room = rooms_[round].bytes();
      std::size_t count = 0;
      GW_TRY(clock_.add(encoding, [&]() -> Status {
        if (round == 0) GW_TRY(coder_->begin(gradient, number_++, kStream));
        GW_ASSIGN(count, coder_->encode(r, room, kStream));
        return {};
      }));
      const std::array<ConstByteSpan, 1> received{room.first(count)};
      GW_TRY(clock_.add(decoding, [&] { return coder_->absorb(r, received, kStream); }));
      moved_.payloads[round] = static_cast<double>(count);
      encoding.payload_bytes += moved_.payloads[round];
    }
    GW_TRY(clock_.add(decoding, [&] { return coder_->finish(mean, {}, kStream); }));
    const MovedBytes moved = moved_bytes(moved_);
    encoding.moved_bytes = moved.encode;
    decoding.moved_bytes = moved.decode;
    decoding.payload_bytes = encoding.payload_bytes;
    encode.push_back(encoding);
    decode.push_back(decoding);
    return {};
  }

 private:
  explicit DeviceSteps(StageClock clock) : clock_(std::move(clock)) {}

  StageClock clock_;
  std::unique_ptr<Compressor> compressor_;
  std::unique_ptr<Coder> coder_;
  MovedStep moved_;
  std::vector<Buffer> rooms_;
  std::uint64_t number_ = 0;
};

void draw_gradient(std::span<float> out) {
  constexpr std::size_t kPart = 1 << 20;
  const RandomStream draws(1, RandomUse::kTest, 0, 0, 0, 0);
  Workers workers(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)));
  workers.run((out.size() + kPart - 1) / kPart, [&](std::size_t part, int) {
    const std::size_t end = std::min(out.size(), (part + 1) * kPart);
    for (std::size_t i = part * kPart; i < end; ++i) out[i] = draws.uniform(i) - 0.5f;
  });
}

}  // namespace

bool is_refusal(const Status& status) {
  const bool refused =
      status.code() == Code::kUnsupported || status.code() == Code::kInvalidArgument;
  return refused && status.message().find("cudaError") == std::string_view::npos;
}

StageTime middle_of(std::vector<StageTime> rounds) {
  const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
  std::ranges::nth_element(rounds, middle, {}, &StageTime::seconds);
  return *middle;
}

Result<DeviceBench> DeviceBench::create(const DeviceBenchOptions& options) {
  if (options.elements < 1 || options.rounds < 1) {
    return Status(Code::kInvalidArgument,
                  format("device bench: expected at least 1 element and round (got %lld, %d)",
                         static_cast<long long>(options.elements), options.rounds));
  }
  GW_TRY(cuda::count_devices().error());
  DeviceBench bench(options);
  const auto bytes = static_cast<std::size_t>(options.elements) * sizeof(float);
  GW_ASSIGN(bench.gradient_, Buffer::allocate(bytes, kDevice));
  GW_ASSIGN(bench.mean_, Buffer::allocate(bytes, kDevice));
  std::vector<float> host(static_cast<std::size_t>(options.elements));
  draw_gradient(host);
  const TensorView view = view_of(std::span(host));
  GW_TRY(copy_bytes(view.bytes(), Device{}, bench.gradient_.bytes(), kDevice, kStream));
  GW_TRY(cuda::synchronize(kStream));
  return bench;
}

Shape DeviceBench::shape() const {
  const std::int64_t elems = options_.elements;
  return elems % kColumns == 0 ? Shape::matrix(elems / kColumns, kColumns) : Shape::vector(elems);
}

Status DeviceBench::warm_up() {
  const double end = seconds_now() + options_.warm_up_seconds;
  do {
    GW_TRY(copy_bytes(gradient_.bytes(), kDevice, mean_.bytes(), kDevice, kStream));
    GW_TRY(cuda::synchronize(kStream));
  } while (seconds_now() < end);
  return {};
}

Status DeviceBench::add_copies(std::vector<StageTime>& times) {
  GW_ASSIGN(StageClock clock, StageClock::create());
  for (int round = 0; round < options_.rounds + kUntimed; ++round) {
    StageTime time;
    time.moved_bytes = 2 * gradient_bytes();
    GW_TRY(clock.add(time, [&] {
      return copy_bytes(gradient_.bytes(), kDevice, mean_.bytes(), kDevice, kStream);
    }));
    if (round >= kUntimed) times.push_back(time);
  }
  return {};
}

Result<StageTime> DeviceBench::copy() {
  GW_TRY(warm_up());
  copies_.clear();
  GW_TRY(add_copies(copies_));
  return middle_of(copies_);
}

Result<CodedTimes> DeviceBench::run(const Registry& registry, const std::string& spec,
                                    bool feedback) {
  GW_ASSIGN(std::unique_ptr<Compressor> compressor, registry.make(spec));
  const Shape shape = this->shape();
  CodedTimes times;
  const auto verdict = check_pair(*compressor, shape, {.error_feedback = feedback});
  if (!verdict.has_value()) {
    times.refused = verdict.error().message();
    return times;
  }
  auto opened = DeviceSteps::open(std::move(compressor), shape, feedback, verdict.value().scale);
  if (!opened.has_value() && is_refusal(opened.error())) {
    times.refused = opened.error().message();
    return times;
  }
  GW_ASSIGN(DeviceSteps steps, std::move(opened));
  if (copies_.empty()) GW_TRY(copy().error());
  std::vector<StageTime> encode;
  std::vector<StageTime> decode;
  for (int round = 0; round < options_.rounds + kUntimed; ++round) {
    GW_TRY(steps.step(gradient_.tensor(shape, DType::kF32), mean_.tensor(shape, DType::kF32),
                      encode, decode));
    if (round >= kUntimed) continue;
    encode.clear();
    decode.clear();
  }
  std::vector<StageTime> copies = std::exchange(copies_, {});
  GW_TRY(add_copies(copies_));
  copies.insert(copies.end(), copies_.begin(), copies_.end());
  times.encode = middle_of(std::move(encode));
  times.decode = middle_of(std::move(decode));
  times.copy = middle_of(std::move(copies));
  return times;
}

}  // namespace gradwire::bench
