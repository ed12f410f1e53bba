#include "compress/signum/signum_kernels.h"

#include "tests/compress/small_codes.h"

namespace gradwire::signum_test {
namespace {

using namespace testing;
using Vector = std::vector<float>;

// beta = 0.5: momenta 1, then 1/2 - 3/2 = -1/2 on rank 0, 3/4 and then 3/4 elsewhere.
TEST(Signum, VotesOverMomentaNotGradients) {
  const auto compressor = make("signum:beta=0.5");
  auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(2), 2);
  const auto first = ranks.value().step({{2, -2}, {4, -4}}, 0);
  EXPECT_EQ(first.mean[0], (Vector{1, -1}));
  // Rank 0 turns (m = 0.5 - 1.5), rank 1 does not although its gradient does (m = 1 - 0.5): a tie.
  const auto second = ranks.value().step({{-3, -3}, {-1, -1}}, 1);
  EXPECT_EQ(second.own[0], (Vector{-1, -1}));
  EXPECT_EQ(second.own[1], (Vector{1, -1}));
  EXPECT_EQ(second.mean[0], (Vector{0, -1}));
  EXPECT_EQ(second.mean[1], second.mean[0]);
}

// Rows that no rank touches stay at zero, and a rank that did not touch a block has no vote on it.
TEST(Signum, ZeroBlocksHaveNoVote) {
  const auto compressor = make("signum");
  auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(700), 2);
  Vector a(700, 0.0f);
  Vector b(700, 0.0f);
  for (std::size_t i = 0; i < 256; ++i) a[i] = -1.0f;
  b[699] = -1.0f;
  const auto outcome = ranks.value().step({a, b}, 0);
  for (std::size_t i = 0; i < 256; ++i) ASSERT_EQ(outcome.mean[0][i], -1.0f) << i;
  for (std::size_t i = 256; i < 512; ++i) ASSERT_EQ(outcome.mean[0][i], 0.0f) << i;
  for (std::size_t i = 512; i < 699; ++i) ASSERT_EQ(outcome.mean[0][i], 1.0f) << i;  // sign(0)
  EXPECT_EQ(outcome.mean[0][699], -1.0f);
  EXPECT_EQ(outcome.own[1][3], 0.0f);
}

TEST(Signum, VoteIsTheSignOfTheSumOfOwn) {
  const auto compressor = make("signum");
  for (const int size : {1, 2, 3, 8}) {
    auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(1000), size);
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<Vector> grads;
      for (int r = 0; r < size; ++r) {
        const RandomStream data(r, RandomUse::kTest, 0, 0, 0, step);
        Vector x(1000);
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = i / 256 % 2 == static_cast<std::size_t>(r) % 2 ? static_cast<float>(data.normal(i))
                                                                : 0.0f;
        }
        grads.push_back(x);
      }
      const auto outcome = ranks.value().step(grads, step);
      for (std::size_t i = 0; i < 1000; ++i) {
        float sum = 0;
        for (const auto& own : outcome.own) sum += own[i];
        ASSERT_EQ(outcome.mean[0][i], static_cast<float>((sum > 0) - (sum < 0)))
            << size << " " << i;
      }
    }
  }
}

// The same for signs without momentum: a vote, bare signs, and slices under sra.
TEST(Signum, ZeroBlocksOfPlainSigns) {
  Vector a(600, 0.0f);
  Vector b(600, 0.0f);
  a[3] = -2.0f;
  b[4] = -1.0f;
  b[599] = 5.0f;
  for (const char* spec : {"signsgd:vote=majority,zeros=1", "signsgd:scale=none,zeros=1"}) {
    const auto compressor = make(spec);
    auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(600), 2);
    const auto outcome = ranks.value().step({a, b}, 0);
    EXPECT_EQ(outcome.mean[0][0], 1.0f) << spec;
    EXPECT_EQ(outcome.mean[0][3], 0.0f) << spec;  // a tie
    for (std::size_t i = 256; i < 512; ++i) ASSERT_EQ(outcome.mean[0][i], 0.0f) << spec << i;
    // Rank 0 has no vote on the last block.
    const bool vote = !compressor->traits().mean_is_average_of_own;
    for (std::size_t i = 512; i < 600; ++i) {
      ASSERT_EQ(outcome.mean[0][i], vote ? 1.0f : 0.5f) << spec << i;
    }
  }
  auto format = make("signsgd:vote=majority,zeros=1")->open_slices(Shape::vector(600), {});
  std::vector<std::byte> wire(format.value()->bytes(600, 0));
  ASSERT_EQ(wire.size(), 1u + 75);
  ASSERT_TRUE(format.value()->pack(const_view_of<float>(a), {}, wire, {}).has_value());
  Vector sum(600, 2.0f);
  ASSERT_TRUE(format.value()->unpack_add(wire, {}, view_of(std::span<float>(sum)), {}).ok());
  EXPECT_EQ(sum[0], 3.0f);
  EXPECT_EQ(sum[3], 1.0f);
  EXPECT_EQ(sum[300], 2.0f);
  EXPECT_EQ(format.value()->bytes(600, 1),
            150u);  // votes of two bits, which say zero by themselves
}

// A step that is refused leaves the momentum as it was.
TEST(Signum, NonFiniteGradientsDoNotReachTheMomentum) {
  const auto compressor = make("signum");
  auto coder = compressor->open(Shape::vector(2), {});
  std::vector<std::byte> payload(2);
  Vector grad{1.0f, std::numeric_limits<float>::infinity()};
  const auto view = view_of(std::span<float>(grad));
  ASSERT_TRUE(coder.value()->begin(view, 0, {}).ok());
  const auto refused = coder.value()->encode(0, payload, {});
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  const auto momentum = elements<float>(coder.value()->state()[0].tensor);
  EXPECT_EQ(momentum[0], 0.0f);
  grad[1] = -1.0f;
  ASSERT_TRUE(coder.value()->begin(view, 1, {}).ok());
  ASSERT_TRUE(coder.value()->encode(0, payload, {}).has_value());
  ASSERT_TRUE(coder.value()->encode(0, payload, {}).has_value());  // again: counted once
  EXPECT_FLOAT_EQ(momentum[0], 0.1f);
  EXPECT_FLOAT_EQ(momentum[1], -0.1f);
}

TEST(Signum, SpecsBytesAndImpossiblePayloads) {
  EXPECT_EQ(make("signum:beta=0.9")->spec(), "signum");
  EXPECT_EQ(make("signum:0.95")->spec(), "signum:beta=0.95");
  EXPECT_EQ(make("signsgd:zeros=1,scale=none")->spec(), "signsgd:scale=none,zeros=1");
  EXPECT_EQ(make("signsgd:zeros=1")->spec(), "signsgd");
  expect_refused({"signsgd:zeros=2", "signum:beta=1", "signum:beta=0", "signum:beta=-1"});
  EXPECT_EQ(signum_bytes(256 * 8), 1u + 256);
  EXPECT_EQ(signum_bytes(256 * 8 + 1), 2u + 257);
  const std::vector<std::byte> blocks{std::byte{2}, std::byte{1}};  // one block: bit 1 is nobody's
  EXPECT_EQ(cpu::check_signum(blocks, 3).code(), Code::kCorruptPayload);
  const std::vector<std::byte> signs{std::byte{1}, std::byte{8}};
  EXPECT_EQ(cpu::check_signum(signs, 3).code(), Code::kCorruptPayload);
  EXPECT_TRUE(cpu::check_signum(signs, 4).ok());
}

}  // namespace
}  // namespace gradwire::signum_test
