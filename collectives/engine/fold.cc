#include "collectives/engine/fold.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/text.h"
#include "device/ops.h"

namespace gradwire {
namespace {

constexpr std::int64_t kBlock = 2048;  // elements that are widened at a time: they stay in L1

bool is_narrow(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

TensorView wide_view(std::array<float, kBlock>& block, std::int64_t count) {
  return {reinterpret_cast<std::byte*>(block.data()), Shape::vector(count), DType::kF32};
}

// Elements [begin, begin + count) of all.
Status fold_block(ReduceOp op, std::span<const ConstTensorView> sources, TensorView acc,
                  std::optional<double> factor) {
  std::array<float, kBlock> sums;
  std::array<float, kBlock> values;
  const TensorView sum = wide_view(sums, acc.elems());
  const TensorView value = wide_view(values, acc.elems());
  GW_TRY(cast(acc, sum, {}));
  for (const ConstTensorView& source : sources) {
    GW_TRY(cast(source, value, {}));
    GW_TRY(reduce(op, value, sum, {}));
  }
  if (factor) GW_TRY(scale(sum, *factor, {}));
  return cast(sum, acc, {});
}

}  // namespace

Status fold(ReduceOp op, std::span<const ConstTensorView> sources, TensorView acc,
            std::optional<double> factor) {
  const std::size_t roundings = sources.size() + (factor ? 1 : 0);
  if (!is_narrow(acc.dtype()) || roundings < 2) {
    for (const ConstTensorView& source : sources) GW_TRY(reduce(op, source, acc, {}));
    return factor ? scale(acc, *factor, {}) : Status();
  }
  for (const ConstTensorView& source : sources) {
    if (source.elems() != acc.elems() || source.dtype() != acc.dtype()) {
      return {Code::kInvalidArgument, format("fold: a source of %lld %s (expected %lld %s)",
                                             static_cast<long long>(source.elems()),
                                             std::string(to_string(source.dtype())).c_str(),
                                             static_cast<long long>(acc.elems()),
                                             std::string(to_string(acc.dtype())).c_str())};
    }
  }
  std::vector<ConstTensorView> parts(sources.size());
  for (std::int64_t begin = 0; begin < acc.elems(); begin += kBlock) {
    const std::int64_t count = std::min(kBlock, acc.elems() - begin);
    std::ranges::transform(sources, parts.begin(),
                           [&](const auto& source) { return source.slice(begin, count); });
    GW_TRY(fold_block(op, parts, acc.slice(begin, count), factor));
  }
  return {};
}

}  // namespace gradwire
