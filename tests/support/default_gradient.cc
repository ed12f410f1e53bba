#include "tests/support/default_gradient.h"

#include <vector>

#include "base/hash.h"
#include "base/philox.h"

namespace gradwire::testing {
namespace {

// The random numbers of a rank's part of the gradient, or of kSharedRank's.
RandomStream random_of(const std::string& tensor, int who, int step) {
  return {11, RandomUse::kTest, hash_name(tensor), who, 0, static_cast<std::uint64_t>(step)};
}

float sum_of_parts(std::uint32_t own, std::uint32_t shared) {
  const auto part = [](std::uint32_t word) {
    return static_cast<float>(word >> 8) * 0x1p-24F - 0.5F;
  };
  return 2 * part(own) + 0.5F * part(shared);
}

}  // namespace

float default_gradient(const std::string& tensor, int rank, int step, std::int64_t e) {
  const auto element = static_cast<std::uint64_t>(e);
  return sum_of_parts(random_of(tensor, rank, step).word(element),
                      random_of(tensor, kSharedRank, step).word(element));
}

void default_gradients(const std::string& tensor, int rank, int step, std::span<float> out) {
  std::vector<std::uint32_t> own(out.size());
  std::vector<std::uint32_t> shared(out.size());
  random_of(tensor, rank, step).words(0, own);
  random_of(tensor, kSharedRank, step).words(0, shared);
  for (std::size_t e = 0; e < out.size(); ++e) out[e] = sum_of_parts(own[e], shared[e]);
}

}  // namespace gradwire::testing
