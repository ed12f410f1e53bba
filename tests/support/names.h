// Judges a text that is no Status (what a program prints) by what it names, as fails() does.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/support/fails.h"

namespace gradwire {

class NamesAllMatcher final : public ::testing::MatcherInterface<const std::string&> {
 public:
  explicit NamesAllMatcher(std::vector<std::string> words) : words_(std::move(words)) {}

  bool MatchAndExplain(const std::string& text,
                       ::testing::MatchResultListener* listener) const override {
    for (const std::string& word : words_) {
      if (names(text, word)) continue;
      *listener << "which does not name " << word;
      return false;
    }
    return true;
  }
  void DescribeTo(std::ostream* out) const override {
    *out << "names";
    for (const std::string& word : words_) *out << " '" << word << "'";
  }

 private:
  std::vector<std::string> words_;
};

// Of a std::string: `EXPECT_THAT(printed, names_all("rank 2", "SIGKILL"))`.
template <typename... Words>
inline ::testing::Matcher<const std::string&> names_all(const Words&... words) {
  return ::testing::MakeMatcher(new NamesAllMatcher({std::string(words)...}));
}

}  // namespace gradwire
