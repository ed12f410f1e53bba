// Tensors of more than 2^24 elements: every registered method.
#include <algorithm>
#include <string>
#include <vector>

#include "gradwire/testing/compressor_laws.h"

namespace gradwire::laws {
namespace {

// A spec of every method; beside those that need a key, two stages and other codings.
std::vector<std::string> specs() {
  const Registry registry = Registry::builtin();
  std::vector<std::string> all{"topk:k=50,index=gaps|cast:bf16", "topk:k=50,index=bitmap",
                               "randomk:ratio=0.5"};
  for (const Registry::Method& method : registry.methods()) {
    for (const std::string keys :
         {"", ":bits=4", ":bf16", ":k=50", ":ratio=0.00001", ":rank=1", ":tau=100"}) {
      if (!registry.make(method.name + keys).has_value()) continue;
      all.push_back(method.name + keys);
      break;
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Builtin, LargeTensorLaws,
                         ::testing::ValuesIn(large_subjects(Registry::builtin(), specs())),
                         name_of);

TEST(LargeTensorCases, EveryRegisteredMethodIsThere) {
  const std::vector<std::string> all = specs();
  EXPECT_EQ(all.size(), 3U + 24U);
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&method](const std::string& spec) {
      return spec.substr(0, spec.find(':')) == method.name;
    })) << method.name;
  }
}

}  // namespace
}  // namespace gradwire::laws
