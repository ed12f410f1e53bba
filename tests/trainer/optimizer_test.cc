// Schedule, momentum and initialisation, by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/fails.h"
#include "trainer/models.h"
#include "trainer/optimizers/lr_schedule.h"
#include "trainer/parameters.h"
#include "trainer/sgd.h"

namespace gradwire::optimizer_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::ElementsAre;

TEST(LrSchedule, ConstantAndStep) {
  EXPECT_EQ(LrSchedule::parse("constant").value().at(0.05, 99, 100), 0.05);
  const LrSchedule step = LrSchedule::parse("step:0.6:0.1").value();
  EXPECT_EQ(step.at(0.05, 1403, 2340), 0.05);
  EXPECT_EQ(step.at(0.05, 1404, 2340), 0.05 * 0.1);
  EXPECT_EQ(step.at(0.05, 2339, 2340), 0.05 * 0.1);
  // 0.7 * 10 is 7 although 0.7 is not exact; 0.25 of 6 steps is 1.5: from step 2 on.
  EXPECT_EQ(LrSchedule::parse("step:0.7:0.5").value().at(1, 7, 10), 0.5);
  EXPECT_EQ(LrSchedule::parse("step:0.7:0.5").value().at(1, 6, 10), 1);
  EXPECT_EQ(LrSchedule::parse("step:0.25:0.5").value().at(1, 1, 6), 1);
  EXPECT_EQ(LrSchedule::parse("step:0.25:0.5").value().at(1, 2, 6), 0.5);
  EXPECT_EQ(LrSchedule::parse("step:0:0.5").value().at(1, 0, 6), 0.5);
  EXPECT_EQ(step.text(), "step:0.6:0.1");
  EXPECT_EQ(LrSchedule{}.text(), "constant");
}

TEST(LrSchedule, WarmupRisesByEqualParts) {
  const LrSchedule warm = LrSchedule::parse("warmup:4").value();
  EXPECT_EQ(warm.at(2, 0, 100), 0.5);
  EXPECT_EQ(warm.at(2, 2, 100), 1.5);
  EXPECT_EQ(warm.at(2, 3, 100), 2);
  EXPECT_EQ(warm.at(2, 99, 100), 2);
}

TEST(LrSchedule, CosineFallsFromTheWarmupsEndToItsFraction) {
  const LrSchedule wave = LrSchedule::parse("cosine:0.2").value();
  EXPECT_EQ(wave.at(1, 0, 90), 1);
  EXPECT_NEAR(wave.at(1, 30, 90), 0.2 + 0.8 * 0.75, 1e-15);  // cos 60 degrees
  EXPECT_NEAR(wave.at(1, 45, 90), 0.6, 1e-15);
  EXPECT_NEAR(wave.at(1, 60, 90), 0.2 + 0.8 * 0.25, 1e-15);
  EXPECT_EQ(wave.at(1, 90, 90), 0.2);
  EXPECT_EQ(wave.at(1, 500, 90), 0.2);
  const LrSchedule both = LrSchedule::parse("warmup:10,cosine:0.1").value();
  EXPECT_EQ(both.at(1, 4, 110), 0.5);
  EXPECT_EQ(both.at(1, 9, 110), 1);
  EXPECT_EQ(both.at(1, 10, 110), 1);
  EXPECT_NEAR(both.at(1, 60, 110), 0.55, 1e-15);
}

TEST(LrSchedule, FactorsMultiplyAndTextsParseToThemselves) {
  const LrSchedule all = LrSchedule::parse("warmup:2,step:0.5:0.5,step:0.75:0.25").value();
  EXPECT_EQ(all.at(8, 0, 8), 4);
  EXPECT_EQ(all.at(8, 3, 8), 8);
  EXPECT_EQ(all.at(8, 4, 8), 4);
  EXPECT_EQ(all.at(8, 6, 8), 1);
  for (const char* text : {"constant", "step:0.6:0.1", "warmup:2,step:0.5:0.5,step:0.75:0.25",
                           "warmup:100,cosine:0.1"}) {
    EXPECT_EQ(LrSchedule::parse(text).value().text(), text);
  }
  EXPECT_EQ(LrSchedule::parse("cosine:0,warmup:3").value().text(), "warmup:3,cosine:0");
}

TEST(LrSchedule, RefusesAnythingElse) {
  for (const char* text : {"",
                           "step",
                           "step:",
                           "step:0.6",
                           "step:0.6:",
                           "step:1.1:0.1",
                           "step:-0.1:0.1",
                           "step:0.6:-1",
                           "step:0.6:0.1:2",
                           "cosine",
                           "step:a:b",
                           "warmup:0",
                           "warmup:1.5",
                           "warmup",
                           "warmup:3,warmup:4",
                           "cosine:1.5",
                           "cosine:0.1,cosine:0.1",
                           "constant,warmup:3",
                           "warmup:3,",
                           ",warmup:3"}) {
    const auto parsed = LrSchedule::parse(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error(), fails(kInvalid, "step:FRACTION:FACTOR"));
  }
}

TEST(Sgd, ByHand) {
  std::vector<float> x{1, 2};
  std::vector<float> m{0, 0};
  const std::vector<float> g{4, -8};
  descend_with_momentum(x, m, g, 0.5f, 0.25f);
  EXPECT_THAT(m, ElementsAre(4, -8));
  EXPECT_THAT(x, ElementsAre(-1, 6));
  descend_with_momentum(x, m, g, 0.5f, 0.25f);
  EXPECT_THAT(m, ElementsAre(5, -10));
  EXPECT_THAT(x, ElementsAre(-3.5f, 11));
  add_momentum(m, g, 0.5f);
  EXPECT_THAT(m, ElementsAre(6.5f, -13));
  descend(x, g, 0.25f);
  EXPECT_THAT(x, ElementsAre(-4.5f, 13));
}

TEST(Parameters, NamesShapesAndOffsets) {
  const auto mlp = make_model<float>({"mlp", {128, 64}}, {1, 28, 28}, 10);
  ASSERT_TRUE(mlp.has_value());
  const ParameterTable& table = mlp.value().parameters();
  ASSERT_EQ(table.size(), 6u);
  EXPECT_EQ(parameter_elems(table), 109386);  // 784*128 + 128 + 128*64 + 64 + 64*10 + 10
  EXPECT_EQ(table[0].name, "fc1.weight");
  EXPECT_EQ(table[0].shape, Shape::matrix(128, 784));
  EXPECT_EQ(table[1].name, "fc1.bias");
  EXPECT_EQ(table[1].offset, 128 * 784);
  EXPECT_EQ(table[1].fan_in, 784);
  EXPECT_EQ(table[5].name, "fc3.bias");
  EXPECT_EQ(table[5].shape, Shape::vector(10));

  const auto cnn = make_model<float>({"cnn", {}}, {3, 32, 32}, 10);
  ASSERT_TRUE(cnn.has_value());
  const ParameterTable& images = cnn.value().parameters();
  ASSERT_EQ(images.size(), 6u);
  EXPECT_EQ(images[0].name, "conv1.weight");
  EXPECT_EQ(images[0].shape, (Shape{{16, 3, 3, 3}, 4}));
  EXPECT_EQ(images[2].name, "conv2.weight");
  EXPECT_EQ(images[2].fan_in, 16 * 9);
  EXPECT_EQ(images[4].name, "fc.weight");
  EXPECT_EQ(images[4].shape, Shape::matrix(10, 32 * 8 * 8));
}

TEST(Parameters, InitialValuesAreEvenAndDependOnSeedAndNameAlone) {
  const ParameterTable one{{"a", Shape::matrix(100, 100), 100, 0}};
  const ParameterTable two{{"b", Shape::vector(3), 9, 0}, {"a", Shape::matrix(100, 100), 100, 3}};
  std::vector<float> first(10000);
  std::vector<float> second(10003);
  init_parameters<float>(one, 1, first);
  init_parameters<float>(two, 1, second);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), second.begin() + 3));
  double mean = 0;
  double square = 0;
  for (const float value : first) {
    EXPECT_LE(std::abs(value), 0.1f);
    mean += value / 1e4;
    square += value * value / 1e4;
  }
  // U(-b, b), b = 0.1: sd of the mean b / sqrt(3e4) = 5.8e-4; variance b^2 / 3, sd of it 3e-5.
  EXPECT_NEAR(mean, 0, 4 * 5.8e-4);
  EXPECT_NEAR(square, 0.01 / 3, 4 * 3e-5);
  std::vector<float> other(10000);
  init_parameters<float>(one, 2, other);
  EXPECT_NE(first, other);
}

TEST(Models, RefuseBadOptions) {
  const auto refusal = [](const ModelOptions& options, SampleShape input) {
    const auto made = make_model<float>(options, input, 10);
    return made.has_value() ? Status() : made.error();
  };
  EXPECT_THAT(refusal({"rnn", {}}, {1, 8, 8}), fails(kInvalid, "rnn", "mlp", "cnn"));
  EXPECT_THAT(refusal({"mlp", {5, 0}}, {1, 8, 8}), fails(kInvalid, "hidden width 0"));
  EXPECT_THAT(refusal({"cnn", {}}, {1, 3, 8}), fails(kInvalid, "3x8", "4x4"));
}

}  // namespace
}  // namespace gradwire::optimizer_test
