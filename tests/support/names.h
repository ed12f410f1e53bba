// Judges text in which a failure is told by what it names: what a rank said that was a process,
// what a program printed, a warning. Of a Status there is fails().
#pragma once

#include <gmock/gmock.h>

#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/fails.h"

namespace gradwire {

// Whether `text` names every one of `words` (fails.h).
template <typename... Words>
bool names_all(std::string_view text, const Words&... words) {
  return (names(text, words) && ...);
}

// A failure as text, its code before its message; empty where there is none.
inline std::string code_and_message(const Status& status) {
  if (status.ok()) return "";
  return std::string(to_string(status.code())) + ": " + std::string(status.message());
}

class TellsMatcher {
 public:
  using is_gtest_matcher = void;
  explicit TellsMatcher(std::vector<std::string> words) : words_(std::move(words)) {}

  bool MatchAndExplain(std::string_view text, std::ostream* out) const {
    for (const std::string& word : words_) {
      if (names(text, word)) continue;
      if (out != nullptr) *out << "which does not name " << word;
      return false;
    }
    return true;
  }
  void DescribeTo(std::ostream* out) const {
    *out << "names";
    for (const std::string& word : words_) *out << " '" << word << "'";
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "does not name all of";
    for (const std::string& word : words_) *out << " '" << word << "'";
  }

 private:
  std::vector<std::string> words_;
};

// Of text: `EXPECT_THAT(warning, tells("rank 1", "/proc/nothing"))`. A failure that is told with
// its code is asked for by to_string(code).
template <typename... Words>
TellsMatcher tells(const Words&... words) {
  return TellsMatcher({std::string(words)...});
}

}  // namespace gradwire
