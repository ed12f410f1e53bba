#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace gradwire::hash_test {
namespace {

TEST(Hash, EveryBitAndTheLengthMatter) {
  std::set<std::uint64_t> seen;
  std::vector<std::byte> bytes(19);
  seen.insert(hash_bytes(bytes));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{static_cast<unsigned char>(1u << (bit % 8))};
    seen.insert(hash_bytes(bytes));
    bytes[bit / 8] ^= std::byte{static_cast<unsigned char>(1u << (bit % 8))};
  }
  for (std::size_t n = 0; n < bytes.size(); ++n)
    seen.insert(hash_bytes(ConstByteSpan(bytes).first(n)));
  EXPECT_EQ(seen.size(), 1 + 19 * 8 + 19u);
}

TEST(Hash, NamesDiffer) { EXPECT_NE(hash_name("fc1.weight"), hash_name("fc2.weight")); }

}  // namespace
}  // namespace gradwire::hash_test
