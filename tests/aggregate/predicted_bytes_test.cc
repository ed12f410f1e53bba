// Bytes of a step by hand, and what is said where they are more than without compression.
#include "aggregate/plan/predicted_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gradwire/registry.h"
#include "tests/support/names.h"

namespace gradwire::predicted_bytes_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A parameter of 64 x 64 that goes that way.
Parameter parameter(const std::string& spec, Path path) {
  Parameter one;
  one.name = "w";
  static std::byte nowhere{};  // only shapes are asked for
  one.grad = TensorView(&nowhere, Shape::matrix(64, 64), DType::kF32);
  one.path = path;
  one.compressor = std::move(Registry::builtin().make(spec)).value();
  return one;
}

PredictedBytes predict(const std::string& spec, Path path, int size, int rank = 0,
                       AggregateForm form = AggregateForm::kAllReduce) {
  const Parameter one = parameter(spec, path);
  return predict_bytes(std::span(&one, 1), rank, size, form);
}

TEST(PredictedBytes, OfGatheredPayloadsTheOthersGetAll) {
  // topk: 41 pairs of 8 bytes.
  EXPECT_EQ(predict("topk:ratio=0.01", Path::kGather, 4).most, 3u * 41 * 8);
  EXPECT_TRUE(predict("topk:ratio=0.01", Path::kGather, 4).exact);
  // lossless: at most ceil(4096/512) + 4 * 4096 bytes, and how many.
  const PredictedBytes lossless = predict("lossless", Path::kGather, 3);
  EXPECT_EQ(lossless.most, 2u * (8 + 16384 + 16));
  EXPECT_FALSE(lossless.exact);
  EXPECT_EQ(lossless.spec, "lossless");
}

TEST(PredictedBytes, OfSumsARing) {
  // cast: 2 bytes an element, 2 * 3/4 of them.
  EXPECT_EQ(predict("cast:bf16", Path::kSum, 4).most, 2u * 4096 * 3 / 4 * 2);
  // Levels of 8 bits: sums of 300 times 254 take 17 bits, a word each; and a norm for every 512.
  const PredictedBytes many = predict("global_qsgd:bits=8", Path::kSum, 300);
  EXPECT_EQ(predict("none", Path::kDense, 300).most,
            4u * static_cast<unsigned>(ring_elems_sent(4096, 0, 300)));
  EXPECT_GT(many.most, predict("none", Path::kDense, 300).most);
  EXPECT_EQ(many.spec, "global_qsgd:bits=8");
  // Of 4 ranks 10 bits: three to a word, 1366 words, and 8 norms.
  EXPECT_EQ(predict("global_qsgd:bits=8", Path::kSum, 4).most,
            4u * static_cast<unsigned>(ring_elems_sent(1366, 0, 4) + ring_elems_sent(8, 0, 4)));
}

// Codes as wide as their sum fill a word alone where that takes 17 bits, and the maxima come on
// top: of thc 15 from 4370 ranks on, of terngrad 2 from 32768 on.
TEST(PredictedBytes, CodesOfVeryManyRanksAreMoreThanUncompressed) {
  struct Case {
    const char* spec;
    int ranks;
  };
  for (const Case& one : {Case{"thc:grid=15", 4370}, {"terngrad", 32768}}) {
    const PredictedBytes many = predict(one.spec, Path::kSum, one.ranks);
    EXPECT_GT(many.most, many.dense) << one.spec;
    EXPECT_EQ(many.spec, one.spec);
    const PredictedBytes fewer = predict(one.spec, Path::kSum, one.ranks - 1);
    EXPECT_LT(fewer.most, fewer.dense) << one.spec;
    EXPECT_EQ(fewer.spec, "");
  }
}

TEST(PredictedBytes, OfShardsBothHalves) {
  // Four shards of 1024: two norms and 512 bytes each; three to others, and the own one to three.
  EXPECT_EQ(predict("qsgd:bits=4", Path::kSra, 4).most, 6u * 520);
  EXPECT_EQ(predict("qsgd:bits=4", Path::kSra, 4, 1, AggregateForm::kReduceScatter).most, 3u * 520);
  EXPECT_EQ(predict("qsgd:bits=4", Path::kSra, 4, 1, AggregateForm::kAllGather).most, 3u * 520);
  EXPECT_EQ(predict("qsgd:bits=4", Path::kSra, 4).spec, "");
}

// Tensors of one element in pieces for 2 ranks: each is the first rank's, which gathers three where
// one tensor of three would have it send two.
TEST(PredictedBytes, UncompressedIsToldTensorByTensor) {
  std::vector<Parameter> tensors;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back(parameter("none", Path::kDense));
    tensors.back().grad = TensorView(tensors.back().grad.data(), Shape::vector(1), DType::kF32);
  }
  const PredictedBytes predicted = predict_bytes(tensors, 0, 2, AggregateForm::kAllGather);
  EXPECT_EQ(predicted.most, 3u * 4);
  EXPECT_EQ(predicted.dense, 3u * 4);
  EXPECT_EQ(predict("topk:ratio=0.01", Path::kGather, 4).dense, 2u * 3 * 1024 * 4);
}

TEST(PredictedBytes, TheTextHasAllThreeNumbers) {
  const std::string text =
      more_than_dense("*=lossless", predict("lossless", Path::kGather, 3), 28000, 21848);
  EXPECT_THAT(text, tells("*=lossless", "28000", "at most 32816", "21848", "3 ranks"));
  EXPECT_THAT(more_than_dense("topk:ratio=0.9", predict("topk:ratio=0.9", Path::kGather, 3), 9, 8),
              Not(HasSubstr("at most")));
}

}  // namespace
}  // namespace gradwire::predicted_bytes_test
