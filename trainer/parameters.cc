#include "trainer/parameters.h"

#include <cmath>

#include "base/check.h"
#include "base/hash.h"
#include "base/philox.h"

namespace gradwire {

std::int64_t parameter_elems(const ParameterTable& table) {
  return table.empty() ? 0 : table.back().offset + table.back().shape.elems();
}

std::vector<NamedTensor> named_tensors(const ParameterTable& table, std::span<float> flat) {
  GW_CHECK(static_cast<std::int64_t>(flat.size()) == parameter_elems(table));
  std::vector<NamedTensor> tensors;
  tensors.reserve(table.size());
  for (const ParameterInfo& info : table) {
    auto* data = reinterpret_cast<std::byte*>(flat.data() + info.offset);
    tensors.push_back({info.name, TensorView(data, info.shape, DType::kF32)});
  }
  return tensors;
}

template <typename T>
void init_parameters(const ParameterTable& table, std::uint64_t seed, std::span<T> flat) {
  GW_CHECK(static_cast<std::int64_t>(flat.size()) == parameter_elems(table));
  for (const ParameterInfo& info : table) {
    const RandomStream draws(seed, RandomUse::kInit, hash_name(info.name), kSharedRank, 0, 0);
    const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(info.fan_in)));
    const auto count = static_cast<std::uint64_t>(info.shape.elems());
    for (std::uint64_t i = 0; i < count; ++i) {
      // Rounded in float also for T = double: both start from the same point.
      flat[static_cast<std::size_t>(info.offset) + i] =
          static_cast<T>((2.0f * draws.uniform(i) - 1.0f) * bound);
    }
  }
}

template void init_parameters<float>(const ParameterTable&, std::uint64_t, std::span<float>);
template void init_parameters<double>(const ParameterTable&, std::uint64_t, std::span<double>);

}  // namespace gradwire
