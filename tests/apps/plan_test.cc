#include "apps/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "adapters/trainer/mesh/parallel_spec.h"
#include "tests/apps/plan/captured_plan.h"
#include "tests/support/fails.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/models.h"

namespace gradwire::plan_test {
namespace {

// What stays between steps, in bytes: parameters, gradients, and what the optimizer has.
double state_of(const RunMemory& memory) {
  double state = 0;
  for (const MemoryClass what :
       {MemoryClass::kParameters, MemoryClass::kGradients, MemoryClass::kMainGradients,
        MemoryClass::kMaster, MemoryClass::kMoments}) {
    state += static_cast<double>(memory.device[static_cast<std::size_t>(what)]);
  }
  return state;
}

using ::testing::HasSubstr;

constexpr Code kInvalid = Code::kInvalidArgument;
using Outcome = CapturedPlan;

Outcome plan(const std::vector<std::string>& words) { return captured_plan(words); }

// In 16 bits a rank of stage 1 has 2 bytes of each parameter and 2 of its gradient, and 12 of each
// that it owns: parameter and two moments. Stage 2 keeps of gradients the own averages alone, stage
// 3 nothing that is not its own.
TEST(Plan, SixteenBitsUnderZeroAreWhatTheTrainerHolds) {
  for (const std::int64_t ranks : {2, 4, 16}) {
    const Outcome found =
        plan({"--params", "1e9", "--zero", "1", "--data", std::to_string(ranks), "--memory"});
    ASSERT_TRUE(found.error.ok()) << found.error.message();
    ASSERT_EQ(found.rows.size(), 4U);
    const auto n = static_cast<double>(ranks);
    const double wanted[] = {16, 4 + 12 / n, 2 + 14 / n, 16 / n};
    for (int stage = 0; stage < 4; ++stage) {
      const auto& row = found.rows[static_cast<std::size_t>(stage)];
      EXPECT_DOUBLE_EQ(row["state_bytes_per_param"], wanted[stage]) << stage;
      EXPECT_DOUBLE_EQ(row["total_bytes"], 1e9 * wanted[stage]) << stage;
    }
    EXPECT_THAT(found.text, HasSubstr("1 *"));
  }
}

// Two linear layers of 64 by 64 and 64 outputs, counted class by class by the trainer's own
// account.
TEST(Plan, StatesEqualTheAccountOfARun) {
  const auto model = make_model<float>({"mlp", {64}}, {1, 8, 8}, 64);
  ASSERT_TRUE(model.has_value());
  const auto elems = static_cast<double>(parameter_elems(model.value().parameters()));
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const Outcome found =
        plan({"--params", std::to_string(parameter_elems(model.value().parameters())),
              "--precision", precision, "--data", "4", "--memory"});
    ASSERT_TRUE(found.error.ok()) << found.error.message();
    ASSERT_EQ(found.rows.size(), 4U);
    for (int stage = 0; stage < 4; ++stage) {
      RunMemoryQuestion question;
      question.precision = parse_precision(precision).value();
      question.stage = stage;
      question.ranks = 4;
      const auto run = run_memory(model.value(), question);
      ASSERT_TRUE(run.has_value());
      const double state = state_of(run.value());
      const auto& row = found.rows[static_cast<std::size_t>(stage)];
      EXPECT_DOUBLE_EQ(row["state_bytes_per_param"].get<double>() * elems, state)
          << precision << ", stage " << stage;
    }
  }
}

struct Account {
  std::string precision;
  int ranks = 1;
  int accumulate = 1;
  std::string policy;
  std::string compressor;
};

// Of two linear layers of 64 by 64 and 64 outputs, at a stage: the plan's state and workspace are
// the account's, but for tensors of one at a time.
void expect_the_accounts_of_a_run(const Account& of, int stage, const nlohmann::json& row) {
  SCOPED_TRACE(of.precision + ", " + std::to_string(of.ranks) + " ranks, " +
               std::to_string(of.accumulate) + ", " + of.policy + ", " + of.compressor +
               ", stage " + std::to_string(stage));
  const auto model = make_model<float>({"mlp", {64}}, {1, 8, 8}, 64);
  ASSERT_TRUE(model.has_value());
  const std::int64_t elems = parameter_elems(model.value().parameters());
  RunMemoryQuestion question;
  question.precision = parse_precision(of.precision).value();
  question.stage = stage;
  question.ranks = of.ranks;
  // fp16 has a loss scale.
  question.whole_gradients = question.precision == Precision::kF16 && of.compressor != "none";
  const auto workspace = [&] {
    const auto run = run_memory(model.value(), question);
    return run.value().device[static_cast<std::size_t>(MemoryClass::kWorkspace)];
  };
  const std::int64_t alone = workspace();
  question.accumulate = of.accumulate;
  question.reduce_each = of.policy == "reduce-each";
  const auto run = run_memory(model.value(), question);
  ASSERT_TRUE(run.has_value());
  EXPECT_DOUBLE_EQ(row["state_bytes_per_param"].get<double>() * static_cast<double>(elems),
                   state_of(run.value()));
  const std::int64_t more = workspace() - alone;
  EXPECT_DOUBLE_EQ(row["workspace_bytes"].get<double>(),
                   more == 4 * elems ? static_cast<double>(more) : 0);
  EXPECT_TRUE(more == 4 * elems || more <= 4 * 64 * 64) << more;
}

// Micro-batches that are added up first, and those that are reduced one by one; and gradients that
// are sent at once, or wait for one another.
TEST(Plan, BothPoliciesOfAccumulationAreTheAccountsOfARun) {
  std::vector<Account> all;
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    for (const int ranks : {1, 2, 4}) {
      for (const int accumulate : {1, 4}) {
        for (const char* policy : {"sum-then-reduce", "reduce-each"}) {
          for (const char* compressor : {"none", "qsgd:bits=8"}) {
            all.push_back({precision, ranks, accumulate, policy, compressor});
          }
        }
      }
    }
  }
  for (const Account& of : all) {
    const Outcome found =
        plan({"--params", "8320", "--precision", of.precision, "--data", std::to_string(of.ranks),
              "--accumulate", std::to_string(of.accumulate), "--accumulate-policy", of.policy,
              "--compressor", of.compressor, "--memory"});
    ASSERT_TRUE(found.error.ok()) << found.error.message();
    ASSERT_EQ(found.rows.size(), 4U);
    for (std::size_t stage = 0; stage < 4; ++stage) {
      expect_the_accounts_of_a_run(of, static_cast<int>(stage), found.rows[stage]);
    }
  }
}

// Reduced one by one gradients are sent as many times; at stage 3 each micro-batch gathers.
TEST(Plan, TrafficOfBothPoliciesOfAccumulation) {
  const auto sent = [](const std::string& policy) {
    const Outcome found = plan({"--params", "1048576", "--data", "4", "--cost", "--accumulate", "4",
                                "--accumulate-policy", policy});
    EXPECT_TRUE(found.error.ok()) << found.error.message();
    std::map<std::string, double> bytes;
    for (const auto& row : found.rows) {
      if (row["kind"] == "cost") bytes[row["zero"]] += row["wire_bytes"].get<double>();
    }
    return bytes;
  };
  const double once = 1048576 * 2.0 * 3 / 4;  // bf16
  const std::map<std::string, double> sum{
      {"0", 2 * once}, {"1", 2 * once}, {"2", 2 * once}, {"3", 9 * once}};
  const std::map<std::string, double> each{
      {"0", 8 * once}, {"1", 5 * once}, {"2", 5 * once}, {"3", 12 * once}};
  EXPECT_EQ(sent("sum-then-reduce"), sum);
  EXPECT_EQ(sent("reduce-each"), each);
  EXPECT_THAT(plan({"--params", "1e6", "--no-main-grads", "--accumulate", "2",
                    "--accumulate-policy", "reduce-each"})
                  .error,
              fails(kInvalid, "--no-main-grads", "reduce-each", "exclude"));
}

// In fp16 stages 2 and 3 hold the whole gradient for as long as its overflows are looked for, where
// what is sent cannot show them: under every compressor but casts without error feedback.
TEST(Plan, WholeGradientsOfALossScaleCount) {
  const auto state = [](const std::string& compressor) {
    std::vector<std::string> words{"--params", "1e9", "--precision", "fp16", "--data", "4"};
    if (!compressor.empty()) words.insert(words.end(), {"--compressor", compressor});
    words.emplace_back("--memory");
    std::vector<double> found;
    for (const auto& row : plan(words).rows) found.push_back(row["state_bytes_per_param"]);
    return found;
  };
  const std::vector<double> at_once{16, 7, 5.5, 4};
  const std::vector<double> whole{16, 7, 7.5, 6};
  EXPECT_EQ(state(""), at_once);
  EXPECT_EQ(state("none"), at_once);
  EXPECT_EQ(state("cast:fp16"), at_once);
  EXPECT_EQ(state("qsgd:bits=8"), whole);
  EXPECT_EQ(state("topk:ratio=0.01"), whole);
}

TEST(Plan, WhatNoRunCanDoIsRefused) {
  for (const char* layout : {"tp=2/hybrid", "tp=2/spatial[1x2]"}) {
    EXPECT_THAT(plan({"--params", "1e6", "--parallel", std::string(layout) + ",dp=4"}).error,
                fails(kInvalid, std::string("--parallel dp=4,") + layout, "--model gpt",
                      "tp=2/megatron", "--image"));
  }
  const auto of_images = [](const char* model, const char* image, const char* parallel) {
    return plan({"--model", model, "--image", image, "--micro-batch", "3", "--parallel", parallel})
        .error;
  };
  constexpr Code kUnsupported = Code::kUnsupported;
  EXPECT_THAT(of_images("cnn", "3x32x32", "tp=2"),
              fails(kUnsupported, "plan: --parallel tp=2", "model cnn", "mlp or gpt", "tp/hybrid"));
  EXPECT_THAT(of_images("mlp", "3x32x32", "tp=2/hybrid"),
              fails(kUnsupported, "plan: --parallel tp=2/hybrid", "model mlp", "cnn"));
  EXPECT_THAT(of_images("cnn", "3x7x32", "tp=2/spatial[2x1]"),
              fails(kInvalid, "plan: --parallel tp=2/spatial[2x1]", "model cnn", "images of 7x32"));
  EXPECT_THAT(of_images("cnn", "3x32x32", "tp=2/hybrid"),
              fails(kInvalid, "plan: --parallel tp=2/hybrid", "3 samples", "2 ranks"));
}

// Convolutions are whole on every rank, of linear layers a rank has its part, and of activations
// its samples or tile: the account of a run, of the rank with most.
TEST(Plan, ModelsForImagesAreTheAccountsOfTheRankWithMost) {
  for (const char* parallel : {"dp=2", "dp=2,tp=4/hybrid", "dp=2,tp=4/spatial[2x2]",
                               "dp=2,tp=6/spatial[6x1]", "dp=2,tp=12/spatial[4x3]"}) {
    SCOPED_TRACE(parallel);
    const Outcome found = plan({"--model", "cnn", "--image", "3x48x48", "--micro-batch", "8",
                                "--precision", "fp32", "--parallel", parallel});
    ASSERT_TRUE(found.error.ok()) << found.error.message();
    const ParallelSpec spec = ParallelSpec::parse(parallel).value();
    for (int stage = 0; stage < 4; ++stage) {
      const RunMemoryQuestion question{.micro_batch = 8, .stage = stage, .ranks = 2};
      double most = 0;
      std::int64_t params = 0;
      for (int rank = 0; rank < spec.tp; ++rank) {
        ModelOptions part{"cnn"};
        part.share = spec.share(rank);
        const auto model = make_model<float>(part, {3, 48, 48}, 10);
        ASSERT_TRUE(model.has_value()) << model.error().message();
        params = std::max(params, parameter_elems(model.value().parameters()));
        const auto run = run_memory(model.value(), question);
        ASSERT_TRUE(run.has_value()) << run.error().message();
        double sum = 0;
        for (const std::int64_t bytes : run.value().device) sum += static_cast<double>(bytes);
        most = std::max(most, sum);
      }
      const auto& row = found.rows[static_cast<std::size_t>(stage)];
      EXPECT_EQ(row["total_bytes"].get<double>(), most) << stage;
      if (stage == 0) {
        EXPECT_EQ(row["params_bytes"].get<double>(), 4.0 * static_cast<double>(params));
        // Half of it twice, between two replicas, where halves differ by an element.
        EXPECT_NEAR(found.rows[4]["wire_bytes"].get<double>(), 4.0 * static_cast<double>(params),
                    8);
      }
    }
  }
}

std::vector<nlohmann::json> rank_rows(std::vector<std::string> words, const char* parallel,
                                      const char* zero, const char* accumulate) {
  words.insert(words.end(), {"--layers", "24", "--width", "64", "--heads", "4", "--sequence", "32",
                             "--vocabulary", "100", "--precision", "fp32", "--accumulate",
                             accumulate, "--zero", zero, "--parallel", parallel, "--memory"});
  std::vector<nlohmann::json> found;
  for (nlohmann::json& row : plan(words).rows) {
    if (row["kind"] == "rank") found.push_back(row);
  }
  return found;
}

// How many contexts a schedule keeps, of the size that one micro-batch's has. What ranks of runs
// hold is compared in train_stages_test.cc.
TEST(Plan, RanksOfAPipelineByTheirSchedule) {
  const auto alone = rank_rows({}, "pp=4/gpipe", "0", "1");
  const auto gpipe = rank_rows({}, "pp=4/gpipe", "0", "8");
  const auto one = rank_rows({}, "dp=2,pp=4", "1", "8");
  ASSERT_EQ(alone.size(), 4U);
  ASSERT_EQ(gpipe.size(), 4U);
  ASSERT_EQ(one.size(), 4U);
  double params = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const double context = alone[rank]["activation_bytes"];
    EXPECT_GT(context, 0);
    EXPECT_EQ(gpipe[rank]["activation_bytes"], 8 * context) << rank;
    EXPECT_EQ(one[rank]["activation_bytes"], (4 - rank) * context) << rank;
    EXPECT_EQ(one[rank]["params_bytes"], 4 * one[rank]["params"].get<double>()) << rank;
    EXPECT_EQ(one[rank]["optimizer_bytes"], 8 * one[rank]["params"].get<double>() / 2) << rank;
    EXPECT_EQ(one[rank]["gathered_bytes"], 0) << rank;
    params += one[rank]["params"].get<double>();
  }
  // 12 h^2 + 13 h a layer, positions, the last norm; tokens are on both ends.
  EXPECT_EQ(params, 24 * (12.0 * 64 * 64 + 13 * 64) + (32 + 2 * 100) * 64 + 2 * 64);
  // What rank 3 has received and not read, two at most, and what rank 2 may not have read: the
  // gradient that is sent and one before it.
  const double message = 4.0 * 32 * 64;
  EXPECT_GE(one[3]["message_bytes"], 2 * message);
  EXPECT_LE(one[3]["message_bytes"], 4 * message);
}

// Layers of stages that are said: 24 blocks are 48 halves, the embedding and the head beside them.
TEST(Plan, RanksOfAPipelineHaveTheLayersThatAreSaid) {
  const auto by_cost = rank_rows({}, "pp=4/gpipe", "0", "8");
  int layers = 0;
  for (const auto& row : by_cost) {
    ASSERT_EQ(row["layers"].size(), 1U);
    const std::string last = row["layers"][0].get<std::string>();
    layers = std::stoi(last.substr(last.find('-') + 1)) + 1;
  }
  const std::string said = "pp=4/gpipe[stages=3+10+30+" + std::to_string(layers - 43) + "]";
  const auto by_hand = rank_rows({}, said.c_str(), "0", "8");
  ASSERT_EQ(by_hand.size(), 4U);
  EXPECT_EQ(by_hand[0]["layers"][0], "0-2");
  EXPECT_EQ(by_hand[1]["layers"][0], "3-12");
  EXPECT_EQ(by_hand[2]["layers"][0], "13-42");
  // Five times the halves.
  EXPECT_NEAR(by_hand[2]["params"].get<double>() / by_hand[1]["params"].get<double>(), 3.0, 0.1);
  const auto refused = [](const std::string& stages) {
    return plan({"--layers", "4", "--width", "64", "--heads", "4", "--sequence", "32", "--parallel",
                 "pp=2/1f1b[stages=" + stages + "]"})
        .error;
  };
  EXPECT_THAT(refused("3+99"), fails(kInvalid, "plan", "stages=3+99", "102 layers", "expected"));
  EXPECT_THAT(refused("3+4+5"), fails(kInvalid, "--parallel", "3 numbers", "expected 2"));
  EXPECT_THAT(
      plan({"--params", "1e6", "--parallel", "pp=2/1f1b[stages=3+4]", "--accumulate", "2"}).error,
      fails(kInvalid, "stages=3+4", "--layers"));
}

TEST(Plan, WhatStagesCannotDoIsRefused) {
  EXPECT_THAT(plan({"--layers", "1", "--width", "64", "--heads", "4", "--sequence", "32",
                    "--parallel", "pp=8"})
                  .error,
              fails(kInvalid, "plan", "pp=8", "8 stages"));
  for (const std::string schedule : {"zb-h1", "zb-v", "zb-v-half", "zb-v-min"}) {
    EXPECT_THAT(plan({"--layers", "4", "--width", "64", "--heads", "4", "--sequence", "32",
                      "--parallel", "pp=2/" + schedule, "--recompute", "full"})
                    .error,
                fails(Code::kUnsupported, "plan", schedule.c_str(), "recompute 'full'"));
  }
}

// Two ranks hold each stage: twice the parameters of one direction, and replicas that shard them.
TEST(Plan, RanksOfBothDirectionsHoldTwoStages) {
  const auto one = rank_rows({}, "pp=4/gpipe", "0", "8");
  const auto both = rank_rows({}, "pp=4/chimera", "1", "8");
  const auto doubled = rank_rows({}, "pp=4/chimera[doubling=on]", "1", "8");
  ASSERT_EQ(both.size(), 4U);
  ASSERT_EQ(doubled.size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(both[rank]["stages"].size(), 2U);
    // From p/2 + 1 at the ends to p in the middle (Li and Hoefler, SC 2021, table 2).
    const int contexts = rank % 3 == 0 ? 3 : 4;
    EXPECT_EQ(both[rank]["contexts"], contexts) << rank;
    EXPECT_EQ(doubled[rank]["contexts"], 2 * contexts) << rank;
    EXPECT_EQ(both[rank]["params"], both[3 - rank]["params"]);
    EXPECT_EQ(both[rank]["optimizer_bytes"], 8 * both[rank]["params"].get<double>() / 2) << rank;
  }
  // The ends hold the embedding once.
  const double ends = one[0]["params"].get<double>() + one[3]["params"].get<double>();
  EXPECT_EQ(both[0]["params"], ends - 100 * 64);
  EXPECT_THAT(
      plan({"--params", "1e6", "--parallel", "pp=2/chimera", "--accumulate", "2", "--zero", "2"})
          .error,
      fails(Code::kUnsupported, "--zero 2", "pp=2/chimera", "0 or 1"));
}

// Beside the newest weights p - 1 - s older versions, p - 1 in sync, or one.
TEST(Plan, StagesWithoutAFlushHaveVersionsOfTheirWeights) {
  for (const bool even : {false, true}) {
    for (const char* schedule : {"pipedream", "pipedream[vertical_sync=on]", "2bw"}) {
      const std::string name = schedule;
      const std::string parallel = "pp=4/" + name;
      std::vector<nlohmann::json> rows;
      if (even) {
        for (nlohmann::json& row : plan({"--params", "1e6", "--parallel", parallel, "--accumulate",
                                         name == "2bw" ? "4" : "1", "--memory"})
                                       .rows) {
          if (row["kind"] == "rank") rows.push_back(row);
        }
      } else {
        rows = rank_rows({}, parallel.c_str(), "0", name == "2bw" ? "4" : "1");
      }
      ASSERT_EQ(rows.size(), 4U) << name;
      for (int rank = 0; rank < 4; ++rank) {
        const int older = name == "2bw" ? 1 : name == "pipedream" ? 3 - rank : 3;
        const nlohmann::json& row = rows[static_cast<std::size_t>(rank)];
        EXPECT_EQ(row["version_bytes"], older * 4 * row["params"].get<double>()) << name << rank;
        EXPECT_EQ(row["contexts"], 4 - rank) << name;
      }
    }
  }
  const auto refused = [](const char* parallel, const char* micro_batches) {
    return plan({"--params", "1e6", "--parallel", parallel, "--accumulate", micro_batches}).error;
  };
  EXPECT_THAT(refused("pp=4/2bw", "3"), fails(Code::kInvalidArgument, "--accumulate 3", "4"));
  EXPECT_THAT(refused("pp=4/pipedream", "2"), fails(Code::kInvalidArgument, "--accumulate 2", "1"));
}

TEST(Plan, PipelineIsTheNumberOfStages) {
  const std::vector<std::string> shape{"--layers",     "4",   "--width",      "64",
                                       "--heads",      "4",   "--sequence",   "32",
                                       "--vocabulary", "100", "--accumulate", "4"};
  const auto with = [&shape](const std::vector<std::string>& more) {
    std::vector<std::string> words = shape;
    words.insert(words.end(), more.begin(), more.end());
    return plan(words);
  };
  const auto stages = with({"--pipeline", "2"});
  ASSERT_FALSE(stages.rows.empty());
  EXPECT_EQ(stages.rows, with({"--parallel", "pp=2"}).rows);
  EXPECT_THAT(with({"--parallel", "pp=4", "--pipeline", "2"}).error,
              fails(kInvalid, "plan", "pp=4", "--pipeline 2"));
}

// Stages gather their parameters once a step, whole models for every pass.
TEST(Plan, StagesGatherOnceAStep) {
  const auto bytes = [](const char* parallel) {
    double sum = 0;
    for (const nlohmann::json& row : plan({"--params", "8e6", "--precision", "fp32", "--accumulate",
                                           "4", "--zero", "3", "--parallel", parallel, "--cost"})
                                         .rows) {
      const std::string what = row["what"];
      if (row["zero"] == "3" && what.starts_with("parameters"))
        sum += row["wire_bytes"].get<double>();
    }
    return sum;
  };
  EXPECT_EQ(bytes("dp=2,pp=1"), 2 * 4 * 4 * 8e6 / 2);
  EXPECT_EQ(bytes("dp=2,pp=4"), 4 * 2e6 / 2);
}

// Sums of micro-batches in 16 bits: 2 bytes of all parameters at every stage, in place of 4.
TEST(Plan, SumsInSixteenBits) {
  const Outcome sums = plan({"--params", "1e6", "--no-main-grads", "--accumulate", "4", "--zero",
                             "2", "--data", "4", "--memory"});
  ASSERT_EQ(sums.rows.size(), 4U);
  const double wanted[] = {16, 4 + 3, 4 + 3, 2 + 3.5};
  for (std::size_t stage = 0; stage < 4; ++stage) {
    EXPECT_DOUBLE_EQ(sums.rows[stage]["state_bytes_per_param"], wanted[stage]) << stage;
  }
}

TEST(Plan, ParallelSaysWhatDataAndZeroSay) {
  const Outcome flags = plan({"--params", "1e6", "--data", "8", "--zero", "2"});
  const Outcome parallel = plan({"--params", "1e6", "--parallel", "dp=8,zero=2"});
  EXPECT_TRUE(parallel.error.ok()) << parallel.error.message();
  EXPECT_EQ(parallel.text, flags.text);
  EXPECT_EQ(parallel.rows, flags.rows);
  EXPECT_EQ(plan({"--params", "1e6", "--data", "8", "--parallel", "zero=2"}).text, flags.text);
  EXPECT_THAT(parallel.text, HasSubstr("pp=1 x dp=8 x tp=1 = 8 ranks"));
  EXPECT_THAT(plan({"--params", "1e6", "--data", "8", "--parallel", "dp=8"}).error,
              fails(kInvalid, "dp=8", "--data 8", "exclude"));
  EXPECT_THAT(plan({"--params", "1e6", "--zero", "1", "--parallel", "dp=8,zero=2"}).error,
              fails(kInvalid, "zero=2", "--zero 1", "exclude"));
  EXPECT_THAT(plan({"--params", "1e6", "--parallel", "dp"}).error,
              fails(kInvalid, "--parallel", "item 'dp'"));
}

// A stage sends what its operations say: (N-1)/N of the model twice, three times with stage 3; as
// it is stored.
class PlanTraffic : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Precisions, PlanTraffic, ::testing::Values("fp32", "bf16", "fp16"));

TEST_P(PlanTraffic, StagesSendTwiceOrThreeTimesTheModel) {
  const Outcome found = plan({"--params", "1048576", "--precision", GetParam(), "--data", "4",
                              "--cost", "--alpha", "0", "--beta", "1e-9"});
  ASSERT_TRUE(found.error.ok()) << found.error.message();
  const double width = std::string(GetParam()) == "fp32" ? 4 : 2;
  const double model = 1048576 * width * 3 / 4;
  std::map<std::string, double> bytes;
  std::map<std::string, double> seconds;
  for (const auto& row : found.rows) {
    bytes[row["zero"]] += row["wire_bytes"].get<double>();
    seconds[row["zero"]] += row["seconds"].get<double>();
  }
  for (const char* stage : {"0", "1", "2"}) EXPECT_DOUBLE_EQ(bytes[stage], 2 * model) << stage;
  EXPECT_DOUBLE_EQ(bytes["3"], 3 * model);
  EXPECT_GT(seconds["3"], 3 * model * 1e-9 * 0.999);
}

TEST(Plan, ACompressorsExchangesStandBesideTheDenseOnes) {
  const Outcome found =
      plan({"--params", "1e6", "--data", "4", "--cost", "--compressor", "qsgd:bits=4"});
  ASSERT_TRUE(found.error.ok()) << found.error.message();
  EXPECT_THAT(found.text, HasSubstr("qsgd:bits=4"));
  EXPECT_EQ(found.rows.back()["what"], "gradients, compressed");
  EXPECT_LT(found.rows.back()["wire_bytes"].get<double>(), 1e6 * 4 * 3);
}

TEST(Plan, ATransformersShapeIsEnough) {
  const Outcome found = plan({"--layers", "12", "--width", "768", "--heads", "12", "--sequence",
                              "1024", "--vocabulary", "50257", "--zero", "3", "--data", "8"});
  ASSERT_TRUE(found.error.ok()) << found.error.message();
  EXPECT_THAT(found.text, HasSubstr("1.244e+08 parameters"));
  EXPECT_GT(found.rows[3]["gathered_bytes"].get<double>(), 0);
  EXPECT_GT(found.rows[3]["activation_bytes"].get<double>(), 0);
  // 16 bits are widened for a layer's turn, at every stage; fp32 has nothing to widen.
  EXPECT_DOUBLE_EQ(found.rows[0]["gathered_bytes"], 4.0 * (50257 + 1024) * 768);
  const Outcome wide = plan({"--layers", "12", "--width", "768", "--heads", "12", "--sequence",
                             "1024", "--vocabulary", "50257", "--precision", "fp32"});
  ASSERT_TRUE(wide.error.ok()) << wide.error.message();
  EXPECT_DOUBLE_EQ(wide.rows[0]["gathered_bytes"], 0);
}

TEST(Plan, WhatDoesNotFitIsRefusedWithWhatDoes) {
  const Outcome tight =
      plan({"--params", "10e9", "--zero", "1", "--data", "64", "--device-mem", "30G"});
  // 10e9 (4 + 12 / 64) bytes; stage 2 takes 2.22 of them, stage 3 a quarter.
  EXPECT_THAT(tight.error, fails(kInvalid, "--zero 1", "39 GiB", "30 GiB", "--zero 2, 3"));
  const Outcome none = plan({"--params", "1e12", "--device-mem", "30G"});
  EXPECT_THAT(none.error, fails(kInvalid, "--zero 0", "30 GiB", "no stage"));
  EXPECT_TRUE(plan({"--params", "1e9", "--device-mem", "30G"}).error.ok());
}

TEST(Plan, BadQuestionsAreNamed) {
  EXPECT_THAT(plan({}).error, fails(kInvalid, "--params", "--layers", "--width", "--heads"));
  EXPECT_THAT(plan({"--layers", "3"}).error, fails(kInvalid, "--layers 3", "--width 0"));
  EXPECT_THAT(plan({"--layers", "2", "--width", "10", "--heads", "4", "--sequence", "8"}).error,
              fails(kInvalid, "--width 10", "--heads 4"));
  EXPECT_THAT(plan({"--params", "1e6", "--zero", "4"}).error, fails(kInvalid, "--zero", "4", "3"));
  EXPECT_THAT(plan({"--params", "1e6", "--compressor", "nothing"}).error,
              fails(kInvalid, "nothing"));
}

}  // namespace
}  // namespace gradwire::plan_test
