#include "adapters/trainer/modes/elastic.h"

#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "base/text.h"

namespace gradwire {

Status check_elasticity(const Elasticity& elasticity) {
  const auto [rho, alpha] = elasticity;
  if (rho != 0 && alpha != 0) {
    return {Code::kInvalidArgument,
            format("elastic averaging: rho %g and alpha %g (expected one of them)", rho, alpha)};
  }
  const double strength = alpha != 0 ? alpha : rho;
  if (strength > 0 && std::isfinite(strength)) return {};
  return {Code::kInvalidArgument,
          format("elastic averaging: %s %g (expected a finite number above 0)",
                 alpha != 0 ? "alpha" : "rho", strength)};
}

std::string elastic_warning(double lr, const Elasticity& elasticity, int workers) {
  const bool fixed = elasticity.alpha > 0;
  const double share = (fixed ? elasticity.alpha : lr * elasticity.rho) * workers;
  if (share <= 1) return "";
  return format(
      "elastic averaging: %s workers is %g (expected at most 1: beyond, the centre overshoots the "
      "workers' mean); a smaller %s helps",
      fixed ? "alpha" : "lr rho", share, fixed ? "--alpha" : "--rho or --lr");
}

void elastic_pull(std::span<const float> w, std::span<const float> centre,
                  const Elasticity& elasticity, std::span<float> pull) {
  GW_CHECK(w.size() == centre.size() && w.size() == pull.size());
  const float strength = elasticity.strength();
  for (std::size_t i = 0; i < w.size(); ++i) pull[i] = strength * (w[i] - centre[i]);
}

void elastic_descend(std::span<float> w, std::span<const float> direction,
                     std::span<const float> pull, const Elasticity& elasticity, float lr) {
  GW_CHECK(w.size() == direction.size() && w.size() == pull.size());
  if (elasticity.alpha > 0) {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= lr * direction[i] + pull[i];
  } else {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= lr * (direction[i] + pull[i]);
  }
}

void elastic_attract(std::span<float> centre, std::span<const float> pulls,
                     const Elasticity& elasticity, float lr) {
  GW_CHECK(centre.size() == pulls.size());
  const float share = elasticity.share(lr);
  for (std::size_t i = 0; i < centre.size(); ++i) centre[i] += share * pulls[i];
}

}  // namespace gradwire
