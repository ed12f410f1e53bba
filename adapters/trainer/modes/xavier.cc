#include "adapters/trainer/modes/xavier.h"

#include <cmath>
#include <cstddef>

#include "base/hash.h"
#include "base/philox.h"

namespace gradwire {

void xavier_parameters(const ParameterTable& table, std::uint64_t seed, std::span<float> flat) {
  for (const ParameterInfo& info : table) {
    const auto count = static_cast<std::size_t>(info.shape.elems());
    const std::span<float> own = flat.subspan(static_cast<std::size_t>(info.offset), count);
    if (info.shape.rank < 2) {
      for (float& value : own) value = 0;
      continue;
    }
    // Of a kernel: every output position of a channel sees out channels x kernel places back.
    const std::int64_t kernel = info.shape.elems() / (info.shape.dim[0] * info.shape.dim[1]);
    const auto fans = static_cast<double>(info.fan_in + info.shape.dim[0] * kernel);
    const auto bound = static_cast<float>(std::sqrt(6.0 / fans));
    const RandomStream draws(seed, RandomUse::kInit, hash_name(info.name), kSharedRank, 0, 0);
    for (std::size_t i = 0; i < count; ++i) own[i] = bound * (2 * draws.uniform(i) - 1);
  }
}

}  // namespace gradwire
