#include "trainer/data/next_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/hash.h"
#include "base/philox.h"
#include "base/text.h"

namespace gradwire {

Result<std::uint32_t> next_token(std::span<const float> logits, const SamplingOptions& options,
                                 std::int64_t drawn) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) continue;
    return Status(
        Code::kInvalidArgument,
        format("token %zu has the logit %g (expected a finite one: the model's parameters "
               "may have diverged)",
               i, static_cast<double>(logits[i])));
  }
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) return static_cast<std::uint32_t>(best - logits.begin());
  std::vector<std::uint32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0U);
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < tokens.size()) {
    const auto end = tokens.begin() + options.top_k;
    std::ranges::partial_sort(tokens, end, [&](std::uint32_t a, std::uint32_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    tokens.erase(end, tokens.end());
  }
  std::vector<double> upto(tokens.size());  // sums of what is proportional to the probabilities
  double sum = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const double below = static_cast<double>(logits[tokens[i]]) - static_cast<double>(*best);
    upto[i] = sum += std::exp(below / options.temperature);
  }
  const RandomStream stream(options.seed, RandomUse::kPlaces, hash_name("next token"), kSharedRank,
                            0, static_cast<std::uint64_t>(drawn));
  const double place = sum * static_cast<double>(stream.uniform(0));
  const auto found = std::upper_bound(upto.begin(), upto.end(), place);
  return tokens[static_cast<std::size_t>(std::min(found, upto.end() - 1) - upto.begin())];
}

}  // namespace gradwire
