// What coders with kernels take on a CUDA device, beside a copy on the same device:
//   gpu_bench [--elements N] [--rounds R] [SPEC...]
// Prints JSON lines. Time is that of the host around work that it waits for, the median of R rounds
// after two that do not count. `moved_bytes` are those that any implementation has to move once:
// a copy reads and writes; encode reads the gradient and writes the payload, with error feedback it
// also reads a residual and writes one; decode reads the payload and writes the gradient's size. A
// method of several rounds reads the gradient, or what error feedback makes of it, in each.
// Gradients are matrices of 4096 columns where N allows it. `share` is moved bytes a second over
// those of the copy. Exit status 77: no device.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "compress/error_feedback/ef14.h"
#include "device/cuda/memory_calls.h"
#include "device/ops.h"
#include "gradwire/buffer.h"
#include "gradwire/registry.h"

namespace gradwire::bench {
namespace {

constexpr Device kDevice{MemorySpace::kCuda, 0};
constexpr Stream kStream{kDevice, nullptr};
constexpr int kUntimed = 2;
constexpr std::int64_t kColumns = 4096;

struct GpuBenchOptions {
  std::int64_t elements = 64 << 20;  // fp32
  int rounds = 20;
  std::vector<std::string> specs = {"none",
                                    "lossless",
                                    "cast:fp16",
                                    "cast:bf16",
                                    "fp8",
                                    "mx:e4m3",
                                    "natural",
                                    "natural:bits=8",
                                    "signsgd",
                                    "onebit",
                                    "signum",
                                    "terngrad",
                                    "terngrad:shared=false",
                                    "global_qsgd:bits=4",
                                    "thc",
                                    "minmax:bits=2,spikes=1",
                                    "absmax:bits=4,transform=hadamard",
                                    "dgc:ratio=0.001",
                                    "cltk:ratio=0.01",
                                    "block_sparse",
                                    "minmax:bits=4",
                                    "absmax:bits=8",
                                    "absmax:bits=4",
                                    "qsgd:bits=8",
                                    "qsgd:bits=4",
                                    "qsgd:bits=2",
                                    "topk:ratio=0.01",
                                    "topk:ratio=0.1",
                                    "topk:ratio=0.04,index=bitmap",
                                    "threshold:tau=0.495",
                                    "randomk:ratio=0.01",
                                    "powersgd:rank=1",
                                    "powersgd:rank=4",
                                    "powersgd:rank=8",
                                    "acpsgd:rank=4"};
};

// Seconds until the device has done what `work` enqueues.
template <typename F>
Result<double> seconds_of(const F& work) {
  GW_TRY(cuda::synchronize(kStream));
  const auto start = std::chrono::steady_clock::now();
  GW_TRY(work());
  GW_TRY(cuda::synchronize(kStream));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void print(const std::string& what, const GpuBenchOptions& options, double seconds,
           double moved_bytes, double copy_rate) {
  const double rate = moved_bytes / std::max(seconds, 1e-9);
  const double gradient = static_cast<double>(options.elements) * 4 / std::max(seconds, 1e-9);
  std::printf(
      "{%s, \"elements\": %lld, \"seconds\": %.9f, \"gradient_gbps\": %.3f, "
      "\"moved_bytes\": %.0f, \"moved_gbps\": %.3f, \"share\": %.4f}\n",
      what.c_str(), static_cast<long long>(options.elements), seconds, gradient * 1e-9, moved_bytes,
      rate * 1e-9, copy_rate > 0 ? rate / copy_rate : 1.0);
  std::fflush(stdout);
}

// One rank's steps of a coder on the device, with their memory.
class DeviceSteps {
 public:
  static Result<DeviceSteps> open(const std::string& spec, Shape shape, bool feedback) {
    DeviceSteps steps;
    GW_ASSIGN(steps.compressor_, Registry::builtin().make(spec));
    const Compressor::Placement where{.device = kDevice, .tensor = 1};
    GW_ASSIGN(steps.coder_, steps.compressor_->open(shape, where));
    if (feedback) {
      GW_ASSIGN(steps.coder_, make_ef14(std::move(steps.coder_), shape, where));
    }
    for (int round = 0; round < steps.compressor_->traits().rounds; ++round) {
      GW_ASSIGN(Buffer room,
                Buffer::allocate(steps.compressor_->max_payload_bytes(shape, DType::kF32, round),
                                 kDevice));
      steps.rooms_.push_back(std::move(room));
    }
    return steps;
  }

  double rounds() const { return static_cast<double>(rooms_.size()); }

  // Payload bytes of the step. Its times are added to `encode` and `decode`.
  Result<std::size_t> step(ConstTensorView gradient, TensorView mean, std::vector<double>& encode,
                           std::vector<double>& decode) {
    std::size_t bytes = 0;
    double encoding = 0;
    double decoding = 0;
    for (std::size_t round = 0; round < rooms_.size(); ++round) {
      const int r = static_cast<int>(round);
      const ByteSpan room = rooms_[round].bytes();
      std::size_t count = 0;
      GW_ASSIGN(const double packed, seconds_of([&]() -> Status {
                  if (round == 0) GW_TRY(coder_->begin(gradient, number_++, kStream));
                  GW_ASSIGN(count, coder_->encode(r, room, kStream));
                  return {};
                }));
      const std::array<ConstByteSpan, 1> received{room.first(count)};
      GW_ASSIGN(const double absorbed,
                seconds_of([&] { return coder_->absorb(r, received, kStream); }));
      encoding += packed;
      decoding += absorbed;
      bytes += count;
    }
    GW_ASSIGN(const double finished, seconds_of([&] { return coder_->finish(mean, {}, kStream); }));
    encode.push_back(encoding);
    decode.push_back(decoding + finished);
    return bytes;
  }

 private:
  std::unique_ptr<Compressor> compressor_;
  std::unique_ptr<Coder> coder_;
  std::vector<Buffer> rooms_;
  std::uint64_t number_ = 0;
};

class GpuBench {
 public:
  static Result<GpuBench> create(const GpuBenchOptions& options) {
    GpuBench bench(options);
    const auto bytes = static_cast<std::size_t>(options.elements) * 4;
    GW_ASSIGN(bench.gradient_, Buffer::allocate(bytes, kDevice));
    GW_ASSIGN(bench.mean_, Buffer::allocate(bytes, kDevice));
    std::vector<float> host(static_cast<std::size_t>(options.elements));
    const RandomStream draws(1, RandomUse::kTest, 0, 0, 0, 0);
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = draws.uniform(i) - 0.5f;
    const TensorView view = view_of(std::span(host));
    GW_TRY(copy_bytes(view.bytes(), Device{}, bench.gradient_.bytes(), kDevice, kStream));
    GW_TRY(cuda::synchronize(kStream));
    return bench;
  }

  Status copy() {
    std::vector<double> seconds;
    for (int round = 0; round < options_.rounds + kUntimed; ++round) {
      GW_ASSIGN(const double one, seconds_of([&] {
                  return copy_bytes(gradient_.bytes(), kDevice, mean_.bytes(), kDevice, kStream);
                }));
      if (round >= kUntimed) seconds.push_back(one);
    }
    const double moved = 2 * gradient_bytes();
    copy_rate_ = moved / std::max(median(seconds), 1e-9);
    print("\"bench\": \"copy\"", options_, median(seconds), moved, copy_rate_);
    return {};
  }

  // With and without error feedback; what a method refuses is a line that says so.
  Status run(const std::string& spec) {
    for (const bool feedback : {false, true}) {
      const std::string name = format("\"bench\": \"codec\", \"spec\": \"%s\", \"feedback\": %s",
                                      spec.c_str(), feedback ? "true" : "false");
      const Status done = run(spec, feedback, name);
      const Code code = done.code();
      if (code != Code::kUnsupported && code != Code::kInvalidArgument) GW_TRY(done);
      if (!done.ok()) {
        std::printf("{%s, \"refused\": \"%s\"}\n", name.c_str(),
                    std::string(done.message()).c_str());
      }
    }
    return {};
  }

 private:
  explicit GpuBench(const GpuBenchOptions& options) : options_(options) {}
  double gradient_bytes() const { return static_cast<double>(options_.elements) * 4; }

  Status run(const std::string& spec, bool feedback, const std::string& name) {
    const Shape shape = options_.elements % kColumns == 0
                            ? Shape::matrix(options_.elements / kColumns, kColumns)
                            : Shape::vector(options_.elements);
    GW_ASSIGN(DeviceSteps steps, DeviceSteps::open(spec, shape, feedback));
    std::vector<double> encode;
    std::vector<double> decode;
    std::size_t payload = 0;
    for (int round = 0; round < options_.rounds + kUntimed; ++round) {
      GW_ASSIGN(payload, steps.step(gradient_.tensor(shape, DType::kF32),
                                    mean_.tensor(shape, DType::kF32), encode, decode));
      if (round >= kUntimed) continue;
      encode.clear();
      decode.clear();
    }
    const auto wire = static_cast<double>(payload);
    const double residuals = feedback ? 2 * gradient_bytes() : 0;
    print(name + ", \"stage\": \"encode\"", options_, median(encode),
          steps.rounds() * gradient_bytes() + wire + residuals, copy_rate_);
    print(name + ", \"stage\": \"decode\"", options_, median(decode), wire + gradient_bytes(),
          copy_rate_);
    return {};
  }

  GpuBenchOptions options_;
  Buffer gradient_;
  Buffer mean_;
  double copy_rate_ = 0;
};

Result<GpuBenchOptions> parse(int argc, char** argv) {
  GpuBenchOptions options;
  std::vector<std::string> specs;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word != "--elements" && word != "--rounds") {
      specs.push_back(word);
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    const auto number = to_int(value);
    if (!number || *number < 1 || *number > (std::int64_t{1} << 32)) {
      return Status(Code::kInvalidArgument,
                    word + " '" + value + "' (a number from 1 to 2^32 wanted)");
    }
    if (word == "--elements") options.elements = *number;
    if (word == "--rounds") options.rounds = static_cast<int>(*number);
  }
  if (!specs.empty()) options.specs = specs;
  return options;
}

Status run(int argc, char** argv) {
  GW_ASSIGN(const GpuBenchOptions options, parse(argc, argv));
  GW_ASSIGN(GpuBench bench, GpuBench::create(options));
  GW_TRY(bench.copy());
  for (const std::string& spec : options.specs) GW_TRY(bench.run(spec));
  return {};
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  const auto memory = gradwire::Buffer::allocate(1, gradwire::bench::kDevice);
  if (!memory.has_value() && memory.error().code() == gradwire::Code::kUnsupported) {
    std::fprintf(stderr, "gpu_bench: skipped: %s\n", std::string(memory.error().message()).c_str());
    return 77;
  }
  const gradwire::Status status = gradwire::bench::run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_bench: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
