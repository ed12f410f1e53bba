// `gradwire plan` in this process: what it prints, and its rows.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "apps/plan/plan.h"
#include "apps/whole_file.h"
#include "tests/support/temporary_folder.h"

namespace gradwire {

struct CapturedPlan {
  std::string text;
  Status error;
  std::vector<nlohmann::json> rows;
};

inline CapturedPlan captured_plan(std::vector<std::string> words) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/rows";
  words.insert(words.end(), {"--json", file});
  ::testing::internal::CaptureStdout();
  const auto ended = plan_command(words);
  CapturedPlan captured;
  captured.text = ::testing::internal::GetCapturedStdout();
  if (!ended.has_value()) captured.error = ended.error();
  const auto lines = read_whole_file(file);
  std::istringstream in(lines.has_value() ? lines.value() : "");
  for (std::string line; std::getline(in, line);) {
    captured.rows.push_back(nlohmann::json::parse(line, nullptr, false));
  }
  return captured;
}

}  // namespace gradwire
