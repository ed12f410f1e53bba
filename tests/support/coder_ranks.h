// n ranks of one tensor's coders in one thread: the exchange that an aggregator would do, without
// communication.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "device/ops.h"
#include "gradwire/compressor.h"
#include "gradwire/registry.h"

namespace gradwire::testing {

// A registered method; null, and a failure, where there is none.
inline std::unique_ptr<Compressor> make(std::string_view spec) {
  auto made = Registry::builtin().make(spec);
  EXPECT_TRUE(made.has_value()) << spec << ": " << made.error().message();
  return made.has_value() ? std::move(made).value() : nullptr;
}

// Gaussian, the same for the same key.
template <typename T>
std::vector<T> normals(std::size_t n, std::uint64_t key) {
  const RandomStream stream(3, RandomUse::kTest, key, 0, 0, 0);
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(stream.normal(i));
  return x;
}

// What one step left behind.
template <typename T>
struct StepOutcome {
  Status status;                                           // the first error, or ok
  std::vector<std::vector<T>> mean;                        // by rank
  std::vector<std::vector<T>> own;                         // by rank
  std::vector<std::vector<std::vector<std::byte>>> bytes;  // payloads by round, by rank
};

template <typename T>
class CoderRanks {
 public:
  // Decorates a coder (error feedback).
  using Wrap = std::function<std::unique_ptr<Coder>(
      std::unique_ptr<Coder> inner, const Shape& shape, const Compressor::Placement& where)>;

  // Opens `size` coders of (seed, tensor).
  static Result<CoderRanks> open(const Compressor& compressor, const Shape& shape, int size,
                                 std::uint64_t seed = 1, std::uint64_t tensor = 77,
                                 const Wrap& wrap = nullptr) {
    CoderRanks ranks(compressor, shape, size);
    for (int rank = 0; rank < size; ++rank) {
      const Compressor::Placement where{DTypeOf<T>::kValue, {}, rank, size, seed, tensor};
      GW_ASSIGN(auto coder, compressor.open(shape, where));
      ranks.coders_.push_back(wrap ? wrap(std::move(coder), shape, where) : std::move(coder));
    }
    return ranks;
  }

  int size() const { return static_cast<int>(coders_.size()); }
  Coder& coder(int rank) { return *coders_[static_cast<std::size_t>(rank)]; }

  // One step: every rank's gradient in, every rank's mean and own out.
  StepOutcome<T> step(const std::vector<std::vector<T>>& grads, std::uint64_t number) {
    StepOutcome<T> outcome;
    outcome.mean.assign(coders_.size(), std::vector<T>(grads[0].size()));
    outcome.status = run(grads, outcome.mean, number, outcome);
    return outcome;
  }
  // The same with each mean in its gradient's memory.
  StepOutcome<T> step_in_place(std::vector<std::vector<T>> grads, std::uint64_t number) {
    StepOutcome<T> outcome;
    outcome.status = run(grads, grads, number, outcome);
    outcome.mean = std::move(grads);
    return outcome;
  }

 private:
  CoderRanks(const Compressor& compressor, const Shape& shape, int size)
      : compressor_(&compressor), shape_(shape), traits_(compressor.traits()) {
    coders_.reserve(static_cast<std::size_t>(size));
  }

  ConstTensorView view(const std::vector<T>& data) const {
    return {reinterpret_cast<const std::byte*>(data.data()), shape_, DTypeOf<T>::kValue};
  }
  TensorView view(std::vector<T>& data) const {
    return {reinterpret_cast<std::byte*>(data.data()), shape_, DTypeOf<T>::kValue};
  }

  Status run(const std::vector<std::vector<T>>& grads, std::vector<std::vector<T>>& mean,
             std::uint64_t number, StepOutcome<T>& outcome) {
    const Stream stream;
    for (std::size_t r = 0; r < coders_.size(); ++r) {
      GW_TRY(coders_[r]->begin(view(grads[r]), number, stream));
    }
    std::vector<std::vector<std::byte>> sums;  // lent until finish(): sized once, never moved
    sums.resize(static_cast<std::size_t>(traits_.rounds));
    outcome.bytes.resize(static_cast<std::size_t>(traits_.rounds));
    for (int round = 0; round < traits_.rounds; ++round) {
      GW_TRY(exchange(round, outcome.bytes[static_cast<std::size_t>(round)],
                      sums[static_cast<std::size_t>(round)]));
    }
    outcome.own.assign(coders_.size(), std::vector<T>(grads[0].size()));
    for (std::size_t r = 0; r < coders_.size(); ++r) {
      GW_TRY(coders_[r]->finish(view(mean[r]), view(outcome.own[r]), stream));
    }
    return {};
  }

  Status exchange(int round, std::vector<std::vector<std::byte>>& payloads,
                  std::vector<std::byte>& sum) {
    const Stream stream;
    const RoundKind kind = compressor_->round_kind(round, DTypeOf<T>::kValue, size());
    const std::size_t most =
        compressor_->max_payload_bytes(shape_, DTypeOf<T>::kValue, round, size());
    for (auto& coder : coders_) {
      payloads.emplace_back(most);
      GW_ASSIGN(const std::size_t count, coder->encode(round, payloads.back(), stream));
      if (count > most) return {Code::kInternal, "encode() wrote more than max_payload_bytes()"};
      if (kind.fixed && count != most) return {Code::kInternal, "a fixed payload is shorter"};
      payloads.back().resize(count);
    }
    std::vector<ConstByteSpan> received(payloads.begin(), payloads.end());
    if (kind.reduces()) {
      GW_TRY(reduce_all(kind, payloads, sum));
      received.assign(1, ConstByteSpan(sum));
    }
    for (auto& coder : coders_) GW_TRY(coder->absorb(round, received, stream));
    return {};
  }

  // A left fold in rank order, in the payload's type.
  static Status reduce_all(const RoundKind& kind,
                           const std::vector<std::vector<std::byte>>& payloads,
                           std::vector<std::byte>& sum) {
    const DType type = kind.payload;
    const ReduceOp op = kind.exchange == Exchange::kAllReduceMax ? ReduceOp::kMax : ReduceOp::kSum;
    sum = payloads[0];
    if (sum.size() % size_of(type) != 0) return {Code::kInternal, "half an element in a payload"};
    const Shape shape = Shape::vector(static_cast<std::int64_t>(sum.size() / size_of(type)));
    for (std::size_t r = 1; r < payloads.size(); ++r) {
      if (payloads[r].size() != sum.size()) return {Code::kInternal, "summed payloads differ"};
      GW_TRY(reduce(op, ConstTensorView(payloads[r].data(), shape, type),
                    TensorView(sum.data(), shape, type), {}));
    }
    return {};
  }

  const Compressor* compressor_;
  Shape shape_;
  Traits traits_;
  std::vector<std::unique_ptr<Coder>> coders_;
};

// Step 0 of as many ranks as there are gradients, of one dimension.
template <typename T>
StepOutcome<T> step_of(std::string_view spec, const std::vector<std::vector<T>>& grads) {
  const auto method = make(spec);
  const Shape shape = Shape::vector(static_cast<std::int64_t>(grads[0].size()));
  auto ranks = CoderRanks<T>::open(*method, shape, static_cast<int>(grads.size()));
  return ranks.value().step(grads, 0);
}

}  // namespace gradwire::testing
