// `gradwire plan --explain`: its rows against the closed forms, and against what a run is said to
// hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/apps/plan/captured_plan.h"
#include "tests/support/fails.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/accounts/training_memory.h"
#include "trainer/models.h"

namespace gradwire::plan_explained_test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr Code kInvalid = Code::kInvalidArgument;

std::vector<std::string> words_of(std::vector<std::string> words) {
  words.insert(words.begin(), "--explain");
  return words;
}

std::vector<Json> of_kind(const std::vector<Json>& rows, const std::string& kind) {
  std::vector<Json> found;
  for (const Json& row : rows) {
    if (row["kind"] == kind) found.push_back(row);
  }
  return found;
}

const std::vector<std::string> kAlexnet{"--model",    "alexnet", "--image",       "3x224x224",
                                        "--classes",  "1000",    "--micro-batch", "128",
                                        "--parallel", "dp=2"};

std::vector<std::string> transformer(const std::string& parallel) {
  return {"--layers",      "3", "--width",      "64", "--heads",      "8", "--sequence", "32",
          "--micro-batch", "2", "--vocabulary", "96", "--accumulate", "3", "--parallel", parallel};
}
constexpr TransformerShape kShape{.layers = 3, .width = 64, .heads = 8, .sequence = 32, .batch = 2};

// Every cell of every layer, and which is least.
TEST(PlanExplained, M6_CellsOfALayerAndTheLeast) {
  const auto said = captured_plan(words_of(transformer("dp=2,tp=2")));
  ASSERT_TRUE(said.error.ok()) << said.error.message();
  const std::vector<Json> layers = of_kind(said.rows, "layer");
  ASSERT_EQ(layers.size(), 5U * 4);  // qkv, out, fc, out, head
  for (std::size_t i = 0; i < layers.size(); i += 4) {
    std::vector<std::int64_t> totals;
    for (std::size_t j = i; j < i + 4; ++j) {
      const Json& row = layers[j];
      EXPECT_EQ(row["samples"], 2 * 3 * 2);
      EXPECT_EQ(row["ranks"], 4);
      totals.push_back(row["forward_elems"].get<std::int64_t>() +
                       row["backward_elems"].get<std::int64_t>() +
                       row["gradient_elems"].get<std::int64_t>());
      EXPECT_DOUBLE_EQ(row["rank_elems"], static_cast<double>(totals.back()) * 3 / 4);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      const bool least =
          std::ranges::min_element(totals) - totals.begin() == static_cast<std::ptrdiff_t>(j);
      EXPECT_EQ(layers[i + j]["least"], least) << layers[i + j];
    }
  }
  const Json& fc = layers[8];
  EXPECT_EQ(fc["layer"], "block*.mlp.fc");
  EXPECT_EQ(fc["count"], 3);
  EXPECT_EQ(fc["division"], "data parallel");
  EXPECT_EQ(fc["gradient_elems"], 2 * 4 * 64 * 64);
  EXPECT_EQ(layers[9]["forward_elems"], 12 * 32 * 64);
  EXPECT_EQ(layers[9]["backward_elems"], 12 * 32 * 64);
  EXPECT_EQ(layers[10]["backward_elems"], 2 * 12 * 32 * 64);
  EXPECT_EQ(layers[11]["forward_elems"], 2 * 12 * 32 * 4 * 64);
}

TEST(PlanExplained, M8_AlexnetsWorkAndParameters) {
  const auto said = captured_plan(words_of(kAlexnet));
  ASSERT_TRUE(said.error.ok()) << said.error.message();
  for (const char* share : {"91.9 %", "3.8 %", "8.1 %", "96.2 %"}) {
    EXPECT_THAT(said.text, HasSubstr(share));
  }
  EXPECT_THAT(said.text, HasSubstr("6.097e+07 parameters"));
  EXPECT_THAT(said.text, ::testing::Not(HasSubstr("Tensor parallelism")));
  const std::vector<Json> traffic = of_kind(said.rows, "traffic");
  ASSERT_EQ(traffic.size(), 1U);
  EXPECT_EQ(traffic[0]["data_parallel_elems"], 2 * 60965224);
}

// 4 sums a block; bytes = 4 L 2 (t - 1) / t b s h 4. Twice the layers, or the batch, is twice as
// much.
TEST(PlanExplained, M13_M14_TotalsOfMegatron) {
  const std::vector<Json> rows =
      of_kind(captured_plan(words_of(transformer("tp=2"))).rows, "tensors");
  ASSERT_EQ(rows.size(), 3U);
  const std::int64_t numbers[] = {2, 4, 8};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto t = static_cast<double>(numbers[i]);
    EXPECT_EQ(rows[i]["tp"], numbers[i]);
    EXPECT_EQ(rows[i]["block_sums"], 4);
    EXPECT_DOUBLE_EQ(rows[i]["block_bytes"], 4 * 3 * 2 * ((t - 1) / t) * 2 * 32 * 64 * 4);
    EXPECT_DOUBLE_EQ(rows[i]["end_bytes"], 2 * 2 * ((t - 1) / t) * 2 * 32 * 64 * 4);
  }
  for (const auto& [flag, value] : {std::pair{"--layers", "6"}, std::pair{"--micro-batch", "4"}}) {
    std::vector<std::string> words = transformer("tp=2");
    *(std::ranges::find(words, flag) + 1) = value;
    const std::vector<Json> more = of_kind(captured_plan(words_of(words)).rows, "tensors");
    EXPECT_EQ(more[0]["block_bytes"], 2 * rows[0]["block_bytes"].get<double>()) << flag;
  }
}

// As published, and as run_memory() has it of the same model on one of the ranks.
TEST(PlanExplained, SequenceParallelismSavesWhatTheFormsSay) {
  const auto kept = [](int ranks, bool sequence) {
    ModelOptions options{"gpt"};
    options.width = kShape.width;
    options.layers = kShape.layers;
    options.heads = kShape.heads;
    options.tied = true;
    options.share = {.ranks = ranks, .rank = 0, .sequence = sequence};
    const auto model = make_model<float>(options, {kShape.sequence, 1, 1}, 96);
    RunMemoryQuestion question;
    question.micro_batch = kShape.batch;
    question.accumulate = 3;
    question.labels = kShape.sequence;
    const auto memory = run_memory(model.value(), question);
    const auto place = static_cast<std::size_t>(MemoryClass::kActivations);
    return static_cast<double>(memory.value().device[place]);
  };
  for (const Json& row : of_kind(captured_plan(words_of(transformer("tp=2"))).rows, "tensors")) {
    const int t = row["tp"];
    EXPECT_EQ(row["activation_bytes"], activation_bytes(kShape, Recompute::kNone, t));
    EXPECT_EQ(row["sequence_activation_bytes"], activation_bytes(kShape, Recompute::kNone, 1) / t);
    EXPECT_EQ(row["run_activation_bytes"], kept(t, false)) << t;
    EXPECT_EQ(row["run_sequence_activation_bytes"], kept(t, true)) << t;
    EXPECT_LT(kept(t, true), kept(t, false)) << t;
  }
}

// --memory of tp=N/megatron[sequence=on] has the smaller form too.
TEST(PlanExplained, TheTableOfMemoryKnowsSequenceParallelism) {
  const auto activations = [](const std::string& parallel) {
    std::vector<std::string> words = transformer(parallel);
    words.emplace_back("--memory");
    return captured_plan(words).rows.at(0)["activation_bytes"].get<double>();
  };
  EXPECT_EQ(activations("tp=4"), activation_bytes(kShape, Recompute::kNone, 4));
  EXPECT_EQ(activations("tp=4/megatron[sequence=on]"),
            activation_bytes(kShape, Recompute::kNone, 4, true));
}

// Ranks that divide neither heads nor positions, and vocabularies smaller than the ranks.
TEST(PlanExplained, WhatDoesNotDivideIsLeftOut) {
  std::vector<std::string> words{"--layers",   "2",  "--width",      "48", "--heads",    "6",
                                 "--sequence", "15", "--vocabulary", "4",  "--parallel", "tp=6"};
  const std::vector<Json> rows = of_kind(captured_plan(words_of(words)).rows, "tensors");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["tp"], 2);
  EXPECT_TRUE(rows[0]["run_activation_bytes"].is_number());
  EXPECT_TRUE(rows[0]["run_sequence_activation_bytes"].is_null());
  EXPECT_EQ(rows[1]["tp"], 6);
  EXPECT_TRUE(rows[1]["run_activation_bytes"].is_null());
}

TEST(PlanExplained, TablesAreThoseThatAreAskedFor) {
  const auto kinds = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--model", "mlp", "--image", "1x8x8", "--hidden", "16"});
    std::set<std::string> found;
    for (const Json& row : captured_plan(more).rows) found.insert(row["kind"]);
    return found;
  };
  EXPECT_THAT(kinds({}), ::testing::ElementsAre("cost", "memory"));
  EXPECT_THAT(kinds({"--explain"}), ::testing::ElementsAre("layer", "traffic", "work"));
  EXPECT_THAT(kinds({"--explain", "--cost"}),
              ::testing::ElementsAre("cost", "layer", "traffic", "work"));
}

TEST(PlanExplained, BadQuestionsAreNamed) {
  const auto error = [](const std::vector<std::string>& words) {
    return captured_plan(words).error;
  };
  EXPECT_THAT(error({"--explain", "--params", "1e6"}),
              fails(kInvalid, "--explain", "--params", "--layers", "--model"));
  EXPECT_THAT(error({"--model", "alexnet"}), fails(kInvalid, "alexnet", "--image", "3x224x224"));
  EXPECT_THAT(error({"--model", "alexnet", "--image", "3x224"}),
              fails(kInvalid, "--image", "3x224", "three sizes"));
  EXPECT_THAT(error({"--model", "alexnet", "--image", "3x8x8"}), fails(kInvalid, "8x8", "16x16"));
  EXPECT_THAT(error({"--model", "cnn", "--image", "1x8x8", "--layers", "3"}),
              fails(kInvalid, "cnn", "--layers"));
  EXPECT_THAT(error({"--model", "cnn", "--image", "1x8x8", "--hidden", "3"}),
              fails(kInvalid, "cnn", "--hidden"));
  EXPECT_THAT(error({"--model", "cnn", "--image", "1x8x8", "--parallel", "pp=2"}),
              fails(kInvalid, "cnn", "pp"));
  EXPECT_THAT(error({"--model", "cnn", "--image", "1x8x8", "--parallel", "tp=2"}),
              fails(Code::kUnsupported, "cnn", "--parallel tp=2", "mlp or gpt", "tp/hybrid"));
  EXPECT_THAT(error({"--params", "1e6", "--classes", "3"}),
              fails(kInvalid, "--classes", "--model"));
}

}  // namespace
}  // namespace gradwire::plan_explained_test
