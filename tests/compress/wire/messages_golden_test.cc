// The whole sentences of specs that are refused and of payloads that are corrupt, which other tests
// judge by their code and by what they name. Whoever words a message anew changes it here alone.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/elements.h"
#include "compress/little_endian.h"
#include "gradwire/registry.h"

namespace gradwire::messages_golden_test {
namespace {

std::string rules_refused(std::string_view text) {
  return std::string(parse_spec_rules(text).error().message());
}

std::string method_refused(std::string_view spec) {
  return std::string(Registry::builtin().make(spec).error().message());
}

TEST(CompressMessages, SpecsThatAreRefused) {
  EXPECT_EQ(rules_refused("*.bias=none; *@64K=topk:k=3"),
            "spec: '64K' is no size (expected LEAST..BELOW, either may be left out, in elements "
            "such as 4096 or 64K, or in bytes such as 4096B or 1MB)\n"
            "  *.bias=none; *@64K=topk:k=3\n"
            "                 ^");
  EXPECT_EQ(rules_refused("=none"), "spec: a pattern is missing before '='\n  =none\n  ^");
  EXPECT_EQ(method_refused("qsgd:bits=9"),
            "compressor 'qsgd': key 'bits' is '9' (expected an integer from 2 to 8)");
  EXPECT_TRUE(
      method_refused("topkk:ratio=0.1")
          .starts_with("compressor: unknown method 'topkk'; did you mean 'topk'? (known: none, "));
  EXPECT_TRUE(method_refused("topk:raito=0.1")
                  .starts_with("compressor 'topk': unknown key 'raito'; did you mean 'ratio'? "
                               "(value '0.1'; keys: "));
  EXPECT_EQ(method_refused("topk"),
            "compressor 'topk': exactly one of the keys 'ratio' and 'k' must be given");
  EXPECT_EQ(method_refused("topk:k=3|powersgd:rank=2"),
            "compressor 'topk:k=3|powersgd:rank=2': powersgd does not work element by element, so "
            "it cannot code the values of topk; write cast or qsgd there");
  EXPECT_EQ(method_refused("topk:ratio=0.1@5"),
            "compressor 'topk:ratio=0.1@5': key 'ratio': '0.1@5' is no schedule: it does not begin "
            "at step 0 (expected VALUE/VALUE@STEP/... with ascending steps, "
            "linear(FROM..TO@STEPS/STAGES) or exp(FROM..TO@STEPS/STAGES))");
}

TEST(CompressMessages, GradientsThatAreNotFinite) {
  const auto method = std::move(Registry::builtin().make("randomk:k=2")).value();
  const auto coder = std::move(method->open(Shape::vector(6), {})).value();
  const std::vector<float> x{1, 2, std::numeric_limits<float>::quiet_NaN(), 4, 5, 6};
  ASSERT_TRUE(coder->begin(const_view_of(std::span(x)), 0, {}).ok());
  std::vector<std::byte> payload(100);
  EXPECT_EQ(coder->encode(0, payload, {}).error().message(),
            "randomk: element 2 of (6) is nan (expected finite numbers: most are not sent, and "
            "would be forgotten)");
}

TEST(CompressMessages, PayloadsThatAreCorrupt) {
  const auto method = std::move(Registry::builtin().make("threshold:tau=1")).value();
  const auto coder = std::move(method->open(Shape::vector(6), {})).value();
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(coder->begin(const_view_of(std::span(x)), 0, {}).ok());
  std::vector<std::byte> payload(100);
  ASSERT_EQ(coder->encode(0, payload, {}).value(), 4u + 6 * 8);
  const auto refusal = [&](std::uint32_t count, std::uint32_t second, std::size_t bytes) {
    store_le(payload.data(), count);
    store_le(payload.data() + 4, second, 1);
    const ConstByteSpan one = ConstByteSpan(payload).first(bytes);
    return std::string(coder->absorb(0, std::span(&one, 1), {}).message());
  };
  EXPECT_EQ(refusal(6, 1, 52), "ok");
  EXPECT_EQ(refusal(7, 1, 60), "threshold: payload of rank 0: 7 pairs (expected at most 6)");
  EXPECT_EQ(refusal(5, 1, 52),
            "threshold: payload of rank 0: pairs: a payload of 48 bytes (expected 40)");
  EXPECT_EQ(refusal(6, 6, 52),
            "threshold: payload of rank 0: index 6 at place 1 (expected from 1 to 5)");
}

}  // namespace
}  // namespace gradwire::messages_golden_test
