// Study files, the plans that they multiply out to, and the commands of their runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "apps/sweep/plan_file.h"
#include "apps/sweep/run_spec.h"
#include "apps/sweep/study.h"
#include "apps/sweep/study_file.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::study_test {
namespace {

using ::testing::ElementsAre;

constexpr Code kInvalid = Code::kInvalidArgument;

// The file lives as long as the program.
std::string write(const std::string& name, const std::string& text) {
  static const TemporaryFolder folder;
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

Result<StudyPlan> plan_in(const std::string& text) {
  GW_ASSIGN(Study study, load_study(write("study.toml", text)));
  return plan_of(std::move(study), "ucx");
}

Status error_of(const std::string& text) {
  const auto plan = plan_in(text);
  return plan.has_value() ? Status() : plan.error();
}

Status error_of(const Study& study) {
  const auto plan = plan_of(study, "ucx");
  return plan.has_value() ? Status() : plan.error();
}

StudyRow row(const std::string& name, const std::string& compressor) {
  return {.name = name, .compressor = compressor, .setting = {}, .ranks = 0, .overrides = {}};
}

TEST(StudyFile, ReadsRowsOverridesAndRules) {
  const auto made = plan_in(R"(
title = "t"
expected = "all the same"
target = 91.5
inproc = 8
seeds = [3, 5]
[train]
lr = 0.05
epochs = 5
[[row]]
compressor = "none"
[[row]]
name = "EF-sign"
compressor = "signsgd:ef=ef14"
lr = 0.2
allow-unsafe = "true"
[[accept]]
row = "EF-sign"
minus = "none"
at_least = -1
)");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const StudyPlan& plan = made.value();
  EXPECT_EQ(plan.expected, "all the same");
  EXPECT_EQ(plan.target, 91.5);
  EXPECT_THAT(plan.seeds, ElementsAre(3u, 5u));
  EXPECT_EQ(plan.baseline, "none");
  ASSERT_EQ(plan.cases.size(), 2u);
  EXPECT_EQ(plan.cases[0].row, "none");
  EXPECT_EQ(plan.cases[0].setting, "");
  EXPECT_EQ(plan.cases[0].ranks, 8);
  EXPECT_EQ(plan.accept[0].at_least, -1.0);
  EXPECT_TRUE(std::isinf(plan.accept[0].at_most));
  EXPECT_EQ(plan.accept[0].metric, "accuracy");
  EXPECT_THAT(command_of(plan.cases[1], 5).argv,
              ElementsAre("gradwire", "train", "--inproc", "8", "--allow-unsafe", "--epochs", "5",
                          "--lr", "0.2", "--measure-every", "50", "--compressor", "signsgd:ef=ef14",
                          "--seed", "5"));
}

TEST(StudyFile, ErrorsNameFileLineAndKey) {
  const auto unknown = load_study(write("bad.toml", "title = \"t\"\n[train]\nlearning_rate = 1\n"));
  EXPECT_THAT(unknown.error(),
              fails(kInvalid, "bad.toml", "line 3", "learning_rate", "lr-schedule"));
  // What a run is given by the study itself is no flag of [train].
  EXPECT_THAT(error_of("[train]\nmetrics = 1\n"),
              fails(kInvalid, "line 2", "metrics", "lr-schedule"));
  EXPECT_THAT(error_of("[train]\ncompressor = 1\n"),
              fails(kInvalid, "line 2", "compressor", "[grid] compressor", "[[row]]"));
  EXPECT_THAT(error_of("[train]\nseed = 1\n"),
              fails(kInvalid, "line 2", "seed", "seeds = 3 above"));
  EXPECT_THAT(error_of("[train]\ninproc = 1\n"), fails(kInvalid, "line 2", "inproc above"));
  const auto syntax = load_study(write("syntax.toml", "a = \n"));
  EXPECT_THAT(syntax.error(), fails(kInvalid, "syntax.toml", "line 1"));
  const auto ranks = load_study(write("ranks.toml", "ranks = 0\n"));
  EXPECT_THAT(ranks.error(), fails(kInvalid, "ranks.toml", "line 1", "ranks", "1", "4096"));
  for (const char* seeds : {"0", "-3", "100000000000", "[]", "[-1]", "[1, 2, 1]", "\"1\""}) {
    const auto study = load_study(write("seeds.toml", "seeds = " + std::string(seeds) + "\n"));
    ASSERT_FALSE(study.has_value()) << seeds;
    EXPECT_THAT(study.error(), fails(kInvalid, "seeds.toml", "line 1")) << seeds;
  }
  const auto nameless = load_study(write("row.toml", "[[row]]\nname = \"x\"\n"));
  EXPECT_THAT(nameless.error(), fails(kInvalid, "row.toml", "line 1", "[[row]]", "compressor"));
  EXPECT_FALSE(load_study("/nonexistent/study.toml").has_value());
  EXPECT_THAT(error_of("[grid]\nlr = 1\n"), fails(kInvalid, "line 2", "lr", "list"));
  EXPECT_THAT(error_of("[grid]\nlr = [7, 7]\n"), fails(kInvalid, "line 2", "lr", "7", "twice"));
  EXPECT_THAT(error_of("[grid]\nseed = [1, 2]\n"),
              fails(kInvalid, "line 2", "seed", "seeds = 3 above"));
}

// The file's text, the line and the names that its error has.
struct Impossible {
  const char* text;
  int line;
  std::vector<const char*> names;
};

TEST(StudyFile, RefusesValuesThatNoRunCanHaveBeforeTheFirst) {
  const char* const run = "[[row]]\ncompressor = \"none\"\n";
  for (const Impossible& study : std::vector<Impossible>{
           {"[train]\nlr = \"abc\"\n", 2, {"lr", "abc"}},
           {"[train]\nlr = -1\n", 2, {"lr", "-1"}},
           {"[train]\nsteps = 1e99\n", 2, {"steps", "1e+99"}},
           {"[train]\nmodel = \"brain\"\n", 2, {"model", "brain"}},
           {"[train]\nallow-unsafe = \"perhaps\"\n", 2, {"allow-unsafe", "perhaps"}},
           {"[train]\nsteps = 1\nepochs = 1\n", 2, {"steps", "epochs"}},
           {"[grid]\nlr = [0.1, \"abc\"]\n", 2, {"lr", "abc"}},
           {"[grid]\nsteps = [3]\nepochs = [1]\n", 2, {"steps", "epochs"}},
           {"[grid]\ncompressor = [\"none\", \"topk:k=1,k=2,(\"]\n", 2, {"compressor"}},
           {"[[row]]\ncompressor = \"none\"\nbatch = 0\n", 3, {"batch", "0"}},
           {"inproc = 2\nranks = 2\n", 1, {"ranks", "inproc"}},
           {"inproc = 2\ntransport = \"ucx\"\n", 2, {"transport", "inproc"}},
           {"target = 101\n", 1, {"target", "101"}},
       }) {
    const auto read = load_study(write("impossible.toml", study.text + std::string(run)));
    ASSERT_FALSE(read.has_value()) << study.text;
    EXPECT_THAT(read.error(),
                fails(kInvalid, "impossible.toml", "line " + std::to_string(study.line)))
        << study.text;
    for (const char* name : study.names) {
      EXPECT_THAT(read.error(), fails(kInvalid, name)) << study.text;
    }
  }
}

TEST(StudyFile, ThreadsMaySayThatTheyAreThreads) {
  const auto made = plan_in("inproc = 2\ntransport = \"inproc\"\n[[row]]\ncompressor = \"none\"\n");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made.value().cases[0].ranks, 2);
}

TEST(Plan, ARowThatNoSettingCanRunIsRefusedAndOneThatSomeCanIsNot) {
  EXPECT_THAT(error_of("[train]\noptimizer = \"adamw\"\nmomentum = 0.9\n[[row]]\n"
                       "compressor = \"none\"\n"),
              fails(kInvalid, "none", "--momentum"));
  const auto made = plan_in(
      "[train]\nmomentum = 0.9\n[grid]\noptimizer = [\"adamw\", \"sgd\"]\n"
      "compressor = [\"none\"]\n");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made.value().cases.size(), 2u);
  const auto batches =
      plan_in("ranks = 96\n[train]\naccumulate = 2\nbatch = 192\n[[row]]\ncompressor = \"none\"\n");
  ASSERT_TRUE(batches.has_value()) << batches.error().message();
  EXPECT_EQ(shell_text(check_command_of(batches.value().cases[0], 1)),
            "gradwire train --dry-run --inproc 48 --accumulate 2 --batch 192 --measure-every 50 "
            "--compressor none --seed 1");
  EXPECT_THAT(error_of("ranks = 3\n[train]\naccumulate = 2\nbatch = 100\n[[row]]\n"
                       "compressor = \"none\"\n"),
              fails(kInvalid, "--batch", "100", "multiple of 6"));
  EXPECT_THAT(error_of("[train]\nmomentum = 0.9\n[[row]]\ncompressor = \"dgc:ratio=0.01\"\n"),
              fails(kInvalid, "dgc", "--momentum 0.9"));
  EXPECT_THAT(error_of("[train]\nmodel = \"gpt\"\n[[row]]\ncompressor = \"none\"\n"),
              fails(kInvalid, "none", "gpt", "digits"));
}

TEST(Plan, ACompressorThatThereIsNotIsRefused) {
  const auto row = [](const std::string& spec) {
    return "inproc = 2\n[[row]]\ncompressor = \"" + spec + "\"\n";
  };
  EXPECT_THAT(error_of(row("brain")), fails(kInvalid, "brain"));
  EXPECT_THAT(error_of(row("qsgd:bits=99")), fails(kInvalid, "qsgd", "bits", "99"));
  EXPECT_THAT(error_of(row("qsgd:bits=4,ef=brain")), fails(kInvalid, "ef", "brain"));
  EXPECT_THAT(error_of(row("*.bias=none;*=topk:brain=1")), fails(kInvalid, "topk", "brain"));
  EXPECT_THAT(error_of("inproc = 2\n[train]\nmode = \"ps-sync\"\npull-compressor = \"brain\"\n"
                       "[[row]]\ncompressor = \"none\"\n"),
              fails(kInvalid, "brain"));
  // What goes together is the aggregator's to say: such a row fails, and the others run.
  EXPECT_TRUE(plan_in(row("signsgd:vote=majority,ef=ef14")).has_value());
}

TEST(Plan, RanksFitTheirPlace) {
  const std::string run = "[[row]]\ncompressor = \"none\"\n";
  EXPECT_THAT(error_of("inproc = 65\n" + run), fails(kInvalid, "65", "64"));
  EXPECT_THAT(error_of("ranks = 4\nlab = \"3x1gbit\"\n" + run),
              fails(kInvalid, "3x1gbit", "4 ranks", "3 hosts"));
  EXPECT_THAT(error_of("ranks = 4\nlab = \"4x1parsec\"\n" + run), fails(kInvalid, "4x1parsec"));
}

TEST(Plan, ARuleThatNothingMeetsIsRefused) {
  Study study;
  study.rows = {row({}, "none")};
  study.accept = {
      {.text = {}, .row = "none", .minus = {}, .setting = {}, .at_least = 2, .at_most = 1}};
  EXPECT_THAT(error_of(study), fails(kInvalid, "none", "at_least 2", "at_most 1"));
  study.accept[0].at_least = std::nan("");
  EXPECT_FALSE(plan_of(study, "ucx").has_value());
}

TEST(Plan, RefusesTwinsAndRulesAboutNobody) {
  Study twins;
  twins.rows = {row("twin", "none"), row("twin", "cast:bf16")};
  EXPECT_THAT(error_of(twins), fails(kInvalid, "two", "twin"));
  Study rule;
  rule.rows = {row({}, "none")};
  rule.accept = {{.text = {}, .row = "topk", .minus = {}, .setting = {}}};
  EXPECT_THAT(error_of(rule), fails(kInvalid, "accept", "topk"));
  rule.accept = {{.text = {}, .row = "none", .minus = {}, .setting = {}}};
  EXPECT_THAT(error_of(rule), fails(kInvalid, "accept", "none", "anything"));
  rule.accept = {{.text = {}, .row = "none", .minus = {}, .setting = {}, .metric = "joy"}};
  EXPECT_THAT(error_of(rule), fails(kInvalid, "accept", "joy", "accuracy", "loss", "test_loss"));
  EXPECT_FALSE(plan_of(Study(), "ucx").has_value());
}

TEST(Plan, IsTheCrossProductInTheOrderOfTheFile) {
  const auto made = plan_in(R"(
seeds = 2
baseline = "none"
[grid]
ranks = [2, 4]
compressor = ["none", "cast:bf16"]
model = ["mlp", "cnn"]
data = ["digits"]
)");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  std::vector<std::string> cells;
  for (const StudyCase& one : made.value().cases)
    cells.push_back(one.setting + " | " + one.row + " | " + std::to_string(one.ranks) + " | " +
                    one.flags.at("model") + " | " + one.flags.at("data") + " | " + one.transport);
  EXPECT_THAT(cells, ElementsAre("ranks 2, model mlp | none | 2 | mlp | digits | ucx",
                                 "ranks 2, model mlp | cast:bf16 | 2 | mlp | digits | ucx",
                                 "ranks 2, model cnn | none | 2 | cnn | digits | ucx",
                                 "ranks 2, model cnn | cast:bf16 | 2 | cnn | digits | ucx",
                                 "ranks 4, model mlp | none | 4 | mlp | digits | ucx",
                                 "ranks 4, model mlp | cast:bf16 | 4 | mlp | digits | ucx",
                                 "ranks 4, model cnn | none | 4 | cnn | digits | ucx",
                                 "ranks 4, model cnn | cast:bf16 | 4 | cnn | digits | ucx"));
}

TEST(Plan, MeshesAloneAreRows) {
  const auto made = plan_in(
      "ranks = 4\n[train]\nmodel = \"mlp\"\n[grid]\nparallel = [\"dp=4\", \"dp=2,tp=2\"]\n"
      "lr = [0.1, 0.2]\n");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made.value().baseline, "dp=4");
  std::vector<std::string> cells;
  for (const StudyCase& one : made.value().cases)
    cells.push_back(one.setting + " | " + one.row + " | " + one.compressor + " | " +
                    one.flags.at("parallel"));
  EXPECT_THAT(cells,
              ElementsAre("lr 0.1 | dp=4 | none | dp=4", "lr 0.1 | dp=2,tp=2 | none | dp=2,tp=2",
                          "lr 0.2 | dp=4 | none | dp=4", "lr 0.2 | dp=2,tp=2 | none | dp=2,tp=2"));
  // Beside compressors they make settings, as every other axis.
  const auto both =
      plan_in("ranks = 4\n[grid]\nparallel = [\"dp=4\", \"dp=2,tp=2\"]\ncompressor = [\"none\"]\n");
  ASSERT_TRUE(both.has_value()) << both.error().message();
  EXPECT_THAT(settings_of(both.value()), ElementsAre("parallel dp=4", "parallel dp=2,tp=2"));
  EXPECT_THAT(error_of("[grid]\nlr = [0.1, 0.2]\n"),
              fails(kInvalid, "nothing to run", "[[row]]", "compressor", "parallel"));
}

TEST(Plan, RowsOfOneNameLiveInDifferentSettings) {
  const auto made = plan_in(R"(
baseline = "SGD"
[[row]]
name = "SGD"
setting = "batch 8"
compressor = "none"
batch = 8
[[row]]
name = "SGD"
setting = "batch 32"
compressor = "none"
batch = 32
[[accept]]
row = "SGD"
setting = "batch 8"
at_least = 80
)");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_THAT(settings_of(made.value()), ElementsAre("batch 8", "batch 32"));
  EXPECT_EQ(made.value().cases[0].flags.at("batch"), "8");
  EXPECT_THAT(error_of("[[row]]\ncompressor = \"none\"\nsetting = \"a\"\n[[accept]]\nrow = \"none\""
                       "\nsetting = \"b\"\nat_least = 1\n"),
              fails(kInvalid, "accept", "none", "b"));
}

TEST(Plan, WhatARowSetsIsNoAxis) {
  EXPECT_THAT(error_of("[grid]\nlr = [0.1, 0.2]\n[[row]]\ncompressor = \"none\"\nlr = 1\n"),
              fails(kInvalid, "none", "lr", "axis"));
  EXPECT_THAT(error_of("[grid]\nranks = [0]\ncompressor = [\"none\"]\n"),
              fails(kInvalid, "ranks", "0", "4096"));
  EXPECT_THAT(error_of("[grid]\ntransport = [\"pigeon\"]\ncompressor = [\"none\"]\n"),
              fails(kInvalid, "transport", "pigeon", "ucx"));
  EXPECT_THAT(error_of("inproc = 2\nlab = \"2x1gbit\"\n[grid]\ncompressor = [\"none\"]\n"),
              fails(kInvalid, "2x1gbit", "inproc"));
}

TEST(Plan, ErrorsAreMeasuredWhereAllRanksAverage) {
  const auto made = plan_in("[grid]\nmode = [\"sync\", \"easgd\"]\ncompressor = [\"none\"]\n");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made.value().cases[0].flags.at("measure-every"), "50");
  EXPECT_EQ(made.value().cases[1].flags.count("measure-every"), 0u);
  const auto more = plan_in(
      "[grid]\noptimizer = [\"adamw\", \"diloco:inner_steps=5\"]\ncompressor = [\"none\"]\n");
  ASSERT_TRUE(more.has_value()) << more.error().message();
  EXPECT_EQ(more.value().cases[0].flags.count("measure-every"), 1u);
  EXPECT_EQ(more.value().cases[1].flags.count("measure-every"), 0u);
}

// Each has a setting and a folder of its own, and is what a run of stages takes.
TEST(Plan, WaysToDivideRanksAreAnAxis) {
  const auto made = plan_in(
      "inproc = 2\n[train]\naccumulate = 4\nbatch = 48\n[grid]\n"
      "parallel = [\"dp=2\", \"pp=2/gpipe\", \"pp=2/1f1b\"]\ncompressor = [\"none\"]\n");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const std::vector<StudyCase>& cases = made.value().cases;
  ASSERT_EQ(cases.size(), 3u);
  std::set<std::string> settings;
  std::set<std::string> folders;
  for (const StudyCase& one : cases) {
    settings.insert(one.setting);
    folders.insert(run_name(one, 1, spec_of(one, 1)));
  }
  EXPECT_EQ(settings.size(), 3u);
  EXPECT_EQ(folders.size(), 3u);
  EXPECT_THAT(shell_text(command_of(cases[1], 1)), ::testing::HasSubstr("--parallel pp=2/gpipe"));
}

// A model as a whole beside the same one that ranks divide.
TEST(Plan, ARowMayHaveRanksOfItsOwn) {
  const auto made = plan_in(
      "inproc = 4\n[train]\naccumulate = 4\nbatch = 48\n"
      "[[row]]\nname = \"whole\"\ncompressor = \"none\"\nranks = 1\n"
      "[[row]]\nname = \"divided\"\ncompressor = \"none\"\nparallel = \"pp=4\"\n");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  ASSERT_EQ(made.value().cases.size(), 2u);
  EXPECT_EQ(made.value().cases[0].ranks, 1);
  EXPECT_EQ(made.value().cases[1].ranks, 4);
  EXPECT_THAT(shell_text(command_of(made.value().cases[0], 1)),
              ::testing::HasSubstr("--inproc 1 "));
  EXPECT_THAT(error_of("[[row]]\ncompressor = \"none\"\nranks = 0\n"),
              fails(kInvalid, "line 3", "ranks", "4096"));
  EXPECT_THAT(error_of("[grid]\nranks = [1, 2]\n[[row]]\ncompressor = \"none\"\nranks = 4\n"),
              fails(kInvalid, "none", "ranks", "axis"));
}

TEST(Plan, StepsAndEpochsReplaceOneAnother) {
  const auto made = plan_in(
      "[train]\nsteps = 9\n[[row]]\ncompressor = \"none\"\nepochs = 2\n[[row]]\nname = \"b\"\n"
      "compressor = \"none\"\n");
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made.value().cases[0].flags.count("steps"), 0u);
  EXPECT_EQ(made.value().cases[1].flags.at("steps"), "9");
}

TEST(Plan, GoesThroughItsFileUnchanged) {
  const auto made = plan_in(R"(
title = "t"
expected = "e"
target = 90
seeds = 2
[grid]
compressor = ["none", "topk:ratio=0.01,ef=ef14"]
lr = [0.1, 0.2]
[[accept]]
text = "close"
row = "topk:ratio=0.01,ef=ef14"
minus = "none"
at_least = -1
)");
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const TemporaryFolder folder;
  const PlanFile file{.plan = made.value(),
                      .runs = {{"a", "b"}, {"c", "d"}, {"e", "f"}, {"g", "h"}},
                      .command = "c",
                      .environment = "m",
                      .started = "s"};
  ASSERT_TRUE(write_plan_file(folder.path(), file).ok());
  const auto read = read_plan_file(folder.path());
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read.value().runs, file.runs);
  const StudyPlan& plan = read.value().plan;
  EXPECT_EQ(plan.target, 90);
  ASSERT_EQ(plan.cases.size(), 4u);
  EXPECT_EQ(plan.cases[3].flags, made.value().cases[3].flags);
  EXPECT_EQ(plan.cases[3].setting, "lr 0.2");
  EXPECT_EQ(plan.accept[0].minus, "none");
  EXPECT_TRUE(std::isinf(plan.accept[0].at_most));
  EXPECT_THAT(read_plan_file("/nonexistent").error(), fails(kInvalid, "/nonexistent"));
  std::ofstream(folder.path() + "/study.json") << "{\"title\": 3}";
  EXPECT_FALSE(read_plan_file(folder.path()).has_value());
}

}  // namespace
}  // namespace gradwire::study_test
