// Elastic averaging's two updates and the initial parameters of the original algorithm.
#include "adapters/trainer/modes/elastic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "adapters/trainer/modes/sync_easgd.h"
#include "tests/adapters/modes/toy_source.h"

namespace gradwire::testing::elastic_test {
namespace {

// P5: W <- W - lr (dW + rho (W - C)), one element after the other.
TEST(Elastic, P5_WorkerUpdateIsEquationOneBitForBit) {
  const float lr = 0.07F;
  const float rho = 1.3F;
  std::vector<float> w = toy_start();
  const std::vector<float> before = w;
  std::vector<float> centre(w.size());
  std::vector<float> gradient(w.size());
  std::vector<float> pull(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    centre[i] = toy_draw(1, 1, i);
    gradient[i] = toy_draw(2, 2, i);
  }
  elastic_pull(w, centre, {.rho = static_cast<double>(rho)}, pull);
  elastic_descend(w, gradient, pull, {.rho = static_cast<double>(rho)}, lr);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const float step = gradient[i] + rho * (before[i] - centre[i]);
    EXPECT_EQ(w[i], before[i] - lr * step) << i;
  }
}

TEST(Elastic, ByHand) {
  std::vector<float> w{2, -1};
  std::vector<float> centre{1, 1};
  std::vector<float> pull(2);
  const Elasticity rho{.rho = 0.5};
  elastic_pull(w, centre, rho, pull);
  EXPECT_EQ(pull, (std::vector<float>{0.5F, -1}));
  elastic_descend(w, std::vector<float>{1, 0}, pull, rho, 0.5F);
  EXPECT_EQ(w, (std::vector<float>{1.25F, -0.5F}));
  elastic_attract(centre, pull, rho, 0.5F);
  EXPECT_EQ(centre, (std::vector<float>{1.25F, 0.5F}));
}

// Zhang et al., equations (3) and (4): x_i <- x_i - lr g - alpha (x_i - c), c <- c + alpha (x_i -
// c).
TEST(Elastic, ByHandWithAlpha) {
  std::vector<float> w{2, -1};
  std::vector<float> centre{1, 1};
  std::vector<float> pull(2);
  const Elasticity alpha{.alpha = 0.5};
  elastic_pull(w, centre, alpha, pull);
  EXPECT_EQ(pull, (std::vector<float>{0.5F, -1}));
  elastic_descend(w, std::vector<float>{1, 0}, pull, alpha, 0.25F);
  EXPECT_EQ(w, (std::vector<float>{1.25F, 0}));
  elastic_attract(centre, pull, alpha, 0.25F);
  EXPECT_EQ(centre, (std::vector<float>{1.5F, 0}));
}

TEST(Elastic, TakesOneOfTheTwo) {
  EXPECT_TRUE(check_elasticity({.rho = 2}).ok());
  EXPECT_TRUE(check_elasticity({.alpha = 0.3}).ok());
  for (const Elasticity& bad :
       {Elasticity{}, Elasticity{.rho = 1, .alpha = 1}, Elasticity{.alpha = -0.5},
        Elasticity{.rho = std::numeric_limits<double>::infinity()}}) {
    EXPECT_EQ(check_elasticity(bad).code(), Code::kInvalidArgument);
  }
}

TEST(Elastic, P6_WarnsWhereTheCentreOvershoots) {
  EXPECT_EQ(elastic_warning(0.1, {.rho = 2.5}, 4), "");
  EXPECT_NE(elastic_warning(0.1, {.rho = 2.6}, 4).find("lr rho workers is 1.04"),
            std::string::npos);
  EXPECT_EQ(elastic_warning(0.1, {.alpha = 0.25}, 4), "");
  EXPECT_NE(elastic_warning(0.1, {.alpha = 0.26}, 4).find("alpha workers is 1.04"),
            std::string::npos);
}

TEST(Xavier, HasTheBoundOfItsFansAndZeroBiases) {
  std::vector<float> flat(kToyElems, 9.0F);
  toy_xavier(5, flat);
  const double bound = std::sqrt(6.0 / (32 + 40));
  double squares = 0;
  for (std::size_t i = 56; i < 1336; ++i) {
    EXPECT_LE(std::abs(flat[i]), bound);
    squares += static_cast<double>(flat[i]) * flat[i];
  }
  // Of 1280 draws with variance bound^2 / 3; a mean of squares strays by 2.5 % (one deviation).
  EXPECT_NEAR(squares / 1280 / (bound * bound / 3), 1, 0.1);
  for (std::size_t i = 48; i < 56; ++i) EXPECT_EQ(flat[i], 0);
  std::vector<float> again(kToyElems);
  toy_xavier(5, again);
  EXPECT_EQ(flat, again);
  toy_xavier(6, again);
  EXPECT_NE(flat, again);
}

}  // namespace
}  // namespace gradwire::testing::elastic_test
