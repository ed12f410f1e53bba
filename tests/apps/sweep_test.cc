// What a sweep is made of: capacity, child processes, records of runs and their metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "apps/sweep/capacity.h"
#include "apps/sweep/child_pool.h"
#include "apps/sweep/run_metrics.h"
#include "apps/sweep/run_record.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::sweep_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Capacity, CountsCoresAndMemory) {
  Capacity capacity(4, 1000, 0);
  EXPECT_TRUE(capacity.admits({.cores = 9, .bytes = 9000}));  // with nothing running, always
  capacity.start({.cores = 2, .bytes = 400});
  EXPECT_TRUE(capacity.admits({.cores = 2, .bytes = 600}));
  EXPECT_FALSE(capacity.admits({.cores = 3, .bytes = 100}));
  EXPECT_FALSE(capacity.admits({.cores = 1, .bytes = 601}));
  EXPECT_FALSE(capacity.admits({.cores = 1, .bytes = 1, .alone = true}));
  capacity.end({.cores = 2, .bytes = 400});
  capacity.start({.cores = 1, .bytes = 1, .alone = true});
  EXPECT_FALSE(capacity.admits({.cores = 1, .bytes = 1}));
}

TEST(Capacity, ANumberOfJobsReplacesTheCores) {
  Capacity capacity(1, 1000, 2);
  capacity.start({.cores = 1, .bytes = 100});
  EXPECT_TRUE(capacity.admits({.cores = 1, .bytes = 100}));
  EXPECT_FALSE(capacity.admits({.cores = 1, .bytes = 901}));
  capacity.start({.cores = 1, .bytes = 100});
  EXPECT_FALSE(capacity.admits({.cores = 1, .bytes = 100}));
}

TEST(Capacity, TheMachineHasMemory) { EXPECT_GT(available_memory(), 1u << 20); }

class Notes final : public PoolObserver {
 public:
  Status starting(std::size_t index) override {
    started.push_back(index);
    return index == refused ? Status(Code::kInvalidArgument, "refused") : Status();
  }
  Status ended(const PoolResult& result) override {
    results.push_back(result);
    return {};
  }
  void waiting(const std::vector<std::size_t>& running) override {
    most = std::max(most, running.size());
  }
  std::vector<std::size_t> started;
  std::vector<PoolResult> results;
  std::size_t most = 0;
  std::size_t refused = 99;
};

PoolJob shell(std::size_t index, const TemporaryFolder& folder, const std::string& script,
              double timeout = 60) {
  return {
      .index = index,
      .command = {.environment = {{"GW_TEST_WORD", "hello"}}, .argv = {"/bin/sh", "-c", script}},
      .log = folder.path() + "/" + std::to_string(index),
      .load = {.cores = 1, .bytes = 0},
      .timeout_seconds = timeout};
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ChildPool, RunsAllInOrderAndSaysHowTheyEnded) {
  const TemporaryFolder folder;
  Notes notes;
  const Status status = run_children({shell(0, folder, "echo $GW_TEST_WORD; exit 3"),
                                      shell(1, folder, "kill -9 $$"), shell(2, folder, "true")},
                                     Capacity(1, 0, 0), notes);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(notes.started, ElementsAre(0u, 1u, 2u));
  ASSERT_EQ(notes.results.size(), 3u);
  EXPECT_EQ(notes.results[0].exit_status, 3);
  EXPECT_EQ(notes.results[1].exit_status, 137);
  EXPECT_EQ(notes.results[2].exit_status, 0);
  EXPECT_EQ(notes.most, 1u);
  EXPECT_GT(notes.results[0].peak_bytes, 0u);
  EXPECT_EQ(contents_of(folder.path() + "/0"), "hello\n");
}

TEST(ChildPool, EndsWhatTakesTooLongAndGoesOn) {
  const TemporaryFolder folder;
  Notes notes;
  const Status status = run_children(
      {shell(0, folder, "sleep 600", 0.05), shell(1, folder, "true")}, Capacity(1, 0, 0), notes);
  ASSERT_TRUE(status.ok());
  ASSERT_EQ(notes.results.size(), 2u);
  EXPECT_TRUE(notes.results[0].timed_out);
  EXPECT_FALSE(notes.results[1].timed_out);
}

TEST(ChildPool, AnErrorOfTheObserverEndsIt) {
  const TemporaryFolder folder;
  Notes notes;
  notes.refused = 1;
  const Status status = run_children({shell(0, folder, "sleep 600"), shell(1, folder, "true")},
                                     Capacity(2, 0, 0), notes);
  EXPECT_EQ(status.message(), "refused");
  EXPECT_TRUE(notes.results.empty());
}

TEST(RunRecord, GoesThroughItsFileAndAHalfRunHasNone) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_record(folder.path()).has_value());
  RunRecord record{.row = "r",
                   .setting = "s",
                   .spec = {{"ranks", 4}},
                   .command = "gradwire train",
                   .machine = machine(),
                   .host = "h",
                   .started = "2026-05-04T12:00:00Z",
                   .seconds = 1.5,
                   .peak_bytes = 1 << 20,
                   .outcome = RunOutcome::kDiverged,
                   .exit_status = 1,
                   .reason = "why \xff not"};  // no UTF-8: a log's words may be anything
  ASSERT_TRUE(write_record(folder.path(), record).ok());
  const auto read = read_record(folder.path());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->outcome, RunOutcome::kDiverged);
  EXPECT_EQ(read->spec, record.spec);
  EXPECT_EQ(read->machine.commit, machine().commit);
  EXPECT_EQ(read->seconds, 1.5);
  EXPECT_THAT(read->reason, HasSubstr("why"));
  for (const char* text : {"", "{", "[]", "{\"outcome\": \"complet\"}", "{\"outcome\": 3}"}) {
    std::ofstream(folder.path() + "/run.json") << text;
    EXPECT_FALSE(read_record(folder.path()).has_value()) << text;
  }
}

TEST(RunRecord, WordsAreTheFirstErrorElseTheLastLine) {
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/log";
  std::ofstream(log) << "step 1\nrank 1 | gradwire: error: first\ngradwire: error: second\nend\n\n";
  EXPECT_EQ(words_of(log), "rank 1 | first");
  EXPECT_FALSE(says_not_finite(log));
  std::ofstream(log) << "step 1\nbye\n";
  EXPECT_EQ(words_of(log), "bye");
  std::ofstream(log) << "gradwire: error: element 3 is inf (finite numbers wanted)\n";
  EXPECT_TRUE(says_not_finite(log));
  EXPECT_EQ(words_of("/nonexistent"), "");
}

TEST(RunMetrics, ReadsStepsTotalsAndATornLastLine) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/m";
  std::ofstream(path) << "{\"step\":0,\"loss\":2.5,\"bytes_sent\":100,\"nmse\":0.25}\n"
                         "{\"step\":1,\"loss\":2.0,\"accuracy\":0.5,\"bytes_sent\":100}\n"
                         "{\"step\":2,\"lo";
  const auto run = read_metrics(path);
  ASSERT_TRUE(run.has_value());
  ASSERT_EQ(run.value().steps.size(), 2u);
  EXPECT_FALSE(run.value().complete);
  EXPECT_EQ(run.value().accuracy, 0.5);
  EXPECT_EQ(run.value().steps[0].nmse, 0.25);
  EXPECT_FALSE(run.value().steps[1].nmse.has_value());
  std::ofstream(path) << "{\"step\":0,\"loss\":null}\n{\"total\":true,\"accuracy\":0.1}\n";
  const auto done = read_metrics(path);
  EXPECT_TRUE(done.value().complete);
  EXPECT_TRUE(done.value().diverged);
  EXPECT_EQ(done.value().totals["accuracy"], 0.1);
  std::ofstream(path) << "hello\n{\"step\":1}\n";
  EXPECT_THAT(read_metrics(path).error(), fails(Code::kInvalidArgument, path, "line 1"));
}

// What a run that ended left: its metrics, how it ended, and the steps that its record counts.
struct Left {
  std::string metrics;
  RunOutcome outcome = RunOutcome::kComplete;
  std::optional<std::int64_t> steps = {};
};

TEST(RunMetrics, OfARunThatEndedMustBeWhole) {
  const TemporaryFolder folder;
  const auto read = [&](const Left& left) {
    std::ofstream(metrics_path(folder.path())) << left.metrics;
    return read_whole_metrics(folder.path(), {.row = {},
                                              .setting = {},
                                              .spec = {},
                                              .command = {},
                                              .machine = {},
                                              .host = {},
                                              .started = {},
                                              .outcome = left.outcome,
                                              .reason = {},
                                              .steps = left.steps});
  };
  const std::string rows = "{\"step\":0,\"loss\":2}\n{\"step\":1,\"loss\":1}\n";
  const std::string gone = "{\"step\":0,\"loss\":2}\n{\"step\":1,\"loss\":null}\n";
  const std::string totals = "{\"total\":true,\"steps\":2,\"accuracy\":0.5}\n";
  const std::size_t first = rows.find('\n') + 1;
  EXPECT_TRUE(read({rows + totals}).has_value());
  EXPECT_TRUE(read({rows + totals, RunOutcome::kComplete, 2}).has_value());
  EXPECT_TRUE(read({gone, RunOutcome::kDiverged}).has_value());  // as older programs left it
  EXPECT_TRUE(read({gone, RunOutcome::kDiverged, 2}).has_value());
  for (const auto& [left, named] : std::vector<std::pair<Left, std::vector<const char*>>>{
           {{rows}, {"totals"}},
           {{rows + totals.substr(0, 20)}, {"line 3"}},
           {{rows.substr(0, first) + totals}, {"1 steps", "2"}},
           {{rows.substr(first) + totals}, {"line 1", "step 1"}},
           {{rows + "{\"total\":true,\"steps\":2}\n"}, {"totals", "accuracy"}},
           {{gone + totals}, {"line 2", "loss"}},
           {{gone, RunOutcome::kDiverged, 3}, {"2 steps", "3"}},
           {{gone.substr(0, first + 9), RunOutcome::kDiverged}, {"line 2"}}}) {
    const auto whole = read(left);
    ASSERT_FALSE(whole.has_value()) << left.metrics;
    EXPECT_THAT(whole.error(), fails(Code::kInvalidArgument, "metrics.jsonl"));
    for (const char* name : named) {
      EXPECT_THAT(whole.error(), fails(Code::kInvalidArgument, name));
    }
  }
}

}  // namespace
}  // namespace gradwire::sweep_test
