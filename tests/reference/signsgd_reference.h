// Slow oracles for signsgd, element by element from the definition.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradwire::reference {

// mean |v| * sign(v) per `bucket` elements (0: all), sign(0) = +1, in long double.
template <typename T>
std::vector<long double> scaled_sign(const std::vector<T>& v, std::size_t bucket) {
  if (bucket == 0) bucket = v.size();
  std::vector<long double> out(v.size());
  for (std::size_t begin = 0; begin < v.size(); begin += bucket) {
    const std::size_t end = begin + bucket < v.size() ? begin + bucket : v.size();
    long double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += std::fabs(static_cast<long double>(v[i]));
    const long double scale = sum / static_cast<long double>(end - begin);
    for (std::size_t i = begin; i < end; ++i) out[i] = v[i] < 0 ? -scale : scale;
  }
  return out;
}

// sign of the sum over ranks of sign(v), sign(0) = +1, 0 on a tie.
template <typename T>
std::vector<T> majority(const std::vector<std::vector<T>>& by_rank) {
  std::vector<T> out(by_rank[0].size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    int sum = 0;
    for (const auto& v : by_rank) sum += v[i] < 0 ? -1 : 1;
    out[i] = static_cast<T>(sum > 0 ? 1 : sum < 0 ? -1 : 0);
  }
  return out;
}

}  // namespace gradwire::reference
