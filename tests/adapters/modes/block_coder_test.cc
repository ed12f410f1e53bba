// What one rank sends to one other: every method, and hostile bytes.
#include "adapters/trainer/modes/block_coder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/philox.h"
#include "tests/support/fails.h"

namespace gradwire::testing::block_coder_test {
namespace {

using End = BlockCoder::End;
const Registry& registry() {
  static const Registry kBuiltin = Registry::builtin();
  return kBuiltin;
}
const KeyBlock& block() {
  static const KeyBlock kBlock{"fc.weight", Shape::matrix(48, 40), 0, 0};
  return kBlock;
}
constexpr std::size_t kElems = 48 * 40;

std::vector<float> gradient(std::uint64_t step) {
  const RandomStream draws(3, RandomUse::kTest, 1, 0, 0, step);
  std::vector<float> values(kElems);
  for (std::size_t i = 0; i < kElems; ++i) values[i] = static_cast<float>(draws.normal(i));
  return values;
}

// A method as it stands and, where a key is needed, with one.
std::string spec_of(const Registry::Method& method) {
  for (const char* keys : {"", ":ratio=0.1", ":rank=2", ":bits=4", ":budget=3", ":k=50",
                           ":type=bf16", ":threshold=1", ":0.1", ":2"}) {
    if (registry().make(method.name + keys).has_value()) return method.name + keys;
  }
  return "";
}

TEST(BlockCoder, EveryMethodIsDecodedAsTheSenderSays) {
  for (const Registry::Method& method : registry().methods()) {
    const std::string spec = spec_of(method);
    ASSERT_NE(spec, "") << method.name;
    const BlockCoding coding{spec, true, 5};
    auto sender = BlockCoder::open(registry(), coding, block(), End::kSender, true);
    auto receiver = BlockCoder::open(registry(), coding, block(), End::kReceiver, true);
    ASSERT_TRUE(sender.has_value()) << spec << ": " << sender.error().message();
    ASSERT_TRUE(receiver.has_value()) << spec;
    for (std::uint64_t step = 0; step < 5; ++step) {
      std::vector<std::byte> bytes;
      std::vector<float> said(kElems);
      std::vector<float> got(kElems);
      const Status encoded = sender.value()->encode(gradient(step), step, bytes, said);
      ASSERT_TRUE(encoded.ok()) << spec << ": " << encoded.message();
      EXPECT_LE(bytes.size(), sender.value()->most_bytes()) << spec;
      const auto used = receiver.value()->decode(bytes, step, got);
      EXPECT_TRUE(used.has_value()) << spec << ": " << used.error().message();
      if (!used.has_value()) break;
      EXPECT_EQ(used.value(), bytes.size()) << spec;
      EXPECT_EQ(got, said) << spec << ", step " << step;
    }
  }
}

// What was not sent is sent later: the sums of what went in and of what came out differ by the
// last residual alone, which a top-k of a tenth keeps below ten gradients' norm.
TEST(BlockCoder, FeedbackLosesNothing) {
  const BlockCoding coding{"topk:ratio=0.25,ef=ef14", false, 5};
  auto sender = BlockCoder::open(registry(), coding, block(), End::kSender, true);
  auto receiver = BlockCoder::open(registry(), coding, block(), End::kReceiver, true);
  ASSERT_TRUE(sender.has_value() && receiver.has_value());
  std::vector<double> missing(kElems, 0.0);
  for (std::uint64_t step = 0; step < 60; ++step) {
    std::vector<std::byte> bytes;
    std::vector<float> got(kElems);
    const std::vector<float> in = gradient(step);
    ASSERT_TRUE(sender.value()->encode(in, step, bytes, {}).ok());
    ASSERT_TRUE(receiver.value()->decode(bytes, step, got).has_value());
    for (std::size_t i = 0; i < kElems; ++i) missing[i] += static_cast<double>(in[i]) - got[i];
  }
  double squares = 0;
  for (const double m : missing) squares += m * m;
  EXPECT_LT(std::sqrt(squares / kElems), 6);  // 60 dropped gradients would be sqrt(60) = 7.7 at 0 %
  // In the next steps zeros come in, and what was kept goes out.
  std::vector<float> nothing(kElems, 0.0F);
  for (std::uint64_t step = 60; step < 64; ++step) {
    std::vector<std::byte> bytes;
    std::vector<float> got(kElems);
    ASSERT_TRUE(sender.value()->encode(nothing, step, bytes, {}).ok());
    ASSERT_TRUE(receiver.value()->decode(bytes, step, got).has_value());
    for (std::size_t i = 0; i < kElems; ++i) missing[i] -= got[i];
  }
  // Four quarters: everything is out, to rounding.
  for (const double m : missing) EXPECT_NEAR(m, 0, 1e-4);
}

TEST(BlockCoder, BadBytesAreRefused) {
  const BlockCoding coding{"topk:ratio=0.1", true, 5};
  auto sender = BlockCoder::open(registry(), coding, block(), End::kSender, true);
  ASSERT_TRUE(sender.has_value());
  std::vector<std::byte> good;
  ASSERT_TRUE(sender.value()->encode(gradient(0), 0, good, {}).ok());
  const auto decode = [&](std::vector<std::byte> bytes) {
    auto receiver = BlockCoder::open(registry(), coding, block(), End::kReceiver, true);
    std::vector<float> got(kElems);
    return receiver.value()->decode(bytes, 0, got).error().code();
  };
  EXPECT_EQ(decode(good), Code::kOk);
  for (const std::size_t cut :
       {std::size_t{0}, std::size_t{3}, std::size_t{4}, good.size() / 2, good.size() - 1}) {
    EXPECT_EQ(decode({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(cut)}),
              Code::kCorruptPayload)
        << cut;
  }
  std::vector<std::byte> long_round = good;
  long_round.at(3) = std::byte{0x7F};
  EXPECT_EQ(decode(long_round), Code::kCorruptPayload);
  std::vector<std::byte> bad_index = good;
  bad_index.at(4) = bad_index.at(5) = bad_index.at(6) = bad_index.at(7) = std::byte{0xFF};
  EXPECT_EQ(decode(bad_index), Code::kCorruptPayload);
}

// A method that is nothing but a claim of what it may send.
template <std::size_t Most>
class Claims final : public Compressor {
 public:
  std::string spec() const override { return "claims"; }
  Traits traits() const override { return {.needs_error_feedback = false}; }
  ErrorBound bound(const Shape&) const override { return {}; }
  std::size_t max_payload_bytes(const Shape&, DType, int, int) const override { return Most; }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    return registry().make("topk:k=1").value()->open(shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported, "claims only");
  }
};

template <std::size_t Most>
Status opened(End end) {
  Registry own;
  const Status added =
      own.add({"claims", "a claim", "", {}, [](const Spec&) {
                 return Result<std::unique_ptr<Compressor>>(std::make_unique<Claims<Most>>());
               }});
  EXPECT_TRUE(added.ok()) << added.message();
  return BlockCoder::open(own, {"claims", false, 5}, block(), end, true).error();
}

// Lengths of rounds have 32 bits: what they cannot say is refused before anything is sent.
TEST(BlockCoder, RoundsOf4GiBAreRefused) {
  for (const End end : {End::kSender, End::kReceiver}) {
    const Status most = opened<0xffffffff>(end);
    EXPECT_TRUE(most.ok()) << most.message();
    EXPECT_THAT(opened<0x100000000>(end),
                fails(Code::kUnsupported, "fc.weight", "4294967296", "4294967295"));
  }
}

TEST(MessageCoder, BytesBehindTheLastBlockAreRefused) {
  auto coder = MessageCoder::open(registry(), {}, {block()}, End::kReceiver, true);
  ASSERT_TRUE(coder.has_value());
  std::vector<float> got(kElems);
  EXPECT_TRUE(coder.value().decode(std::vector<std::byte>(4 * kElems), 0, got).ok());
  EXPECT_EQ(coder.value().decode(std::vector<std::byte>(4 * kElems + 1), 0, got).code(),
            Code::kCorruptPayload);
}

}  // namespace
}  // namespace gradwire::testing::block_coder_test
