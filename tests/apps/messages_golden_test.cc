// The whole sentences of two families of errors: studies, and the runs that a report reads. All
// other tests judge an error by its code and by what it names; flags_test.cc and mpi_test.cc pin
// the sentences of flags and of launchers.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "apps/sweep/plan_file.h"
#include "apps/sweep/run_metrics.h"
#include "apps/sweep/study.h"
#include "apps/sweep/study_file.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::messages_golden_test {
namespace {

struct Golden {
  Status error;
  std::string text;
};

void expect_all(const std::vector<Golden>& errors) {
  for (const Golden& one : errors) {
    EXPECT_EQ(one.error.code(), Code::kInvalidArgument) << one.text;
    EXPECT_EQ(one.error.message(), one.text);
  }
}

TEST(Messages, OfStudies) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/study.toml";
  const auto refused = [&](const std::string& text) {
    std::ofstream(path) << text;
    auto study = load_study(path);
    if (!study.has_value()) return study.error();
    const auto plan = plan_of(std::move(study).value(), "ucx");
    return plan.has_value() ? Status() : plan.error();
  };
  const std::string row = "[[row]]\ncompressor = \"none\"\n";
  expect_all({
      {refused("[grid]\nlr = [7, 7]\n"), path + ", line 2: axis 'lr' has '7' twice"},
      {refused("inproc = 2\nranks = 2\n" + row),
       path + ", line 1: keys 'ranks' and 'inproc' exclude each other (got both)"},
      {refused("ranks = 0\n" + row), path + ", line 1: key 'ranks' must be 1 to 4096 ranks"},
      {refused("target = 101\n" + row),
       path + ", line 1: key 'target' must be 0 to 100 percent (got 101)"},
      {refused("ranks = 4\nlab = \"3x1gbit\"\n" + row),
       "study: lab 3x1gbit: ranks must be a multiple of hosts (got 4 ranks on 3 hosts)"},
      {refused(row + row), "study: two rows are named 'none'"},
      {refused(row + "[[accept]]\nrow = \"topk\"\nat_least = 1\n"),
       "study: accept: there is no row 'topk'"},
  });
}

TEST(Messages, OfReports) {
  const TemporaryFolder folder;
  const std::string metrics = metrics_path(folder.path());
  const auto refused = [&](const std::string& lines, std::optional<std::int64_t> steps = {}) {
    std::ofstream(metrics) << lines;
    RunRecord record{};
    record.outcome = RunOutcome::kComplete;
    record.steps = steps;
    const auto read = read_whole_metrics(folder.path(), record);
    return read.has_value() ? Status() : read.error();
  };
  const std::string step = "{\"step\":0,\"loss\":2}\n";
  const std::string totals = "{\"total\":true,\"steps\":2,\"accuracy\":0.5}\n";
  expect_all({
      {refused("hello\n" + step), metrics + ", line 1: not a JSON object"},
      {refused(step + "{\"step\""), metrics + ": line 2 is cut off"},
      {refused("{\"step\":3,\"loss\":2}\n"), metrics + ": line 1: got step 3, expected 0"},
      {refused(step), metrics + ": got 1 steps and no totals (expected both of a complete run)"},
      {refused("{\"step\":0}\n" + totals),
       metrics + ": line 1 has no loss (expected one of a complete run)"},
      {refused(step + "{\"total\":true}\n"),
       metrics + ": totals have no accuracy (expected one of a complete run)"},
      {refused(step + totals), metrics + ": got 1 steps, expected 2, as in its totals"},
      {refused(step + totals, 5), metrics + ": got 1 steps, expected 5, as when the run ended"},
      {read_plan_file(folder.path()).error(),
       "'" + folder.path() + "' holds no sweep or comparison: cannot read '" + folder.path() +
           "/study.json' (No such file or directory)"},
  });
}

}  // namespace
}  // namespace gradwire::messages_golden_test
