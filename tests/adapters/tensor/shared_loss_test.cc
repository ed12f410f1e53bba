// The loss of outputs whose classes ranks divide, against the loss of all of them.
#include "trainer/layers/parallel/output_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/adapters/tensor/tensor_ranks.h"

namespace gradwire::testing::shared_loss_test {
namespace {

// M16: vocabularies that the ranks do not divide, large and equal logits among them; one maximum
// and one sum, of two numbers a row.
TEST(SharedLoss, M16_AnyVocabulary) {
  constexpr std::int64_t kRows = 7;
  for (const std::int64_t classes : {5, 13, 101, 257}) {
    std::vector<float> logits = draws<float>(kRows * classes, 11);
    for (float& logit : logits) logit *= 8;
    logits[2] = 300;
    logits[static_cast<std::size_t>(classes) + 1] = logits[static_cast<std::size_t>(classes) + 3];
    std::vector<std::uint32_t> labels;
    for (std::int64_t r = 0; r < kRows; ++r) {
      labels.push_back(static_cast<std::uint32_t>(r * 37 % classes));
    }
    std::vector<float> whole(logits.size());
    const double loss = cross_entropy<float>(logits, labels, whole);
    for (const int p : {2, 3, 4}) {
      on_tensor_ranks(p, [&](TensorRank& at) {
        const Range here = even_part(classes, p, at.rank());
        OutputLoss<float> shared(Loss::kCrossEntropy, ClassShare{here, classes}, &at.peers, kRows);
        const std::vector<float> own = columns_of(logits, classes, here);
        std::vector<float> doutputs(own.size(), 777);
        EXPECT_NEAR(shared.mean(own, labels, doutputs), loss, 1e-6 * loss);
        EXPECT_EQ(at.peers.exchanges(), 2);
        EXPECT_LE(distance(doutputs, columns_of(whole, classes, here)), 1e-6);
        EXPECT_EQ(shared.count_correct(own, labels), count_correct<float>(logits, labels));
      });
    }
  }
}

// A row that is no number says class 0, as it does on one rank.
TEST(SharedLoss, ADivergedRowSaysClass0) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  on_tensor_ranks(2, [&](TensorRank& at) {
    OutputLoss<float> shared(Loss::kCrossEntropy, ClassShare{even_part(4, 2, at.rank()), 4},
                             &at.peers, 2);
    const std::vector<float> own(4, nan);
    EXPECT_EQ(shared.count_correct(own, std::vector<std::uint32_t>{0, 2}), 1);
    EXPECT_TRUE(std::isnan(shared.mean(own, std::vector<std::uint32_t>{0, 2}, {})));
  });
}

}  // namespace
}  // namespace gradwire::testing::shared_loss_test
