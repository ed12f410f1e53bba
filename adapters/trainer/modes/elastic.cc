#include "adapters/trainer/modes/elastic.h"

#include <cstddef>

#include "base/check.h"

namespace gradwire {

void elastic_pull(std::span<const float> w, std::span<const float> centre, float rho,
                  std::span<float> pull) {
  GW_CHECK(w.size() == centre.size() && w.size() == pull.size());
  for (std::size_t i = 0; i < w.size(); ++i) pull[i] = rho * (w[i] - centre[i]);
}

void elastic_descend(std::span<float> w, std::span<const float> direction,
                     std::span<const float> pull, float lr) {
  GW_CHECK(w.size() == direction.size() && w.size() == pull.size());
  for (std::size_t i = 0; i < w.size(); ++i) w[i] -= lr * (direction[i] + pull[i]);
}

void elastic_attract(std::span<float> centre, std::span<const float> pulls, float lr) {
  GW_CHECK(centre.size() == pulls.size());
  for (std::size_t i = 0; i < centre.size(); ++i) centre[i] += lr * pulls[i];
}

}  // namespace gradwire
