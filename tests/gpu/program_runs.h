// Short runs of `gradwire train` and `gradwire bench` in this process, for tests of what they do on
// devices.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "apps/bench/bench.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::gpu {

class ProgramRuns : public testing::Test {
 protected:
  // In a folder that goes with the test.
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // A short run of `train`, which leaves its parameters in that file; what it says.
  std::string train_briefly(Words words, const std::string& parameters) const {
    const Words brief{
        "--steps",       "3", "--batch", "24", "--hidden", "8", "--seed", "11", "--save-params",
        file(parameters)};
    words.insert(words.end(), brief.begin(), brief.end());
    return train(words);
  }

  // A short all-reduce, whose rows go to the file "rows"; "ok" or the error's text.
  std::string bench(const std::string& ranks, const Words& more) const {
    Words words{"all_reduce", "--inproc",  ranks,  "--min",  "1K",        "--max",
                "4K",         "--seconds", "0.01", "--json", file("rows")};
    words.insert(words.end(), more.begin(), more.end());
    const auto outcome = bench_command(words);
    return outcome.has_value() ? "ok" : std::string(outcome.error().message());
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace gradwire::gpu
