// Judges a failure by its code and by what it names: keys, values, specs, ranks and numbers as they
// were given. The sentence around them may be worded anew; one golden test for each family of
// messages pins a whole one.
#pragma once

#include <gmock/gmock.h>

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// Whether `text` has `word` as a word of its own: no letter, digit or '_' continues it, and no
// number, which has a '.' between digits: "0.9" names neither 0 nor 9.
inline bool names(std::string_view text, std::string_view word) {
  const auto inside = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  const auto is_point = [&](std::size_t i) {
    return i > 0 && i < text.size() && text[i] == '.' && is_digit(i - 1) && is_digit(i + 1);
  };
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool left =
        at > 0 && ((inside(text[at - 1]) && inside(word.front())) || is_point(at - 1));
    const bool right =
        end < text.size() && ((inside(text[end]) && inside(word.back())) || is_point(end));
    if (!left && !right) return true;
  }
  return false;
}

class FailsMatcher final : public ::testing::MatcherInterface<const Status&> {
 public:
  FailsMatcher(Code code, std::vector<std::string> words) : code_(code), words_(std::move(words)) {}

  bool MatchAndExplain(const Status& status,
                       ::testing::MatchResultListener* listener) const override {
    *listener << to_string(status.code()) << ": " << status.message();
    if (status.code() != code_) return false;
    for (const std::string& word : words_) {
      if (names(status.message(), word)) continue;
      *listener << "; which does not name " << word;
      return false;
    }
    return true;
  }
  void DescribeTo(std::ostream* out) const override {
    *out << to_string(code_) << " that names";
    for (const std::string& word : words_) *out << " '" << word << "'";
  }

 private:
  Code code_;
  std::vector<std::string> words_;
};

// Of a Status: `EXPECT_THAT(made.error(), fails(Code::kInvalidArgument, "bits", "9"))`.
template <typename... Words>
::testing::Matcher<const Status&> fails(Code code, const Words&... words) {
  return ::testing::MakeMatcher(new FailsMatcher(code, {std::string(words)...}));
}

inline void PrintTo(const Status& status, std::ostream* out) {
  *out << to_string(status.code()) << ": " << status.message();
}

}  // namespace gradwire
