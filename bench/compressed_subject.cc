// An aggregator's average of one matrix of uniform elements in [-1/2, 1/2). The mean replaces the
// gradient, so that later operations average what is already equal: as much work, and nothing
// overflows.
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "bench/bench_memory.h"
#include "bench/codec_bench.h"
#include "bench/collective_subjects.h"
#include "gradwire/aggregator.h"

namespace gradwire::bench {
namespace {

class CompressedSubject final : public Subject {
 public:
  static Result<std::unique_ptr<Subject>> create(Communicator& communicator,
                                                 const Registry& registry,
                                                 const CollectiveBenchOptions& options,
                                                 std::int64_t elems) {
    GW_ASSIGN(BenchStream stream, BenchStream::create(options));
    auto subject = std::make_unique<CompressedSubject>(communicator, std::move(stream));
    GW_ASSIGN(subject->gradient_, BenchMemory::create(communicator, elems, DType::kF32, options));
    subject->algorithm_ = options.algorithm;
    AggregatorOptions aggregator;
    GW_ASSIGN(aggregator.compressor, bare_spec(options.compressor));
    aggregator.algorithm = options.algorithm;
    GW_ASSIGN(subject->aggregator_, Aggregator::create(communicator, registry, aggregator));
    GW_TRY(subject->aggregator_->add("gradient", subject->gradient_.view(matrix_of(elems))));
    GW_TRY(subject->fill());
    return std::unique_ptr<Subject>(std::move(subject));
  }
  CompressedSubject(Communicator& communicator, BenchStream stream)
      : communicator_(communicator), stream_(std::move(stream)) {}

  std::uint64_t bytes_sent() const override { return aggregator_->stats().wire_bytes; }
  std::string algorithm() const override { return algorithm_; }
  CodecSeconds codec_seconds() const override {
    const AggregateStats stats = aggregator_->stats();
    return {stats.encode_seconds, stats.exchange_seconds, stats.decode_seconds};
  }
  double error_norm() const override { return error_norm_; }

  Status run() override {
    GW_TRY(aggregator_->ready(0, stream_.stream()));
    GW_TRY(aggregator_->finish(stream_.stream()));
    return wait_for(stream_.stream());
  }

  Result<std::int64_t> check() override {
    GW_TRY(fill());
    GW_ASSIGN(const std::vector<float> given, values());
    std::vector<double> exact(given.begin(), given.end());
    GW_ASSIGN(Work average, communicator_.all_reduce(view_of(std::span(exact)), ReduceOp::kMean));
    GW_TRY(average.wait());
    GW_TRY(run());
    GW_ASSIGN(const std::vector<float> own, values());
    note_error(own, exact);
    std::vector<float> first(own.begin(), own.end());
    GW_ASSIGN(Work work, communicator_.broadcast(view_of(std::span(first)), 0));
    GW_TRY(work.wait());
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const bool same = std::memcmp(&own[i], &first[i], sizeof(float)) == 0;
      wrong += same && std::isfinite(own[i]) ? 0 : 1;
    }
    return wrong;
  }

 private:
  Status fill() {
    const RandomStream draw(1, RandomUse::kTest, 0, communicator_.rank(), 0, 0);
    return write_with(gradient_.view(), stream_.stream(), [&](TensorView here) {
      const auto data = elements<float>(here);
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = draw.uniform(i) - 0.5f;
    });
  }

  Result<std::vector<float>> values() {
    GW_ASSIGN(const HostCopy copy, HostCopy::of(gradient_.view(), stream_.stream()));
    std::vector<float> values(copy.bytes().size() / sizeof(float));
    std::memcpy(values.data(), copy.bytes().data(), copy.bytes().size());
    return values;
  }

  void note_error(std::span<const float> seen, const std::vector<double>& exact) {
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double d = static_cast<double>(seen[i]) - exact[i];
      difference += d * d;
      size += exact[i] * exact[i];
    }
    error_norm_ = size > 0 ? std::sqrt(difference / size) : 0;
  }

  Communicator& communicator_;
  std::string algorithm_;
  BenchMemory gradient_;
  BenchStream stream_;  // goes before the memory
  std::unique_ptr<Aggregator> aggregator_;
  double error_norm_ = 0;
};

}  // namespace

Result<std::unique_ptr<Subject>> make_compressed_subject(Communicator& communicator,
                                                         const Registry& registry,
                                                         const CollectiveBenchOptions& options,
                                                         std::int64_t elems) {
  return CompressedSubject::create(communicator, registry, options, elems);
}

}  // namespace gradwire::bench
