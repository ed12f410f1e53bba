#include "trainer/sgd.h"

#include <cstddef>

#include "base/check.h"

namespace gradwire {

void add_momentum(std::span<float> m, std::span<const float> g, float momentum) {
  GW_CHECK(m.size() == g.size());
  for (std::size_t i = 0; i < m.size(); ++i) m[i] = momentum * m[i] + g[i];
}

void descend(std::span<float> x, std::span<const float> d, float lr) {
  GW_CHECK(x.size() == d.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] -= lr * d[i];
}

void descend_with_momentum(std::span<float> x, std::span<float> m, std::span<const float> g,
                           float lr, float momentum) {
  GW_CHECK(x.size() == g.size() && m.size() == g.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float direction = momentum * m[i] + g[i];
    m[i] = direction;
    x[i] -= lr * direction;
  }
}

}  // namespace gradwire
