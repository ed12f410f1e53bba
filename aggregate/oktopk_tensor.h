// One tensor of a bucket whose sums oktopk_exchange.cc chooses from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "aggregate/chosen_pairs.h"
#include "aggregate/exchange.h"
#include "aggregate/shared_selection.h"
#include "base/hash.h"
#include "base/text.h"
#include "compress/error_feedback/feedback.h"

namespace gradwire {

// Counts of pairs and of sums travel as 32 bits with a sign.
inline constexpr std::int64_t kMostOkTopkElems = (std::int64_t{1} << 31) - 1;

template <typename T>
struct OkTopkTensor {
  const Parameter* parameter = nullptr;
  std::int64_t begin = 0;  // of its elements among the bucket's
  std::int64_t end = 0;
  ChosenPairs<T>* pairs = nullptr;  // inside `coder`
  std::unique_ptr<Coder> coder;     // with error feedback
  // Of this step.
  bool full = false;
  std::size_t slot = 0;  // among those that are not full
  SharedSelection selection;
  std::int64_t room = 0;            // at the edge of the selection, for this rank
  std::vector<std::uint32_t> kept;  // indices in the tensor, and their sums
  std::vector<T> sums;              // or of a full one all sums

  std::int64_t elems() const { return end - begin; }
  Status named(const Status& status) const {
    if (status.ok()) return status;
    return status.with_context("parameter '" + parameter->name + "'");
  }
};

// `begin`: of its elements among the bucket's. Errors as of the method's open().
template <typename T>
Result<OkTopkTensor<T>> open_oktopk_tensor(const ExchangeContext& context,
                                           const Parameter& parameter, std::int64_t begin) {
  const Shape& shape = parameter.grad.shape();
  const Compressor::Placement where{.dtype = parameter.grad.dtype(),
                                    .device = parameter.grad.device(),
                                    .rank = context.communicator.rank(),
                                    .size = context.communicator.size(),
                                    .seed = parameter.seed,
                                    .tensor = hash_name(parameter.name)};
  OkTopkTensor<T> tensor;
  tensor.parameter = &parameter;
  tensor.begin = begin;
  tensor.end = begin + shape.elems();
  if (tensor.end > kMostOkTopkElems) {
    return Status(
        Code::kUnsupported,
        format("combine=oktopk: %lld elements in a bucket (expected at most %lld, the reach of its "
               "counts); write combine=gather",
               static_cast<long long>(tensor.end), static_cast<long long>(kMostOkTopkElems)));
  }
  GW_ASSIGN(auto pairs, ChosenPairs<T>::open(*parameter.compressor, shape, where));
  tensor.pairs = pairs.get();
  GW_ASSIGN(tensor.coder,
            make_feedback(std::move(pairs), shape, where, parameter.feedback, parameter.scale));
  return tensor;
}

}  // namespace gradwire
