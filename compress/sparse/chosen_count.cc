#include "compress/sparse/chosen_count.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace gradwire {

Status check_index_range(std::string_view method, const Shape& shape, std::int64_t most) {
  if (shape.elems() <= most) return {};
  return {Code::kUnsupported,
          std::string(method) + ": " + to_string(shape) +
              format(" has more elements than 32-bit indices can address (%lld)",
                     static_cast<long long>(most))};
}

std::size_t share_of(double ratio, std::int64_t elems) {
  if (elems == 0) return 0;
  const double exact = ratio * static_cast<double>(elems);
  const auto part = static_cast<std::int64_t>(std::ceil(exact * (1 - 1e-12)));
  return static_cast<std::size_t>(std::clamp<std::int64_t>(part, 1, elems));
}

std::vector<SpecKey> ChosenCount::keys() {
  return {{"ratio", "", "share of the elements, above 0, at most 1"},
          {"k", "", "number of elements instead of ratio, at least 1"}};
}

Result<ChosenCount> ChosenCount::read(const SpecReader& reader, std::string_view method) {
  if (reader.has("ratio") == reader.has("k")) {
    return Status(Code::kInvalidArgument,
                  "compressor '" + std::string(method) +
                      "': exactly one of the keys 'ratio' and 'k' must be given");
  }
  GW_ASSIGN(const double ratio, reader.number("ratio", 0, 0, 1));
  GW_ASSIGN(const std::int64_t k, reader.integer("k", 0, 1, kMostSparseElems));
  return ChosenCount(ratio, k);
}

std::size_t ChosenCount::of(std::int64_t elems) const {
  return k_ > 0 ? static_cast<std::size_t>(std::min(k_, elems)) : share_of(ratio_, elems);
}

double ChosenCount::share(std::int64_t elems) const {
  return elems == 0 ? 1.0 : static_cast<double>(of(elems)) / static_cast<double>(elems);
}

std::string ChosenCount::text() const {
  return k_ > 0 ? format("k=%lld", static_cast<long long>(k_)) : "ratio=" + shortest(ratio_);
}

}  // namespace gradwire
