// Judges what became of ranks that were processes. A rank that crashes says nothing, and ranks that
// were never started say nothing either: an empty text alone is no proof that anything went well.
#pragma once

#include <gmock/gmock.h>

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/process_ranks.h"

namespace gradwire {

// What a test's failure prints.
inline void PrintTo(const ProcessOutcomes& outcomes, std::ostream* out) {
  if (!outcomes.has_value()) {
    *out << "not started: " << outcomes.error().message();
    return;
  }
  *out << outcomes.value().size() << " ranks";
  for (std::size_t r = 0; r < outcomes.value().size(); ++r) {
    const ProcessOutcome& rank = outcomes.value()[r];
    *out << "\n  rank " << r << ": "
         << (rank.ended     ? "wait status " + std::to_string(rank.wait_status)
             : rank.stopped ? "stopped"
                            : "still running at the limit")
         << ", said '" << rank.text << "'";
  }
}

// Matches ProcessOutcomes. `texts`: what each rank is to say; nothing is asked of a rank without.
class EndedMatcher final : public ::testing::MatcherInterface<const ProcessOutcomes&> {
 public:
  using Text = std::optional<::testing::Matcher<std::string>>;
  explicit EndedMatcher(std::vector<Text> texts) : texts_(std::move(texts)) {}

  bool MatchAndExplain(const ProcessOutcomes& outcomes,
                       ::testing::MatchResultListener* listener) const override {
    if (!outcomes.has_value()) return false;
    if (outcomes.value().size() != texts_.size()) {
      *listener << "which are " << outcomes.value().size();
      return false;
    }
    for (std::size_t r = 0; r < texts_.size(); ++r) {
      const ProcessOutcome& rank = outcomes.value()[r];
      if (!texts_[r].has_value()) continue;
      if (!rank.ended || rank.wait_status != 0) {
        *listener << "of which rank " << r << " did not exit with status 0";
        return false;
      }
      if (!texts_[r]->Matches(rank.text)) {
        *listener << "of which rank " << r << " said something else";
        return false;
      }
    }
    return true;
  }
  void DescribeTo(std::ostream* out) const override {
    *out << "are " << texts_.size() << " ranks that exit with status 0";
    for (std::size_t r = 0; r < texts_.size(); ++r) {
      *out << "\n  rank " << r << ": ";
      if (texts_[r].has_value()) {
        *out << "its text ";
        texts_[r]->DescribeTo(out);
      } else {
        *out << "anything";
      }
    }
  }

 private:
  std::vector<Text> texts_;
};

// So many ranks were started, and each exits with status 0 after it said what its matcher takes.
inline ::testing::Matcher<const ProcessOutcomes&> ended_saying(
    std::vector<EndedMatcher::Text> texts) {
  return ::testing::MakeMatcher(new EndedMatcher(std::move(texts)));
}
inline ::testing::Matcher<const ProcessOutcomes&> ended_saying(
    int ranks, ::testing::Matcher<std::string> text) {
  return ended_saying(std::vector<EndedMatcher::Text>(static_cast<std::size_t>(ranks), text));
}

// ... each without a word, which is what programs of these tests say when all was right.
inline ::testing::Matcher<const ProcessOutcomes&> ended_cleanly(int ranks) {
  return ended_saying(ranks, std::string());
}

// ... but for `victim`, of which nothing is asked here.
inline ::testing::Matcher<const ProcessOutcomes&> survivors_ended_saying(
    int ranks, int victim, ::testing::Matcher<std::string> text) {
  std::vector<EndedMatcher::Text> texts(static_cast<std::size_t>(ranks), text);
  texts[static_cast<std::size_t>(victim)].reset();
  return ended_saying(std::move(texts));
}

}  // namespace gradwire
