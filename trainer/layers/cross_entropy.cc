#include "trainer/layers/cross_entropy.h"

#include <algorithm>
#include <cmath>

namespace gradwire {

template <typename T>
double cross_entropy(std::span<const T> logits, std::span<const std::uint32_t> labels,
                     std::span<T> dlogits) {
  const std::size_t rows = labels.size();
  const std::size_t classes = logits.size() / rows;
  double total = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<const T> row = logits.subspan(r * classes, classes);
    const double top = static_cast<double>(*std::max_element(row.begin(), row.end()));
    double sum = 0;
    for (const T logit : row) sum += std::exp(static_cast<double>(logit) - top);
    total += std::log(sum) + top - static_cast<double>(row[labels[r]]);
    if (dlogits.empty()) continue;
    for (std::size_t c = 0; c < classes; ++c) {
      const double probability = std::exp(static_cast<double>(row[c]) - top) / sum;
      const double target = c == labels[r] ? 1 : 0;
      dlogits[r * classes + c] = static_cast<T>((probability - target) / static_cast<double>(rows));
    }
  }
  return total / static_cast<double>(rows);
}

template <typename T>
std::int64_t count_correct(std::span<const T> logits, std::span<const std::uint32_t> labels) {
  const std::size_t classes = labels.empty() ? 0 : logits.size() / labels.size();
  std::int64_t correct = 0;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const std::span<const T> row = logits.subspan(r * classes, classes);
    if (std::max_element(row.begin(), row.end()) - row.begin() == labels[r]) ++correct;
  }
  return correct;
}

template double cross_entropy<float>(std::span<const float>, std::span<const std::uint32_t>,
                                     std::span<float>);
template double cross_entropy<double>(std::span<const double>, std::span<const std::uint32_t>,
                                      std::span<double>);
template std::int64_t count_correct<float>(std::span<const float>, std::span<const std::uint32_t>);
template std::int64_t count_correct<double>(std::span<const double>,
                                            std::span<const std::uint32_t>);

}  // namespace gradwire
