// Statistics, tables, curves, pages and event files of made-up results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "apps/report/curves.h"
#include "apps/report/page.h"
#include "apps/report/page_table.h"
#include "apps/report/results.h"
#include "apps/report/scaling.h"
#include "apps/report/summary.h"
#include "apps/report/table.h"
#include "apps/report/tensorboard.h"

namespace gradwire::report_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Three steps; the first sends and takes ten times as much as the others.
RunResult made(std::size_t case_index, std::uint64_t seed, double accuracy, double bytes) {
  RunResult run{.case_index = case_index, .seed = seed, .name = {}, .record = {}, .metrics = {}};
  run.record.outcome = RunOutcome::kComplete;
  run.record.started = "1970-01-01T00:01:40Z";
  run.metrics.complete = true;
  run.metrics.accuracy = accuracy;
  for (int i = 0; i < 3; ++i) {
    const double first = i == 0 ? 10 : 1;
    run.metrics.steps.push_back({.step = i,
                                 .loss = 1.0 / (i + 1) + 0.1 * static_cast<double>(seed),
                                 .bytes_sent = bytes * first,
                                 .dense_bytes = 400,
                                 .step_seconds = 0.002 * first});
  }
  run.metrics.steps[1].accuracy = accuracy - 0.02;
  run.metrics.steps[2].accuracy = accuracy;
  return run;
}

Results two_rows(std::vector<RunResult> runs) {
  Results results;
  StudyPlan& plan = results.file.plan;
  plan.title = "two <rows>";
  plan.expected = "A & B are close";
  plan.seeds = {1, 2};
  plan.cases.resize(2);
  plan.cases[0].row = plan.cases[0].compressor = "none";
  plan.cases[1].row = "x</script>";
  plan.cases[1].compressor = "topk:ratio=0.1";
  plan.baseline = "none";
  plan.accept = {
      {.text = "close", .row = "x</script>", .minus = "none", .setting = {}, .at_least = -1},
      {.text = {}, .row = "none", .minus = {}, .setting = {}, .at_least = 95}};
  results.file.command = "gradwire compare @@data@@";
  results.runs = std::move(runs);
  return results;
}

Results four_runs() {
  return two_rows({made(0, 1, 0.90, 400), made(0, 2, 0.92, 400), made(1, 1, 0.89, 100),
                   made(1, 2, 0.925, 100)});
}

TEST(Summary, StatisticsByHand) {
  const Results results = four_runs();
  const auto rows = summarise(results);
  EXPECT_NEAR(rows[0].accuracy.mean, 91, 1e-9);
  EXPECT_NEAR(rows[0].accuracy.sd, std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(rows[0].accuracy.most, 92, 1e-9);
  EXPECT_NEAR(rows[1].difference.mean, (-1 + 0.5) / 2, 1e-9);
  EXPECT_NEAR(rows[1].difference.sd, 1.5 / std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(rows[1].bytes_per_step, 100, 1e-9);  // without the first step
  EXPECT_NEAR(rows[1].total_bytes, 1200, 1e-9);    // with it
  EXPECT_NEAR(rows[1].ratio, 4, 1e-9);
  EXPECT_NEAR(rows[1].step_ms, 2, 1e-9);
  EXPECT_NEAR(*rows[0].loss, (1 + 0.5 + 1.0 / 3) / 3 + 0.15, 1e-9);
  const auto rules = judge(results.plan(), rows);
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_NEAR(rules[0].value, -0.25, 1e-9);
  EXPECT_TRUE(rules[0].accepted);
  EXPECT_FALSE(rules[1].accepted);
  EXPECT_THAT(rule_lines(rules), HasSubstr("REFUSED"));
  EXPECT_THAT(csv_table(rows), HasSubstr("topk:ratio=0.1,2,0,90.75,"));
  EXPECT_THAT(text_table(rows), HasSubstr("91.00 (90.00–92.00)"));
}

// Rows that send more than one class, in the page's table and in the file.
TEST(Summary, ClassesOfTrafficHaveColumnsWhereThereIsMoreThanOne) {
  Results results = four_runs();
  for (RunResult& run : results.runs) {
    for (StepMetrics& step : run.metrics.steps) {
      step.traffic = {{"gradients", step.bytes_sent}};
    }
  }
  const auto page_of = [](const std::vector<CaseSummary>& rows) {
    return page_table({&rows[0], &rows[1]});
  };
  auto rows = summarise(results);
  EXPECT_THAT(page_of(rows), Not(HasSubstr("by class")));
  EXPECT_THAT(csv_table(rows), Not(HasSubstr("gradients_bytes_per_step")));
  // The second row gathers 3,000 bytes too; the first one's first step alone has statistics, which
  // do not count.
  for (RunResult& run : results.runs) {
    for (StepMetrics& step : run.metrics.steps) {
      if (run.case_index == 1) step.traffic["parameters"] = 3000;
      if (step.step == 0) step.traffic["statistics"] = 8;
    }
  }
  rows = summarise(results);
  const std::string page = page_of(rows);
  EXPECT_THAT(page, HasSubstr("<th colspan=\"2\">sent per step, by class</th>"));
  EXPECT_THAT(page, HasSubstr("<th class=\"edge\">gradients,<br>B</th><th>parameters,<br>kB</th>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"edge\">400.00</td><td>0.00</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"edge\">100.00</td><td>3.00</td>"));
  EXPECT_THAT(page, Not(HasSubstr("statistics")));
  const std::string csv = csv_table(rows);
  EXPECT_THAT(csv, HasSubstr("other_ms,gradients_bytes_per_step,parameters_bytes_per_step\n"));
  EXPECT_THAT(csv, HasSubstr(",400,0\n"));
  EXPECT_THAT(csv, HasSubstr(",100,3000\n"));
  // Runs that did not count by class say nothing of it.
  for (RunResult& run : results.runs) {
    for (StepMetrics& step : run.metrics.steps) {
      if (run.case_index == 0) step.traffic = {};
    }
  }
  rows = summarise(results);
  EXPECT_THAT(page_of(rows), HasSubstr("<td class=\"edge\">–</td><td>–</td>"));
  EXPECT_THAT(csv_table(rows), HasSubstr(",,\n"));
}

// How ranks are divided, the schedule's bubble and the wait for other stages, where there are some.
TEST(Summary, StagesHaveColumnsOfTheirOwn) {
  Results results = four_runs();
  auto rows = summarise(results);
  EXPECT_THAT(page_table({&rows[0], &rows[1]}), Not(HasSubstr("bubble")));
  EXPECT_THAT(text_table(rows), Not(HasSubstr("bubble")));
  EXPECT_THAT(csv_table(rows), Not(HasSubstr("bubble")));
  EXPECT_THAT(table_notes(rows), Not(HasSubstr("bubble")));
  for (RunResult& run : results.runs) {
    if (run.case_index == 0) continue;
    run.metrics.totals["parallel"] = "dp=1,pp=2/gpipe";
    run.metrics.totals["bubble"] = 0.2;
    for (StepMetrics& step : run.metrics.steps) {
      step.compute_seconds = 0.001;
      step.wire_seconds = 0.0002;                                    // all of it hidden
      step.stage_wait_seconds = 0.0005 * (step.step == 0 ? 10 : 1);  // warms up
      step.exposed_seconds = *step.stage_wait_seconds;
    }
  }
  rows = summarise(results);
  EXPECT_EQ(rows[0].parallel, "");
  EXPECT_EQ(rows[1].parallel, "dp=1,pp=2/gpipe");
  EXPECT_NEAR(rows[1].stage_wait_ms.value_or(0), 0.5, 1e-9);
  EXPECT_NEAR(rows[1].exposed_ms, 0.5, 1e-9);
  EXPECT_NEAR(rows[1].hidden_ms, 0.2, 1e-9);
  EXPECT_NEAR(rows[1].other_ms, 0.5, 1e-9);
  const std::string page = page_table({&rows[0], &rows[1]});
  EXPECT_THAT(page, HasSubstr("<td class=\"edge\">–</td><td>–</td><td>–</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"edge\">dp=1,<wbr>pp=2/gpipe</td><td>20.0</td>"
                              "<td>0.50</td>"));
  EXPECT_THAT(text_table(rows), HasSubstr("bubble"));
  EXPECT_THAT(table_notes(rows), HasSubstr("Bubble: "));
  const std::string csv = csv_table(rows);
  EXPECT_THAT(csv, HasSubstr(",parallel,bubble_percent,stage_wait_ms\n"));
  EXPECT_THAT(csv, HasSubstr(",\"dp=1,pp=2/gpipe\",20,0.5\n"));
}

// T10: N Tc / (Tc + Tcomm) beside what was measured, for a row on one and two ranks.
TEST(Report, T10_MoreRanksGiveASpeedUpAndCommunicationLeavesSomeOfThem) {
  Results results = four_runs();
  StudyPlan& plan = results.file.plan;
  plan.cases[0] = {.setting = "model mlp, ranks 1",
                   .row = "none",
                   .compressor = "none",
                   .flags = {{"batch", "64"}},
                   .ranks = 1,
                   .transport = "inproc",
                   .lab = {}};
  plan.cases[1] = plan.cases[0];
  plan.cases[1].setting = "model mlp, ranks 2";
  plan.cases[1].ranks = 2;
  std::vector<CaseSummary> cases(2);
  for (std::size_t i = 0; i < 2; ++i) {
    cases[i].name = "none";
    cases[i].setting = plan.cases[i].setting;
    cases[i].runs = 2;
  }
  cases[0].step_ms = 8;
  cases[0].compute_ms = 7;
  cases[0].exposed_ms = 0;
  cases[1].step_ms = 5;
  cases[1].compute_ms = 3;
  cases[1].exposed_ms = 1;
  auto rows = scaling_of(plan, cases);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].setting, "model mlp");
  EXPECT_THAT(rows[0].ranks, ElementsAre(1, 2));
  EXPECT_NEAR(rows[0].speed_up(1), 8.0 / 5, 1e-12);
  EXPECT_NEAR(rows[0].left_by_communication(0), 1, 1e-12);
  EXPECT_NEAR(rows[0].left_by_communication(1), 2 * 3.0 / (3 + 1), 1e-12);
  EXPECT_THAT(scaling_section(rows), HasSubstr("<td>1.60</td><td>1.50</td>"));
  plan.cases[1].flags["batch"] = "128";  // another experiment
  EXPECT_TRUE(scaling_of(plan, cases).empty());
  EXPECT_EQ(scaling_section({}), "");
}

TEST(Summary, TimeToTheTargetIsOfTheStepsUntilThen) {
  Results results = four_runs();
  results.file.plan.target = 89.5;
  const auto rows = summarise(results);
  // none: 0.90 in the end only (0.88 before), 0.92 in the end too, 0.90 after the second step.
  EXPECT_EQ(rows[0].seconds_to_target.count, 2u);
  EXPECT_NEAR(rows[0].seconds_to_target.mean, (0.024 + 0.022) / 2, 1e-12);
  // topk: 0.89 never, 0.905 after the second step.
  EXPECT_EQ(rows[1].seconds_to_target.count, 1u);
  EXPECT_NEAR(rows[1].seconds_to_target.mean, 0.022, 1e-12);
  EXPECT_EQ(time_to_target_text(rows[1]), "0.02 (1 of 2)");
  EXPECT_THAT(markdown_table(rows), HasSubstr("0.02 (1 of 2)"));
  EXPECT_THAT(markdown_table(rows), HasSubstr("(2 of 3) where that many of the seeds reached it"));
  results.file.plan.target.reset();
  EXPECT_NEAR(*summarise(results)[1].target, 90, 1e-9);  // a point below the baseline
}

TEST(Summary, ADivergedRunCountsAsZeroAndIsNamed) {
  RunResult gone = made(1, 1, 0.1, 100);
  gone.record.outcome = RunOutcome::kDiverged;
  gone.metrics.steps[2].loss = std::nan("");
  RunResult also_gone = gone;
  also_gone.seed = 2;
  Results results = two_rows({made(0, 1, 0.90, 400), made(0, 2, 0.90, 400), gone, also_gone});
  const auto rows = summarise(results);
  EXPECT_EQ(rows[1].accuracy.mean, 0);
  EXPECT_EQ(rows[1].diverged, 2);
  EXPECT_FALSE(rows[1].on_front);
  EXPECT_FALSE(rows[1].loss.has_value());
  EXPECT_THAT(text_table(rows), HasSubstr("diverged"));
  AcceptRule loss{
      .text = {}, .row = "x</script>", .minus = "none", .setting = {}, .metric = "loss"};
  loss.at_most = 5;
  results.file.plan.accept = {loss};
  EXPECT_FALSE(judge(results.plan(), rows)[0].accepted);  // infinite
}

TEST(Summary, SeedsWithoutAResultAreLeftOutOfThePairs) {
  const Results results =
      two_rows({made(0, 1, 0.90, 400), made(0, 2, 0.92, 400), made(1, 2, 0.91, 100)});
  const auto rows = summarise(results);
  EXPECT_NEAR(rows[1].difference.mean, -1, 1e-9);
  EXPECT_EQ(rows[1].difference.count, 1u);
  const Results none = two_rows({made(0, 1, 0.90, 400)});
  const auto without = summarise(none);
  EXPECT_EQ(accuracy_text(without[1]), "–");
  EXPECT_FALSE(judge(none.plan(), without)[0].accepted);  // NaN
}

TEST(Summary, TheFrontIsWhatNobodyBeatsInBoth) {
  Results results = two_rows({made(0, 1, 0.90, 400), made(1, 1, 0.80, 100)});
  results.file.plan.seeds = {1};
  results.file.plan.cases.resize(4, results.plan().cases[1]);
  results.file.plan.cases[2].row = "dearer than topk and worse";
  results.file.plan.cases[3].row = "as bf16";
  results.file.plan.cases[3].compressor = "cast:bf16";
  results.runs.push_back(made(2, 1, 0.79, 150));
  results.runs.push_back(made(3, 1, 0.90, 200));
  const auto rows = summarise(results);
  EXPECT_FALSE(rows[0].on_front);  // as accurate as bf16, with twice its bytes
  EXPECT_TRUE(rows[1].on_front);
  EXPECT_FALSE(rows[2].on_front);
  EXPECT_TRUE(rows[3].on_front);
  EXPECT_NEAR(*rows[1].ratio_to_bf16, 2, 1e-9);
}

TEST(Summary, RulesHoldInEverySettingThatHasTheirRows) {
  Results results = four_runs();
  StudyPlan& plan = results.file.plan;
  plan.cases[1].row = "none";
  plan.cases[0].setting = "a";
  plan.cases[1].setting = "b";
  plan.accept = {{.text = {}, .row = "none", .minus = {}, .setting = {}, .at_least = 90.9},
                 {.text = {}, .row = "none", .minus = {}, .setting = "b", .at_most = 90.8}};
  const auto rules = judge(plan, summarise(results));
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_TRUE(rules[0].accepted);
  EXPECT_FALSE(rules[1].accepted);
  EXPECT_TRUE(rules[2].accepted);
  EXPECT_EQ(rule_text(rules[1]), "b: none");
}

TEST(Summary, ErrorsAreMeansOfWhatWasMeasured) {
  Results results = four_runs();
  auto& steps = results.runs[0].metrics.steps;
  steps[0].nmse = 0.5;
  steps[2].nmse = 0.7;
  steps[0].exact_norm = steps[2].exact_norm = 2;
  steps[0].residual_norm = 1;
  steps[2].residual_norm = 3;
  const auto rows = summarise(results);
  EXPECT_NEAR(*rows[0].nmse, 0.6, 1e-12);
  EXPECT_NEAR(*rows[0].residual, 1.5, 1e-12);  // of the last half
  EXPECT_FALSE(rows[1].nmse.has_value());
}

TEST(Curves, AreMeansOverWindowsWithTheSeedsRange) {
  const Results results = four_runs();
  const Curve loss = loss_curve(runs_of(results, 0), 2);
  ASSERT_EQ(loss.size(), 2u);  // windows of two steps, and of one
  EXPECT_EQ(loss[0].step, 2);
  EXPECT_NEAR(loss[0].bytes, 4400, 1e-9);
  EXPECT_NEAR(loss[0].seconds, 0.022, 1e-12);
  EXPECT_NEAR(loss[0].mean, 0.75 + 0.15, 1e-12);
  EXPECT_NEAR(loss[0].least, 0.75 + 0.1, 1e-12);
  EXPECT_NEAR(loss[0].most, 0.75 + 0.2, 1e-12);
  const Curve accuracy = accuracy_curve(runs_of(results, 0));
  ASSERT_EQ(accuracy.size(), 2u);
  EXPECT_EQ(accuracy[1].step, 3);
  EXPECT_NEAR(accuracy[1].mean, 91, 1e-9);
  EXPECT_THAT(csv_curves(results), HasSubstr(",none,accuracy,3,4800,0.024,91,90,92\n"));
}

TEST(Page, IsOneSafeFile) {
  Results results = four_runs();
  results.runs[0].metrics.totals = {
      {"parameters", 17226}, {"optimizer", "sgd"}, {"lr", 0.05}, {"momentum", 0.9}};
  results.runs[1].metrics.totals = {{"lr", 0.1}};
  const auto cases = summarise(results);
  const auto rules = judge(results.plan(), cases);
  const ReportInput input{.results = results, .cases = cases, .rules = rules};
  const std::string page = html_report(input);
  EXPECT_THAT(page,
              HasSubstr("17226 parameters; optimizer sgd; learning rate 0.05, 0.1; momentum 0.9"));
  EXPECT_THAT(page, HasSubstr("two &lt;rows&gt;"));
  EXPECT_THAT(page, HasSubstr("A &amp; B are close"));
  EXPECT_THAT(page, HasSubstr("x<\\/script>"));         // in the data
  EXPECT_THAT(page, Not(HasSubstr("\"x</script>\"")));  // which would end the script
  // A value that looks like a mark stays.
  EXPECT_THAT(page, HasSubstr("gradwire compare @@data@@"));
  EXPECT_THAT(page, HasSubstr("Chart.js v"));
  EXPECT_THAT(page, HasSubstr("1 of 2 expectations were met"));
  EXPECT_THAT(page, Not(HasSubstr("src=\"")));
  EXPECT_THAT(page, Not(HasSubstr("<link")));
  EXPECT_THAT(report_parts(input), ElementsAre("pareto-0", "time-0", "loss-0", "accuracy-0"));
  for (const std::string& part : report_parts(input))
    EXPECT_THAT(page, HasSubstr("data-part=\"" + part + "\""));
}

TEST(Page, SaysWhatIsMissing) {
  Results results = two_rows({made(0, 1, 0.90, 400)});
  results.missing = {"row 'x', seed 1: status 1: <no>"};
  const auto cases = summarise(results);
  const std::string page = html_report({.results = results, .cases = cases, .rules = {}});
  EXPECT_THAT(page, HasSubstr("1 of 2 runs have no result"));
  EXPECT_THAT(page, HasSubstr("status 1: &lt;no&gt;"));
}

TEST(Page, ShowsTimeAgainstBandwidthWhereLinksDiffer) {
  Results results = two_rows({made(0, 1, 0.90, 400), made(1, 1, 0.90, 400)});
  results.file.plan.target = 80;
  results.file.plan.cases[1] = results.plan().cases[0];
  results.file.plan.cases[0].lab = results.file.plan.cases[0].setting = "2x100mbit";
  results.file.plan.cases[1].lab = results.file.plan.cases[1].setting = "2x1gbit";
  const auto cases = summarise(results);
  const ReportInput input{.results = results, .cases = cases, .rules = {}};
  EXPECT_THAT(report_parts(input), ::testing::Contains("bandwidth"));
  EXPECT_THAT(html_report(input), HasSubstr("\"points\":[[100.0,0.022],[1000.0,0.022]]"));
}

// The check value of CRC-32C, and RFC 3720 B.4's 32 bytes of zeros and of ones.
TEST(TensorBoard, ChecksumsAreCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

// Bytes laid out by hand after the formats' specifications.
TEST(TensorBoard, RecordsAreLengthChecksumsAndAnEvent) {
  const std::string file =
      event_file({{.tag = "loss", .step = 300, .wall_time = 0, .value = 0.5F}});
  const std::string version(
      "\x09\0\0\0\0\0\0\0\0\x1a\x0d"
      "brain.Event:2",
      24);
  const std::string scalar(
      "\x09\0\0\0\0\0\0\0\0\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f", 27);
  ASSERT_EQ(file.size(), 2 * 16 + version.size() + scalar.size());
  EXPECT_EQ(file.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(file.substr(12, 24), version);
  EXPECT_EQ(file.substr(16 + 24 + 12, 27), scalar);
  std::uint32_t stored = 0;
  std::memcpy(&stored, file.data() + 12 + 24, sizeof stored);
  const std::uint32_t crc = crc32c(version);
  EXPECT_EQ(stored, ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

}  // namespace
}  // namespace gradwire::report_test
