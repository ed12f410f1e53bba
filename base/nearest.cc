#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

namespace gradwire {
namespace {

constexpr std::size_t kLongest = 64;  // longer words are no misspelt names
constexpr std::size_t kShortestBeginning = 3;
constexpr std::size_t kLettersPerError = 3;

// What other programs call a flag of ours.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"learning-rate", "lr"},  {"batch-size", "batch"}, {"dataset", "data"}, {"world-size", "ranks"},
    {"num-epochs", "epochs"}, {"num-steps", "steps"},  {"output", "out"},   {"nproc", "ranks"},
};

std::string plain(std::string_view word) {
  std::string text(word);
  for (char& c : text) {
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// Letters to change, add, remove or swap with a neighbour (optimal string alignment).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::size_t errors_allowed(const std::string& a, const std::string& b) {
  return std::max(a.size(), b.size()) / kLettersPerError;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > kLongest) return "";
  const std::string wanted = plain(word);
  for (const auto& [other, name] : kOtherNames) {
    const bool close = distance(wanted, plain(other)) <= 1;
    if (close && std::ranges::find(known, name) != known.end()) return std::string(name);
  }
  std::string best;
  std::size_t least = kLongest;
  std::string begun;
  int beginnings = 0;
  for (const std::string& candidate : known) {
    const std::string name = plain(candidate);
    if (wanted.size() >= kShortestBeginning && name.starts_with(wanted)) {
      begun = candidate;
      ++beginnings;
    }
    const std::size_t errors = distance(wanted, name);
    if (errors >= least || errors > errors_allowed(wanted, name)) continue;
    least = errors;
    best = candidate;
  }
  return best.empty() && beginnings == 1 ? begun : best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         std::string_view prefix) {
  const std::string close = nearest(word, known);
  return close.empty() ? "" : "; did you mean '" + std::string(prefix) + close + "'?";
}

}  // namespace gradwire
