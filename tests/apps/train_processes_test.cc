// `gradwire run -n N -- gradwire train`: real processes over UCX. argv[1] is the program; without
// UCX in this build the suite says that it was skipped (77).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "apps/sweep/child.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gradwire {
namespace {

std::string program;  // set once by main, before any test

class Processes : public testing::TestWithParam<int> {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // Trains on GetParam() processes; "ok" or all that they printed.
  std::string train_processes(const Words& flags) {
    Words words{program, "run",   "-n",     std::to_string(GetParam()), "--timeout", "60", "--",
                program, "train", "--quiet"};
    words.insert(words.end(), flags.begin(), flags.end());
    auto child = Child::start(words, file("log"));
    if (!child.has_value()) return std::string(child.error().message());
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(90);
    while (std::chrono::steady_clock::now() < until) {
      if (const auto status = child.value().poll()) {
        return *status == 0 ? "ok"
                            : "status " + std::to_string(*status) + ": " + contents(file("log"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return "no end after 90 s: " + contents(file("log"));
  }

  TemporaryFolder folder_;
};

TEST_P(Processes, CanonicalOrderEqualsAccumulationBitForBit) {
  const Words common{"--steps", "20", "--batch", "48", "--hidden", "32,16", "--seed", "7"};
  const auto with = [&](Words flags) {
    flags.insert(flags.end(), common.begin(), common.end());
    return flags;
  };
  ASSERT_EQ(train(with({"--accumulate", std::to_string(GetParam()), "--save-params", file("one")})),
            "ok");
  ASSERT_EQ(train_processes(with({"--algorithm", "canonical", "--save-params", file("canonical"),
                                  "--metrics", file("m.jsonl")})),
            "ok");
  EXPECT_EQ(contents(file("one")), contents(file("canonical")));
  ASSERT_EQ(train_processes(with({"--algorithm", "ring", "--save-params", file("ring")})), "ok");
  EXPECT_LE(relative_distance(file("one"), file("ring")), 1e-6);

  const auto lines = json_lines(file("m.jsonl"));
  ASSERT_EQ(lines.size(), 21U);
  EXPECT_EQ(lines[20]["ranks"], GetParam());
  EXPECT_THAT(lines[20]["transport"].get<std::string>(), testing::HasSubstr("ucx"));
}

TEST_P(Processes, ReplicasStayIdenticalUnderEveryCompressor) {
  for (const std::string& spec : all_compressors()) {
    EXPECT_EQ(train_processes({"--steps", "5", "--batch", "48", "--hidden", "16", "--check-every",
                               "1", "--allow-unsafe", "--compressor", spec, "--lr", "0.01"}),
              "ok")
        << spec;
  }
}

// ZeRO over real processes: the bits of every stage, resumed in the middle too.
TEST_P(Processes, Z7_StagesOfZeroWriteTheSameParameters) {
  const auto with = [](const std::string& steps, const Words& more) {
    Words words{"--steps", steps,         "--batch",   "48",          "--hidden", "32,16", "--seed",
                "7",       "--algorithm", "canonical", "--optimizer", "adamw",    "--lr",  "0.002"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  ASSERT_EQ(train_processes(with("12", {"--save-params", file("0")})), "ok");
  for (const std::string stage : {"1", "2", "3"}) {
    ASSERT_EQ(train_processes(with("12", {"--zero", stage, "--save-params", file(stage)})), "ok");
    EXPECT_EQ(contents(file("0")), contents(file(stage))) << stage;
  }
  const Words run{"--zero",       "3", "--checkpoint", file("run"), "--resume", "--save-params",
                  file("resumed")};
  ASSERT_EQ(train_processes(with("7", run)), "ok");
  ASSERT_EQ(train_processes(with("12", run)), "ok");
  EXPECT_EQ(contents(file("0")), contents(file("resumed")));
}

TEST_P(Processes, ABadFlagEndsTheJobWithItsReason) {
  EXPECT_THAT(train_processes({"--steps", "5", "--batch", "48", "--compressor", "nonesuch"}),
              tells("status 1", "gradwire: error", "nonesuch"));
}

// Under a launcher --parallel starts nothing: it fits the job, or is refused with the product.
TEST_P(Processes, ParallelFitsTheJob) {
  const std::string ranks = std::to_string(GetParam());
  const Words common{"--steps", "6", "--batch", "48", "--hidden", "16", "--algorithm", "canonical"};
  const auto with = [&](Words flags) {
    flags.insert(flags.end(), common.begin(), common.end());
    return flags;
  };
  ASSERT_EQ(train_processes(with({"--parallel", "dp=" + ranks, "--save-params", file("said")})),
            "ok");
  ASSERT_EQ(train(with({"--parallel", "dp=" + ranks, "--save-params", file("threads")})), "ok");
  EXPECT_EQ(contents(file("said")), contents(file("threads")));
  EXPECT_THAT(train_processes(with({"--parallel", "dp=5"})),
              tells("status 1", "pp=1 x dp=5 x tp=1 = 5 ranks", "the job has " + ranks));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Processes, testing::Values(2, 3, 4));

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: train_processes_test GRADWIRE UCX_VERSION|none\n");
    return 1;
  }
  if (std::string(argv[2]) == "none") return 77;
  gradwire::program = argv[1];
  return RUN_ALL_TESTS();
}
