#include "bench/codec_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "aggregate/plan/keys.h"
#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "bench/read_pass.h"
#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/legality.h"
#include "compress/threaded_format.h"

namespace gradwire::bench {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct StepSeconds {
  double encode = 0;
  double decode = 0;
  std::size_t payload_bytes = 0;
};

// One step of a job of one rank: its own payload is the sum, and all there is to gather.
Result<StepSeconds> step(Coder& coder, const Compressor& compressor, ConstTensorView gradient,
                         TensorView mean, std::vector<std::vector<std::byte>>& payloads,
                         std::uint64_t number) {
  StepSeconds seconds;
  const int rounds = compressor.traits().rounds;
  payloads.resize(static_cast<std::size_t>(rounds));
  for (int round = 0; round < rounds; ++round) {
    payloads[static_cast<std::size_t>(round)].resize(
        compressor.max_payload_bytes(gradient.shape(), gradient.dtype(), round));
  }
  const double start = seconds_now();
  GW_TRY(coder.begin(gradient, number, {}));
  double decode_from = start;
  for (int round = 0; round < rounds; ++round) {
    const ByteSpan room(payloads[static_cast<std::size_t>(round)]);
    GW_ASSIGN(const std::size_t count, coder.encode(round, room, {}));
    seconds.payload_bytes += count;
    decode_from = seconds_now();
    const std::array<ConstByteSpan, 1> received{room.first(count)};
    GW_TRY(coder.absorb(round, received, {}));
  }
  GW_TRY(coder.finish(mean, {}, {}));
  seconds.encode = decode_from - start;
  seconds.decode = seconds_now() - decode_from;
  return seconds;
}

double nmse(std::span<const float> x, std::span<const float> y) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(y[i]) - static_cast<double>(x[i]);
    error += d * d;
    size += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return size > 0 ? error / size : 0;
}

}  // namespace

Shape matrix_of(std::int64_t n) {
  auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
  while (rows > 1 && (rows * rows > n || n % rows != 0)) --rows;
  return Shape::matrix(rows, n / rows);
}

Result<CodecBench> CodecBench::create(const CodecBenchOptions& options) {
  if (options.elements < 1 || options.rounds < 1 || options.threads < 1) {
    return Status(
        Code::kInvalidArgument,
        format("codec bench: expected at least 1 element, round and thread (got %lld, %d, %d)",
               static_cast<long long>(options.elements), options.rounds, options.threads));
  }
  return CodecBench(options);
}

CodecBench::CodecBench(const CodecBenchOptions& options)
    : options_(options),
      workers_(std::make_unique<Workers>(options.threads)),
      shape_(matrix_of(options.elements)),
      gradient_(static_cast<std::size_t>(options.elements)),
      decoded_(gradient_.size()) {
  const RandomStream draws(options.seed, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < gradient_.size(); ++i) {
    gradient_[i] = static_cast<float>(draws.normal(i));
  }
}

double CodecBench::read_seconds() {
  const double start = seconds_now();
  sink_ += read_pass(gradient_);
  return seconds_now() - start;
}

Result<CodecRow> CodecBench::run(const Registry& registry, std::string_view spec) {
  GW_ASSIGN(const SpecChain chain, parse_spec(spec));
  GW_ASSIGN(const SplitSpec split, split_spec(chain));
  GW_ASSIGN(const auto compressor, registry.make(split.method));
  const Compressor::Placement where{.seed = options_.seed, .tensor = 1};
  GW_ASSIGN(const auto plain, open_on(workers_.get(), *compressor, shape_, where));
  const auto verdict = check_pair(*compressor, shape_, {.error_feedback = true});
  std::unique_ptr<Coder> with_feedback;
  if (verdict.has_value()) {
    GW_ASSIGN(auto inner, open_on(workers_.get(), *compressor, shape_, where));
    GW_ASSIGN(with_feedback, make_ef14(std::move(inner), shape_, where, verdict.value().scale));
  }
  const ConstTensorView gradient(reinterpret_cast<const std::byte*>(gradient_.data()), shape_,
                                 DType::kF32);
  const TensorView mean(reinterpret_cast<std::byte*>(decoded_.data()), shape_, DType::kF32);
  std::vector<std::vector<std::byte>> payloads;
  std::vector<double> read;
  std::vector<double> encode;
  std::vector<double> decode;
  std::vector<double> feedback;
  CodecRow row;
  for (int round = 0; round <= options_.rounds; ++round) {  // the first touches memory, untimed
    const auto number = static_cast<std::uint64_t>(round);
    read.push_back(read_seconds());
    if (with_feedback != nullptr) {
      GW_ASSIGN(const StepSeconds ef,
                step(*with_feedback, *compressor, gradient, mean, payloads, number));
      feedback.push_back(ef.encode + ef.decode);
    }
    read.push_back(read_seconds());
    GW_ASSIGN(const StepSeconds seconds,
              step(*plain, *compressor, gradient, mean, payloads, number));
    encode.push_back(seconds.encode);
    decode.push_back(seconds.decode);
    row.bits_per_element =
        8.0 * static_cast<double>(seconds.payload_bytes) / static_cast<double>(options_.elements);
    if (round > 0) continue;
    read.clear();
    encode.clear();
    decode.clear();
    feedback.clear();
  }
  const auto gbps = [this](double seconds) {
    return static_cast<double>(gradient_.size() * sizeof(float)) * 1e-9 / std::max(seconds, 1e-9);
  };
  row.spec = std::string(spec);
  row.canonical = compressor->spec();
  row.elements = options_.elements;
  row.threads = options_.threads;
  row.read_gbps = gbps(median(read));
  row.encode_gbps = gbps(median(encode));
  row.decode_gbps = gbps(median(decode));
  if (with_feedback != nullptr) row.encode_ef_gbps = gbps(median(feedback) - median(decode));
  row.nmse = nmse(gradient_, decoded_);
  return row;
}

}  // namespace gradwire::bench
