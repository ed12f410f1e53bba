// What programs of before wrote (recorded/README.md): checkpoints are gone on from, specs are
// taken, studies and sweeps are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/report/report.h"
#include "apps/sweep/plan_file.h"
#include "apps/sweep/run_record.h"
#include "apps/sweep/study.h"
#include "apps/sweep/study_file.h"
#include "apps/train/train.h"
#include "gradwire/aggregator.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::recorded_test {
namespace {

namespace fs = std::filesystem;

constexpr Code kInvalid = Code::kInvalidArgument;

std::string recorded(const std::string& name) { return std::string(GW_RECORDED) + "/" + name; }

std::vector<std::string> lines_of(const std::string& name) {
  std::ifstream file(recorded(name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && !line.starts_with("# ")) lines.push_back(line);
  }
  return lines;
}

class Recorded : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string copy(const std::string& name) const {
    fs::copy(recorded(name), file("copy"), fs::copy_options::recursive);
    return file("copy");
  }
  static Words twelve_steps(Words flags, const Words& more) {
    flags.insert(flags.end(), {"--batch", "48", "--seed", "3", "--steps", "12"});
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  TemporaryFolder folder_;
};

// They say less of their run than later ones, and are gone on from as they were then. Where the six
// steps before and the six after are a run of twelve, what comes out is that run's; the last bits
// are the machine's that wrote them.
TEST_F(Recorded, CheckpointsAreGoneOnFrom) {
  const std::vector<std::string> all = lines_of("checkpoints.txt");
  EXPECT_EQ(all.size(), 28U);
  for (const std::string& line : all) {
    std::istringstream words(line);
    std::string name;
    std::string within;
    words >> name >> within;
    Words flags;
    for (std::string word; words >> word;) flags.push_back(word);
    SCOPED_TRACE(name);
    const std::string run = copy("checkpoints/" + name);
    EXPECT_EQ(train(twelve_steps(flags, {"--checkpoint", run, "--resume", "--metrics", file("m"),
                                         "--save-params", file("resumed")})),
              "ok");
    const auto metrics = json_lines(file("m"));
    ASSERT_EQ(metrics.size(), 6U + 1);
    EXPECT_EQ(metrics.front()["step"], 6);
    EXPECT_TRUE(fs::exists(run + "/step-0000000012"));
    if (within != "-") {
      EXPECT_EQ(train(twelve_steps(flags, {"--save-params", file("whole")})), "ok");
      EXPECT_LE(relative_distance(file("whole"), file("resumed")), std::stod(within));
    }
    fs::remove_all(run);
  }
}

// Its `dgc` had the optimizer's momentum beside its own: the refusal of that came later, and what
// is gone on with is dgc's alone.
TEST_F(Recorded, CheckpointsOfDgcBesideAMomentumAreGoneOnFromWithoutIt) {
  const std::vector<std::pair<std::string, Words>> all{
      {"dgc", {"--inproc", "2"}}, {"dgc-ps-sync", {"--inproc", "3", "--mode", "ps-sync"}}};
  for (const auto& [name, ranks] : all) {
    SCOPED_TRACE(name);
    const std::string run = copy("checkpoints/" + name);
    const Words words = twelve_steps(ranks, {"--hidden", "4", "--compressor", "dgc:ratio=0.05",
                                             "--checkpoint", run, "--resume"});
    Words asked = words;
    asked.insert(asked.end(), {"--momentum", "0.9"});
    EXPECT_THAT(refusal(asked), fails(kInvalid, "dgc", "--momentum 0"));
    ::testing::internal::CaptureStdout();
    const auto outcome = train_command(words);
    const std::string text = ::testing::internal::GetCapturedStdout();
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message();
    EXPECT_THAT(text, tells("momentum was 0.9", "dgc"));
    EXPECT_THAT(text, tells("momentum 0"));
    EXPECT_TRUE(fs::exists(run + "/step-0000000012"));
    fs::remove_all(run);
  }
}

// What a run's aggregator says of a spec, by the gradients of two layers.
Status taken(Communicator& alone, const std::string& spec) {
  AggregatorOptions options;
  options.compressor = spec;
  GW_ASSIGN(const auto aggregator, Aggregator::create(alone, Registry::builtin(), options));
  std::vector<float> values(256);
  for (const auto& [name, shape] :
       {std::pair{"fc1.weight", Shape{4, 64}}, std::pair{"fc1.bias", Shape{4}},
        std::pair{"fc2.weight", Shape{10, 4}}, std::pair{"fc2.bias", Shape{10}}}) {
    GW_TRY(aggregator->add(
        name, TensorView(reinterpret_cast<std::byte*>(values.data()), shape, DType::kF32)));
  }
  return {};
}

TEST_F(Recorded, SpecsAreTaken) {
  auto alone = make_inproc_communicators(1, {});
  ASSERT_TRUE(alone.has_value());
  const std::vector<std::string> all = lines_of("specs.txt");
  EXPECT_EQ(all.size(), 771U);
  for (const std::string& spec : all) {
    const Status status = taken(*alone.value()[0], spec);
    EXPECT_TRUE(status.ok()) << spec << ": " << status.message();
  }
  // It would be seen here if one were not.
  for (const char* refused : {"cast", "*.bias=none", "cast:bf16,ef=ef14,combine=sum"}) {
    EXPECT_FALSE(taken(*alone.value()[0], refused).ok()) << refused;
  }
}

TEST_F(Recorded, StudiesAreRead) {
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(recorded("studies"))) {
    const auto study = load_study(entry.path());
    ASSERT_TRUE(study.has_value()) << study.error().message();
    const auto plan = plan_of(study.value(), "inproc");
    EXPECT_TRUE(plan.has_value()) << entry.path() << ": " << plan.error().message();
    ++seen;
  }
  EXPECT_EQ(seen, 6);
}

// A sweep's folder: its plan, a record of every run, and the report of both.
TEST_F(Recorded, SweepsAreReported) {
  const std::string sweep = copy("sweep");
  const auto plan = read_plan_file(sweep);
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_EQ(plan.value().plan.cases.size(), 4U);
  int complete = 0;
  for (const auto& seeds : plan.value().runs) {
    for (const std::string& run : seeds) {
      const auto record = read_record(sweep + "/runs/" + run);
      ASSERT_TRUE(record.has_value()) << run;
      complete += record->outcome == RunOutcome::kComplete ? 1 : 0;
    }
  }
  EXPECT_EQ(complete, 8);
  ::testing::internal::CaptureStdout();
  const auto reported = report_command({sweep});
  const std::string text = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(reported.has_value()) << reported.error().message();
  EXPECT_EQ(reported.value(), 0);
  EXPECT_THAT(text, tells("top 5 %", "alone for a while", "accepted"));
  EXPECT_THAT(contents(sweep + "/table.csv"), ::testing::HasSubstr("sharded,none,2,0,"));
}

}  // namespace
}  // namespace gradwire::recorded_test
