#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "apps/compare/report.h"
#include "apps/compare/results.h"
#include "apps/compare/runs.h"
#include "apps/compare/study.h"
#include "apps/compare/table.h"
#include "tests/support/temporary_folder.h"

namespace gradwire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The file lives as long as the program.
std::string write(const std::string& name, const std::string& text) {
  static const TemporaryFolder folder;
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(StudyFile, ReadsRowsOverridesAndRules) {
  const auto loaded = load_study(write("study.toml", R"(
title = "t"
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
)"));
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
  Study study = loaded.value();
  ASSERT_TRUE(complete_study(study).ok());
  EXPECT_TRUE(study.inproc);
  EXPECT_EQ(study.ranks, 8);
  EXPECT_THAT(study.seeds, ElementsAre(3u, 5u));
  EXPECT_EQ(study.baseline, "none");
  EXPECT_EQ(study.rows[0].name, "none");
  EXPECT_EQ(study.accept[0].at_least, -1.0);
  EXPECT_TRUE(std::isinf(study.accept[0].at_most));
  EXPECT_THAT(train_command(study, study.rows[1], 5),
              ElementsAre("gradwire", "train", "--inproc", "8", "--allow-unsafe", "--epochs", "5",
                          "--lr", "0.2", "--compressor", "signsgd:ef=ef14", "--seed", "5"));
}

TEST(StudyFile, ErrorsNameFileLineAndKey) {
  const auto unknown = load_study(write("bad.toml", "title = \"t\"\n[train]\nlearning_rate = 1\n"));
  EXPECT_THAT(std::string(unknown.error().message()),
              testing::AllOf(HasSubstr("bad.toml, line 3"), HasSubstr("'learning_rate'"),
                             HasSubstr("lr-schedule")));
  const auto syntax = load_study(write("syntax.toml", "a = \n"));
  EXPECT_THAT(std::string(syntax.error().message()), HasSubstr("syntax.toml, line 1"));
  const auto ranks = load_study(write("ranks.toml", "ranks = 0\n"));
  EXPECT_THAT(std::string(ranks.error().message()), HasSubstr("1 to 4096 wanted"));
  for (const char* seeds : {"0", "-3", "100000000000", "[]", "[-1]", "[1, 2, 1]", "\"1\""}) {
    const auto study = load_study(write("seeds.toml", "seeds = " + std::string(seeds) + "\n"));
    ASSERT_FALSE(study.has_value()) << seeds;
    EXPECT_THAT(std::string(study.error().message()), HasSubstr("seeds.toml, line 1")) << seeds;
  }
  const auto row = load_study(write("row.toml", "[[row]]\nname = \"x\"\n"));
  EXPECT_THAT(std::string(row.error().message()), HasSubstr("needs a compressor"));
  EXPECT_FALSE(load_study("/nonexistent/study.toml").has_value());
}

TEST(Study, RefusesTwinsAndRulesAboutNobody) {
  Study twins;
  twins.rows = {{.name = {}, .compressor = "none", .overrides = {}},
                {.name = "none", .compressor = "cast:bf16", .overrides = {}}};
  EXPECT_THAT(std::string(complete_study(twins).message()), HasSubstr("two rows are named 'none'"));
  Study rule;
  rule.rows = {{.name = {}, .compressor = "none", .overrides = {}}};
  rule.accept = {{.text = {}, .row = "topk", .minus = {}}};
  EXPECT_THAT(std::string(complete_study(rule).message()), HasSubstr("there is no row 'topk'"));
  rule.accept = {{.text = {}, .row = "none", .minus = {}}};
  EXPECT_THAT(std::string(complete_study(rule).message()), HasSubstr("accepts anything"));
  Study empty;
  EXPECT_FALSE(complete_study(empty).ok());
}

TEST(Results, ReadsStepsTotalsAndATornLastLine) {
  const auto run = read_run(
      write("run.jsonl",
            "{\"step\":0,\"loss\":2.5,\"bytes_sent\":100,\"dense_bytes\":400}\n"
            "{\"step\":1,\"loss\":2.0,\"accuracy\":0.5,\"bytes_sent\":100}\n{\"step\":2,\"lo"));
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run.value().steps.size(), 2u);
  EXPECT_FALSE(run.value().complete);
  EXPECT_EQ(run.value().accuracy, 0.5);
  const auto done = read_run(
      write("done.jsonl", "{\"step\":0,\"loss\":null}\n{\"total\":true,\"accuracy\":0.1}\n"));
  EXPECT_TRUE(done.value().complete);
  EXPECT_TRUE(done.value().diverged);
  EXPECT_FALSE(read_run(write("bad.jsonl", "hello\n{\"step\":1}\n")).has_value());
}

RunResult made(std::size_t row, std::uint64_t seed, double accuracy, double bytes) {
  RunResult run{
      .row = row, .seed = seed, .complete = true, .reason = {}, .steps = {}, .accuracy = accuracy};
  for (int i = 0; i < 3; ++i) {
    // The first step's figures are thrown out of the means: it sends and takes ten times as much
    // here.
    const double first = i == 0 ? 10 : 1;
    run.steps.push_back({.step = i,
                         .loss = 1.0 / (i + 1),
                         .accuracy = {},
                         .bytes_sent = bytes * first,
                         .dense_bytes = 400,
                         .step_seconds = 0.002 * first});
  }
  return run;
}

Study two_rows() {
  Study study;
  study.title = "two <rows>";
  study.seeds = {1, 2};
  study.rows = {{.name = "none", .compressor = "none", .overrides = {}},
                {.name = "x</script>", .compressor = "topk:ratio=0.1", .overrides = {}}};
  study.baseline = "none";
  study.accept = {{.text = "close", .row = "x</script>", .minus = "none", .at_least = -1.0},
                  {.text = {}, .row = "none", .minus = {}, .at_least = 95}};
  return study;
}

TEST(Results, StatisticsByHand) {
  const Study study = two_rows();
  const std::vector<RunResult> runs{made(0, 1, 0.90, 400), made(0, 2, 0.92, 400),
                                    made(1, 1, 0.89, 100), made(1, 2, 0.925, 100)};
  const auto rows = summarise(study, runs);
  EXPECT_NEAR(rows[0].accuracy_mean, 91, 1e-9);
  EXPECT_NEAR(rows[0].accuracy_sd, std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(rows[1].difference_mean, (-1 + 0.5) / 2, 1e-9);
  EXPECT_NEAR(rows[1].difference_sd, 1.5 / std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(rows[1].bytes_per_step, 100, 1e-9);
  EXPECT_NEAR(rows[1].ratio, 4, 1e-9);
  EXPECT_NEAR(rows[1].step_ms, 2, 1e-9);
  const auto rules = judge(study, rows);
  EXPECT_TRUE(rules[0].accepted);
  EXPECT_FALSE(rules[1].accepted);
  EXPECT_THAT(rule_lines(rules), HasSubstr("REFUSED"));
  EXPECT_THAT(csv_table(rows), HasSubstr("topk:ratio=0.1,2,0,90.75,"));
  EXPECT_THAT(text_table(study, rows), HasSubstr("91.00 ± 1.41"));
}

TEST(Results, ADivergedRunCountsAsZeroAndIsNamed) {
  const Study study = two_rows();
  RunResult gone = made(1, 1, 0.1, 100);
  gone.diverged = true;
  gone.steps[2].loss = std::nan("");
  RunResult also_gone = gone;
  also_gone.seed = 2;
  const auto rows =
      summarise(study, {made(0, 1, 0.90, 400), made(0, 2, 0.90, 400), gone, also_gone});
  EXPECT_EQ(rows[1].accuracy_mean, 0);
  EXPECT_EQ(rows[1].diverged, 2);
  EXPECT_THAT(text_table(study, rows), HasSubstr("diverged"));
}

TEST(Report, IsOneSafePage) {
  const Study study = two_rows();
  const std::vector<RunResult> runs{made(0, 1, 0.9, 400), made(0, 2, 0.9, 400),
                                    made(1, 1, 0.9, 100), made(1, 2, 0.9, 100)};
  const auto rows = summarise(study, runs);
  const auto rules = judge(study, rows);
  const std::string page = html_report({.study = study,
                                        .runs = runs,
                                        .rows = rows,
                                        .rules = rules,
                                        .command = "gradwire compare @@data@@",
                                        .environment = "here"});
  EXPECT_THAT(page, HasSubstr("two &lt;rows&gt;"));
  EXPECT_THAT(page, HasSubstr("x<\\/script>"));         // in the data
  EXPECT_THAT(page, Not(HasSubstr("\"x</script>\"")));  // which would end the script
  EXPECT_THAT(page,
              HasSubstr("gradwire compare @@data@@"));  // a value that looks like a mark stays
  EXPECT_THAT(page, HasSubstr("Chart.js v"));
  EXPECT_THAT(page, Not(HasSubstr("src=\"http")));
}

}  // namespace
}  // namespace gradwire
