// Elastic averaging, element by element: workers W_i and a centre pull at each other.
//
//   with rho (You et al.)            with alpha (Zhang et al.)
//   e_i = rho (W_i - C)              e_i = alpha (W_i - C)        from both as before the step
//   W_i <- W_i - lr (dW_i + e_i)     W_i <- W_i - lr dW_i - e_i
//   C   <- C + lr sum over i of e_i  C   <- C + sum over i of e_i
//
// While the learning rate stays they are the same, with alpha = lr rho. Under a schedule rho's pull
// follows the rate, and alpha's does not. What a worker loses by its e_i the centre wins: with
// dW = 0 the sum of all W_i and C stays. With p workers the centre's step is stable while
// alpha p <= 1.
// Source: Zhang, Choromanska, LeCun, "Deep learning with elastic averaging SGD", NeurIPS 2015,
// equations (3) and (4); You, Buluc, Demmel, "Scaling deep learning on GPU and Knights Landing
// clusters", SC 2017, equations (1) and (2).
#pragma once

#include <span>
#include <string>

#include "gradwire/status.h"

namespace gradwire {

// How strongly workers and centre pull at each other. One of the two is above 0, and finite.
struct Elasticity {
  double rho = 0;
  double alpha = 0;

  // What a distance is multiplied by to become a pull, and a pull where it is applied.
  float strength() const { return static_cast<float>(alpha > 0 ? alpha : rho); }
  float share(float lr) const { return alpha > 0 ? 1.0F : lr; }
};
// kInvalidArgument names what is out of range.
Status check_elasticity(const Elasticity& elasticity);

// "" or what to warn of: alpha workers (lr rho workers) above 1, where the centre overshoots the
// workers' mean.
std::string elastic_warning(double lr, const Elasticity& elasticity, int workers);

// pull = strength (w - centre).
void elastic_pull(std::span<const float> w, std::span<const float> centre,
                  const Elasticity& elasticity, std::span<float> pull);

// w <- w - lr (direction + pull), or w - (lr direction + pull).
void elastic_descend(std::span<float> w, std::span<const float> direction,
                     std::span<const float> pull, const Elasticity& elasticity, float lr);

// centre <- centre + share pulls, of one worker or summed over several.
void elastic_attract(std::span<float> centre, std::span<const float> pulls,
                     const Elasticity& elasticity, float lr);

}  // namespace gradwire
