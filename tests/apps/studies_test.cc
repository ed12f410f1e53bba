// The studies that the documentation carries can be run as they stand.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "apps/sweep/study.h"
#include "apps/sweep/study_file.h"

namespace gradwire::studies_test {
namespace {

namespace fs = std::filesystem;

TEST(Studies, EveryOneIsWellFormedAndSaysWhatItExpects) {
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(GW_STUDIES)) {
    if (entry.path().extension() != ".toml") continue;
    const auto study = load_study(entry.path());
    ASSERT_TRUE(study.has_value()) << study.error().message();
    EXPECT_FALSE(study.value().expected.empty()) << entry.path();
    ++seen;
  }
  EXPECT_GE(seen, 5);
}

// T9: epochs are fixed, batches are 1, 8 and 64 times as large, with the same rate and one in
// proportion.
TEST(Studies, T9_BatchSizesAtFixedEpochsWithTheRateFixedAndInProportion) {
  const auto study = load_study(std::string(GW_STUDIES) + "/batch_size.toml");
  ASSERT_TRUE(study.has_value()) << study.error().message();
  const auto plan = plan_of(study.value(), "inproc");
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  std::map<std::string, std::set<double>> rates;  // by batch
  double batch = 0;
  double rate = 0;
  for (const StudyCase& one : plan.value().cases) {
    EXPECT_EQ(one.flags.at("epochs"), plan.value().cases.front().flags.at("epochs"));
    rates[one.flags.at("batch")].insert(std::stod(one.flags.at("lr")));
    if (one.row != plan.value().baseline) continue;
    batch = std::stod(one.flags.at("batch"));
    rate = std::stod(one.flags.at("lr"));
  }
  ASSERT_EQ(rates.size(), 3U);
  for (const auto& [size, seen] : rates) {
    const double factor = std::stod(size) / batch;
    EXPECT_TRUE(factor == 1 || factor == 8 || factor == 64) << size;
    EXPECT_EQ(seen, (std::set<double>{rate, rate * factor})) << size;
  }
}

}  // namespace
}  // namespace gradwire::studies_test
