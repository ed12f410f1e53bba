// What chance explains of a difference, what a report says of it, and the tables and files that say
// it.
#include "apps/report/noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>

#include "apps/report/headline.h"
#include "apps/report/json_report.h"
#include "apps/report/page.h"
#include "apps/report/summary.h"
#include "apps/report/table.h"

namespace gradwire {
namespace {

using testing::HasSubstr;
using testing::Not;

// A run of one measured step, after one that warms up.
RunResult made(std::size_t case_index, std::uint64_t seed, double accuracy, double bytes,
               std::int64_t test_samples) {
  RunResult run{.case_index = case_index, .seed = seed, .name = {}, .record = {}, .metrics = {}};
  run.record.outcome = RunOutcome::kComplete;
  run.record.seconds = 2;
  run.metrics.complete = true;
  run.metrics.accuracy = accuracy;
  run.metrics.totals = {
      {"total", true}, {"steps", 2}, {"model", "cnn"}, {"data", "digits"}, {"batch", 128}};
  if (test_samples > 0) run.metrics.totals["test_samples"] = test_samples;
  for (int i = 0; i < 2; ++i) {
    run.metrics.steps.push_back({.step = i,
                                 .loss = 0.5,
                                 .bytes_sent = bytes,
                                 .dense_bytes = 400,
                                 .step_seconds = 0.010,
                                 .compute_seconds = 0.006,
                                 .encode_seconds = 0.001,
                                 .wire_seconds = 0.003,
                                 .decode_seconds = 0.001,
                                 .exposed_seconds = 0.003});
  }
  return run;
}

// none, and a row that sends a tenth; accuracies as shares, one for each seed.
Results two_rows(const std::vector<double>& none, const std::vector<double>& row,
                 std::int64_t test_samples) {
  Results results;
  StudyPlan& plan = results.file.plan;
  plan.title = "noise";
  plan.baseline = "none";
  plan.cases.resize(2);
  plan.cases[0].row = plan.cases[0].compressor = "none";
  plan.cases[1].row = plan.cases[1].compressor = "a|b";
  for (StudyCase& one : plan.cases) {
    one.ranks = 4;
    one.transport = "ucx";
  }
  for (std::size_t i = 0; i < none.size(); ++i) {
    plan.seeds.push_back(i + 1);
    results.runs.push_back(made(0, i + 1, none[i], 400, test_samples));
    results.runs.push_back(made(1, i + 1, row[i], 40, test_samples));
  }
  return results;
}

Verdict verdict(const std::vector<double>& none, const std::vector<double>& row,
                std::int64_t test_samples) {
  return summarise(two_rows(none, row, test_samples))[1].verdict;
}

TEST(Noise, OfSeedsByHand) {
  const Spread spread = spread_of({1, 2, 3});  // standard deviation 1
  EXPECT_NEAR(*seeds_noise(spread), 4.303 / std::sqrt(3.0), 1e-9);
  EXPECT_FALSE(seeds_noise(spread_of({1})).has_value());
  EXPECT_NEAR(student_95(1000), 1.96, 1e-9);
}

TEST(Noise, OfATestSetByHand) {
  // 93 % of 360: 335.8 of 362 is 0.927624, its variance 0.927624 · 0.072376 / 362 = 1.854637e-4.
  EXPECT_NEAR(test_set_noise(93, 93, 360), 196 * std::sqrt(2 * 1.854637e-4), 1e-3);
  EXPECT_GT(test_set_noise(100, 100, 360), 0);
  EXPECT_LT(test_set_noise(93, 93, 10000), 0.75);
  // Both sources are added as variances.
  const Spread spread = spread_of({1, 2, 3});
  EXPECT_NEAR(*noise_of(spread, 93, 93, 360),
              std::hypot(*seeds_noise(spread), test_set_noise(93, 93, 360)), 1e-9);
  EXPECT_FALSE(noise_of(spread_of({1}), 93, 93, std::nullopt).has_value());
}

// Two models that are equally good: the interval must hold their difference in 95 % of all test
// sets. 2,000 of them; 93 % is four standard deviations below.
TEST(Noise, OfATestSetHoldsEquallyGoodModels) {
  std::mt19937 random(1);
  for (const double share : {0.5, 0.93, 0.99}) {
    std::binomial_distribution<int> correct(360, share);
    int held = 0;
    for (int trial = 0; trial < 2000; ++trial) {
      const double a = correct(random) / 3.6;
      const double b = correct(random) / 3.6;
      held += std::fabs(a - b) <= test_set_noise(a, b, 360) ? 1 : 0;
    }
    EXPECT_GE(held, 1860) << share;
  }
}

TEST(Verdict, ADifferenceThatTheTestSetExplainsIsNoGain) {
  // 335 and 342 of 360: 1.94 points, one seed.
  EXPECT_EQ(verdict({335.0 / 360}, {342.0 / 360}, 360), Verdict::kWithinNoise);
  // The same of a test set of 100,000 is more, but of one seed nothing is known.
  EXPECT_EQ(verdict({335.0 / 360}, {342.0 / 360}, 100000), Verdict::kUnknown);
  EXPECT_EQ(verdict({0.93}, {0.95}, 0), Verdict::kUnknown);
}

TEST(Verdict, ADifferenceThatSeedsExplainIsNoGain) {
  EXPECT_EQ(verdict({0.93, 0.91, 0.92}, {0.92, 0.94, 0.95}, 100000), Verdict::kWithinNoise);
  EXPECT_EQ(verdict({0.93, 0.93, 0.93}, {0.95, 0.951, 0.949}, 100000), Verdict::kHigher);
  EXPECT_EQ(verdict({0.93, 0.93, 0.93}, {0.70, 0.71, 0.69}, 360), Verdict::kLower);
  EXPECT_EQ(verdict({0.93, 0.93, 0.93}, {0.70, 0.71, 0.69}, 0), Verdict::kLower);
}

TEST(Verdict, TheFrontHasTheCheapestOfThoseThatNoiseCannotTellApart) {
  const auto same = summarise(two_rows({0.93, 0.94, 0.92}, {0.92, 0.93, 0.93}, 360));
  EXPECT_FALSE(same[0].on_front);
  EXPECT_TRUE(same[1].on_front);
  const auto worse = summarise(two_rows({0.93, 0.93, 0.93}, {0.70, 0.71, 0.69}, 360));
  EXPECT_TRUE(worse[0].on_front);
  EXPECT_TRUE(worse[1].on_front);
}

TEST(Verdict, TablesAndThePageShowItAndNoGain) {
  const Results results = two_rows({0.930, 0.940, 0.920}, {0.940, 0.945, 0.935}, 360);
  const auto cases = summarise(results);
  EXPECT_EQ(difference_text(cases[0]), "baseline");
  // Seeds: differences of 1, 0.5 and 1.5 points, 4.303 · 0.5 / √3 = 1.242; 360 samples: 3.652.
  EXPECT_EQ(difference_text(cases[1]), "within noise (+1.00 ± 3.86)");
  for (const std::string& text : {text_table(cases), markdown_table(cases)}) {
    EXPECT_THAT(text, HasSubstr("within noise"));
    // The figure stands behind these words alone.
    EXPECT_THAT(text, HasSubstr("within noise (+1.00 ± 3.86)"));
    EXPECT_EQ(text.find("+1.00"), text.rfind("+1.00"));
    EXPECT_THAT(text, HasSubstr("93.00 (92.00–94.00)"));
  }
  EXPECT_THAT(table_notes(cases), HasSubstr("Means over 3 seeds"));
  EXPECT_THAT(table_notes(cases), HasSubstr("360 test samples"));
  EXPECT_THAT(table_notes(cases), Not(HasSubstr("Nothing was sent")));
  std::vector<CaseSummary> alone = cases;
  for (CaseSummary& one : alone) one.bytes_per_step = 0;
  EXPECT_THAT(table_notes(alone), HasSubstr("Nothing was sent"));
  const std::string page = html_report({.results = results, .cases = cases, .rules = {}});
  EXPECT_THAT(page, HasSubstr("<span class=\"even\">within noise</span>"));
  EXPECT_THAT(page, Not(HasSubstr("<span class=\"yes\">")));
  const auto lower = summarise(two_rows({0.93, 0.93, 0.93}, {0.70, 0.71, 0.69}, 360));
  EXPECT_THAT(difference_text(lower[1]), testing::StartsWith("-23.00 ± "));
}

TEST(StepTime, HiddenIsWhatCommunicationTakesBesideTheExposedPart) {
  const auto cases = summarise(two_rows({0.93}, {0.93}, 360));
  EXPECT_NEAR(cases[0].hidden_ms, 1 + 3 + 1 - 3, 1e-9);
  EXPECT_NEAR(cases[0].other_ms, 10 - 6 - 3, 1e-9);
  EXPECT_NEAR(cases[0].step.mean, 10, 1e-9);
  Results results = two_rows({0.93}, {0.93}, 360);
  results.runs[0].metrics.steps[1].exposed_seconds = 0.006;  // longer than the communication itself
  EXPECT_EQ(summarise(results)[0].hidden_ms, 0);
  results.runs[0].metrics.steps[1].wire_seconds = 0.100;  // no more is hidden than computing hides
  EXPECT_NEAR(summarise(results)[0].hidden_ms, 6, 1e-9);
}

std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  for (const char c : line) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

TEST(Tables, ColumnsOfATerminalEndTogether) {
  const auto cases = summarise(two_rows({0.930, 0.940, 0.920}, {0.940, 0.945, 0.935}, 360));
  std::istringstream lines(text_table(cases));
  std::string line;
  std::getline(lines, line);
  const std::size_t wide = columns(line);
  for (std::getline(lines, line); std::getline(lines, line);)
    EXPECT_EQ(columns(line), wide) << line;
  EXPECT_LE(wide, 132u);
  EXPECT_THAT(text_table(cases), Not(HasSubstr("\033")));
  EXPECT_THAT(text_table(cases, true), HasSubstr("\033[2mwithin noise"));
}

TEST(Tables, OfMarkdownHaveAsManyCellsInEveryLine) {
  const auto cases = summarise(two_rows({0.93, 0.94}, {0.94, 0.95}, 360));
  std::istringstream lines(markdown_table(cases));
  std::string line;
  std::getline(lines, line);
  const auto cells = std::count(line.begin(), line.end(), '|');
  EXPECT_THAT(line, HasSubstr("| exposed, ms |"));
  std::getline(lines, line);
  EXPECT_EQ(std::count(line.begin(), line.end(), '|'), cells);
  std::getline(lines, line);
  EXPECT_EQ(std::count(line.begin(), line.end(), '|'), cells);
  std::getline(lines, line);
  EXPECT_THAT(line, HasSubstr("| `a\\|b` |"));  // a rule of its own
  EXPECT_EQ(std::count(line.begin(), line.end(), '|'), cells + 1);
}

TEST(Tables, BytesHaveTheUnitOfTheirColumn) {
  EXPECT_EQ(byte_unit(999).name, "B");
  EXPECT_EQ(byte_unit(36575).name, "kB");
  EXPECT_EQ(byte_unit(2e6).name, "MB");
  EXPECT_EQ(byte_unit(2e9).bytes, 1e9);
  EXPECT_EQ(range_text(spread_of({1.5}), "%.2f"), "1.50");
  EXPECT_EQ(range_text(spread_of({1, 2}), "%.1f"), "1.5 (1.0–2.0)");
  EXPECT_EQ(range_text({}, "%.1f"), "–");
}

TEST(Headline, SaysWhatWasTrainedByWhomAndHowLongItTook) {
  EXPECT_EQ(headline_of(two_rows({0.93, 0.94, 0.92}, {0.94, 0.95, 0.93}, 360)),
            "cnn on digits (360 test samples), 2 compressors × 3 seeds: 2 steps of batch 128 by 4 "
            "ranks as processes over ucx. 6 runs took 12 s in all.");
  Results none = two_rows({}, {}, 0);
  none.file.plan.seeds = {1};
  EXPECT_EQ(headline_of(none),
            "Training, 2 compressors × 1 seed: by 4 ranks as processes over ucx.");
}

TEST(Headline, CallsRowsWhatTheyDifferIn) {
  Results results = two_rows({}, {}, 0);
  StudyPlan& plan = results.file.plan;
  plan.cases[1].compressor = plan.cases[0].compressor;
  EXPECT_THAT(headline_of(results), HasSubstr("Training, 2 rows × "));
  plan.cases[1].flags["parallel"] = "dp=2,tp=2";
  EXPECT_THAT(headline_of(results), HasSubstr("Training, 2 meshes × "));
  plan.cases[0].flags["parallel"] = "dp=2,tp=2";
  EXPECT_THAT(headline_of(results), HasSubstr("Training, 2 rows × "));
}

TEST(JsonReport, HasTheFiguresOfThePage) {
  Results results = two_rows({0.93, 0.93, 0.93}, {0.70, 0.71, 0.69}, 360);
  results.file.command = "gradwire compare \"x\"";
  const auto cases = summarise(results);
  const auto json =
      nlohmann::json::parse(json_report({.results = results, .cases = cases, .rules = {}}));
  EXPECT_EQ(json["command"], "gradwire compare \"x\"");
  const auto& row = json["settings"][0]["rows"][1];
  EXPECT_EQ(row["row"], "a|b");
  EXPECT_NEAR(row["accuracy_percent"]["mean"].get<double>(), 70, 1e-6);
  EXPECT_NEAR(row["accuracy_percent"]["least"].get<double>(), 69, 1e-6);
  EXPECT_EQ(row["accuracy_percent"]["seeds"], 3);
  EXPECT_EQ(row["difference_points"]["verdict"], "lower");
  EXPECT_NEAR(row["difference_points"]["mean"].get<double>(), -23, 1e-6);
  EXPECT_NEAR(row["difference_points"]["half_of_95_percent_interval"].get<double>(),
              *cases[1].noise, 1e-6);
  EXPECT_NEAR(row["milliseconds_per_step"]["exposed"]["mean"].get<double>(), 3, 1e-9);
  EXPECT_NEAR(row["ratio_to_fp32"].get<double>(), 10, 1e-9);
  EXPECT_TRUE(json["settings"][0]["rows"][0]["difference_points"].is_null());
  EXPECT_EQ(row["training_loss_course"].size(), 2u);
}

}  // namespace
}  // namespace gradwire
