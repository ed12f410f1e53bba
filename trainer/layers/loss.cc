#include "trainer/layers/loss.h"

#include <cstddef>

namespace gradwire {

template <typename T>
double squared_error(std::span<const T> outputs, std::span<const std::uint32_t> labels,
                     std::span<T> doutputs) {
  const std::size_t rows = labels.size();
  const std::size_t classes = outputs.size() / rows;
  double total = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const double target = labels[i / classes] == i % classes ? 1 : 0;
    const double off = static_cast<double>(outputs[i]) - target;
    total += off * off / 2;
    if (!doutputs.empty()) doutputs[i] = static_cast<T>(off / static_cast<double>(rows));
  }
  return total / static_cast<double>(rows);
}

template double squared_error<float>(std::span<const float>, std::span<const std::uint32_t>,
                                     std::span<float>);
template double squared_error<double>(std::span<const double>, std::span<const std::uint32_t>,
                                      std::span<double>);

}  // namespace gradwire
