#include "trainer/hooks.h"

#include "trainer/clipping.h"

namespace gradwire {

Result<double> GradientHook::clip_gradients(std::span<float> gradients, double most) {
  const double length = norm(gradients);
  clip_to(gradients, length, most);
  return length;
}

}  // namespace gradwire
