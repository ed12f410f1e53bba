#include "bench/collective_subjects.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "bench/codec_bench.h"
#include "gradwire/aggregator.h"
#include "gradwire/buffer.h"

namespace gradwire::bench {
namespace {

// Zeroed fp32 elements in the memory that was asked for.
class Floats {
 public:
  static Result<Floats> create(std::int64_t elems, bool shared) {
    Floats floats;
    floats.elems_ = elems;
    const auto count = static_cast<std::size_t>(elems);
    if (shared) {
      GW_ASSIGN(floats.shared_, Buffer::allocate(count * sizeof(float)));
    } else {
      floats.private_.assign(count, 0.0f);
    }
    return floats;
  }
  TensorView view(Shape shape) {
    return shared_.bytes().empty()
               ? TensorView(reinterpret_cast<std::byte*>(private_.data()), shape, DType::kF32)
               : shared_.tensor(shape, DType::kF32);
  }
  TensorView view() { return view(Shape::vector(elems_)); }
  std::span<float> data() { return elements<float>(view()); }

 private:
  std::int64_t elems_ = 0;
  Buffer shared_;
  std::vector<float> private_;
};

// Whole numbers below 2^10, so that sums over up to 2^14 ranks are exact in fp32.
float exact_value(int rank, std::int64_t i) {
  return static_cast<float>(
      mix64(static_cast<std::uint64_t>(i) * 8191 + static_cast<std::uint64_t>(rank)) & 1023);
}

class DenseSubject final : public Subject {
 public:
  static Result<std::unique_ptr<Subject>> create(Communicator& communicator, Collective collective,
                                                 const CollectiveBenchOptions& options,
                                                 std::int64_t elems) {
    auto subject = std::make_unique<DenseSubject>(communicator, collective);
    const bool reduction =
        collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
    GW_ASSIGN(const std::string_view name,
              resolve_algorithm(collective, reduction ? options.algorithm : "auto"));
    subject->algorithm_ = name;
    subject->elems_ = elems;
    subject->row_ = elems / communicator.size();
    const bool in_is_row = collective == Collective::kAllGather;
    const bool out_is_row = collective == Collective::kReduceScatter;
    GW_ASSIGN(subject->in_,
              Floats::create(in_is_row ? subject->row_ : elems, options.shared_buffers));
    GW_ASSIGN(subject->out_,
              Floats::create(out_is_row ? subject->row_ : elems, options.shared_buffers));
    return std::unique_ptr<Subject>(std::move(subject));
  }
  DenseSubject(Communicator& communicator, Collective collective)
      : communicator_(communicator), collective_(collective) {}

  std::uint64_t bytes_sent() const override { return communicator_.bytes_sent(); }
  std::string algorithm() const override { return std::string(algorithm_); }

  // On zeros, which stay zeros however often they are summed in place.
  Status run() override {
    GW_ASSIGN(Work work, start());
    return work.wait();
  }

  Result<std::int64_t> check() override {
    const int p = communicator_.size();
    const int me = communicator_.rank();
    const bool in_place =
        collective_ == Collective::kAllReduce || collective_ == Collective::kBroadcast;
    const auto source = in_place ? out_.data() : in_.data();
    for (std::size_t i = 0; i < source.size(); ++i) {
      source[i] = exact_value(me, static_cast<std::int64_t>(i));
    }
    GW_TRY(run());
    std::int64_t wrong = 0;
    const auto result = out_.data();
    for (std::size_t i = 0; i < result.size(); ++i) {
      wrong += result[i] == right_answer(p, me, static_cast<std::int64_t>(i)) ? 0 : 1;
    }
    std::ranges::fill(source, 0.0f);
    return wrong;
  }

 private:
  Result<Work> start() {
    const OpOptions options{.algorithm = algorithm_, .deadline = {}, .stream = {}};
    switch (collective_) {
      case Collective::kAllReduce:
        return communicator_.all_reduce(out_.view(), ReduceOp::kSum, options);
      case Collective::kReduceScatter:
        return communicator_.reduce_scatter(in_.view(), out_.view(), ReduceOp::kSum, options);
      case Collective::kAllGather:
        return communicator_.all_gather(in_.view(), out_.view(), options);
      case Collective::kAllToAll: return communicator_.all_to_all(in_.view(), out_.view(), options);
      case Collective::kBroadcast: return communicator_.broadcast(out_.view(), 0, options);
      default: break;
    }
    return Status(Code::kInternal, "no such benchmark");
  }

  float right_answer(int p, int me, std::int64_t i) const {
    const auto sum = [&](std::int64_t at) {
      float total = 0;
      for (int r = 0; r < p; ++r) total += exact_value(r, at);
      return total;
    };
    switch (collective_) {
      case Collective::kAllReduce: return sum(i);
      case Collective::kReduceScatter: return sum(me * row_ + i);
      case Collective::kAllGather: return exact_value(static_cast<int>(i / row_), i % row_);
      case Collective::kAllToAll:
        return exact_value(static_cast<int>(i / row_), me * row_ + i % row_);
      default: break;
    }
    return exact_value(0, i);
  }

  Communicator& communicator_;
  Collective collective_;
  std::string_view algorithm_;
  std::int64_t elems_ = 0;
  std::int64_t row_ = 0;
  Floats in_;
  Floats out_;
};

// The average of one matrix of uniform elements in [-1/2, 1/2). The mean replaces the gradient, so
// that later operations average what is already equal: as much work, and nothing overflows.
class CompressedSubject final : public Subject {
 public:
  static Result<std::unique_ptr<Subject>> create(Communicator& communicator,
                                                 const Registry& registry,
                                                 const CollectiveBenchOptions& options,
                                                 std::int64_t elems) {
    auto subject = std::make_unique<CompressedSubject>(communicator);
    GW_ASSIGN(subject->gradient_, Floats::create(elems, options.shared_buffers));
    subject->algorithm_ = options.algorithm;
    AggregatorOptions aggregator;
    GW_ASSIGN(aggregator.compressor, bare_spec(options.compressor));
    aggregator.algorithm = options.algorithm;
    GW_ASSIGN(subject->aggregator_, Aggregator::create(communicator, registry, aggregator));
    GW_TRY(subject->aggregator_->add("gradient", subject->gradient_.view(matrix_of(elems))));
    subject->fill();
    return std::unique_ptr<Subject>(std::move(subject));
  }
  explicit CompressedSubject(Communicator& communicator) : communicator_(communicator) {}

  std::uint64_t bytes_sent() const override { return aggregator_->stats().wire_bytes; }
  std::string algorithm() const override { return algorithm_; }

  Status run() override {
    GW_TRY(aggregator_->ready(0));
    return aggregator_->finish();
  }

  Result<std::int64_t> check() override {
    fill();
    GW_TRY(run());
    const auto own = gradient_.data();
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
  void fill() {
    const RandomStream draw(1, RandomUse::kTest, 0, communicator_.rank(), 0, 0);
    const auto data = gradient_.data();
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = draw.uniform(i) - 0.5f;
  }

  Communicator& communicator_;
  std::string algorithm_;
  Floats gradient_;
  std::unique_ptr<Aggregator> aggregator_;
};

}  // namespace

Result<std::unique_ptr<Subject>> make_dense_subject(Communicator& communicator,
                                                    Collective collective,
                                                    const CollectiveBenchOptions& options,
                                                    std::int64_t elems) {
  return DenseSubject::create(communicator, collective, options, elems);
}

Result<std::unique_ptr<Subject>> make_compressed_subject(Communicator& communicator,
                                                         const Registry& registry,
                                                         const CollectiveBenchOptions& options,
                                                         std::int64_t elems) {
  return CompressedSubject::create(communicator, registry, options, elems);
}

}  // namespace gradwire::bench
