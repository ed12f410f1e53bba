#include "tests/support/chosen_files.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace gradwire::testing {
namespace {

constexpr std::string_view kFlag = "--file=";

// The names of the tests of NAME.cc, separated by colons: a filter of GoogleTest.
std::string tests_of(const std::string& name) {
  const std::string file = "/" + name + ".cc";
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  std::string filter;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(j);
      if (!std::string_view(test.file()).ends_with(file)) continue;
      filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

bool keep_files(int* argc, char** argv) {
  std::string chosen;
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    if (!std::string_view(argv[i]).starts_with(kFlag)) {
      argv[kept++] = argv[i];
      continue;
    }
    const std::string name(std::string_view(argv[i]).substr(kFlag.size()));
    const std::string tests = tests_of(name);
    if (tests.empty()) {
      std::fprintf(stderr, "gradwire: error: no tests of %s.cc in this program\n", name.c_str());
      return false;
    }
    chosen += tests;
  }
  *argc = kept;
  // A filter that is given as well stands alone.
  if (!chosen.empty() && GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, chosen);
  return true;
}

}  // namespace gradwire::testing
