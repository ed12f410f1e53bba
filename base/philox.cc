#include "base/philox.h"

#include <cmath>
#include <numbers>

namespace gradwire {

double RandomStream::normal(std::uint64_t element) const {
  const double u = (static_cast<double>(word(2 * element)) + 1.0) * 0x1p-32;  // (0, 1]
  const double v = static_cast<double>(word(2 * element + 1)) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace gradwire
