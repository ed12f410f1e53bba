// Methods that keep something between steps: payloads, means and state of every step are the
// host's.
#include <algorithm>
#include <limits>

#include "tests/gpu/device_pair.h"
#include "tests/gpu/hosted_method.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::state_test {
namespace {

using gpu::gradient;
using gpu::HostedMethod;
using testing::CoderRanks;

constexpr int kRanks = 3;

// dgc: the k largest exactly; of what a sample says, too many, too few, and in between.
const char* const kSpecs[] = {"signum",
                              "signum:beta=0.5",
                              "dgc:ratio=0.1",
                              "dgc:ratio=0.001",
                              "dgc:ratio=0.3,nesterov=true,masking=false",
                              "dgc:ratio=0.02,clip=0.5,index=bitmap",
                              "dgc:ratio=0.05,sample=1|qsgd:bits=4"};

struct Pairs {
  std::unique_ptr<Compressor> method;
  std::unique_ptr<Compressor> hosted;
  Result<CoderRanks<float>> here;
  Result<CoderRanks<float>> there;
};
Pairs open_pairs(const std::string& spec, std::size_t elems) {
  auto method = testing::make(spec);
  std::unique_ptr<Compressor> hosted = std::make_unique<HostedMethod>(testing::make(spec));
  const Shape shape = Shape::vector(static_cast<std::int64_t>(elems));
  auto here = CoderRanks<float>::open(*method, shape, kRanks);
  auto there = CoderRanks<float>::open(*hosted, shape, kRanks);
  EXPECT_TRUE(there.has_value()) << there.error().message();
  return {std::move(method), std::move(hosted), std::move(here), std::move(there)};
}

std::vector<std::vector<float>> gradients(std::size_t elems, std::uint64_t step) {
  std::vector<std::vector<float>> all;
  for (std::uint64_t r = 0; r < kRanks; ++r) all.push_back(gradient(elems, 10 * step + r));
  return all;
}

void expect_same_state(Coder& here, Coder& there) {
  const auto kept = here.state();
  const auto kept_there = there.state();
  ASSERT_FALSE(kept.empty());
  ASSERT_EQ(kept_there.size(), kept.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept_there[i].name, kept[i].name);
    EXPECT_EQ(kept_there[i].tensor.shape(), kept[i].tensor.shape());
    EXPECT_TRUE(std::ranges::equal(kept_there[i].tensor.bytes(), kept[i].tensor.bytes()))
        << kept[i].name;
  }
}

void expect_same_step(Pairs& pairs, const std::vector<std::vector<float>>& grads,
                      std::uint64_t step) {
  const auto here = pairs.here.value().step(grads, step);
  const auto there = pairs.there.value().step(grads, step);
  ASSERT_TRUE(here.status.ok()) << here.status.message();
  ASSERT_TRUE(there.status.ok()) << there.status.message();
  EXPECT_EQ(there.bytes, here.bytes);
  EXPECT_EQ(there.mean, here.mean);
  EXPECT_EQ(there.own, here.own);
  for (int r = 0; r < kRanks; ++r) {
    expect_same_state(pairs.here.value().coder(r), pairs.there.value().coder(r));
  }
}

TEST(DeviceState, IsTheHostsAfterEveryStep) {
  for (const std::string spec : kSpecs) {
    for (const std::size_t elems : {std::size_t{1}, std::size_t{257}, std::size_t{9001}}) {
      Pairs pairs = open_pairs(spec, elems);
      for (std::uint64_t step = 0; step < 4; ++step) {
        SCOPED_TRACE(spec + " of " + std::to_string(elems) + ", step " + std::to_string(step));
        expect_same_step(pairs, gradients(elems, step), step);
      }
    }
  }
}

// A step that is refused leaves the state, and the next goes on from it.
TEST(DeviceState, StaysWhereAGradientIsNotFinite) {
  for (const std::string spec : kSpecs) {
    for (const std::size_t bad : {std::size_t{0}, std::size_t{4321}}) {
      SCOPED_TRACE(spec);
      Pairs pairs = open_pairs(spec, 5000);
      expect_same_step(pairs, gradients(5000, 1), 0);
      auto grads = gradients(5000, 2);
      for (auto& grad : grads) grad[bad] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(pairs.here.value().step(grads, 1).status.code(), Code::kInvalidArgument);
      const auto refused = pairs.there.value().step(grads, 1);
      // The norm is not finite, where it is wanted.
      const bool clips = spec.find("clip") != std::string::npos;
      const std::string named = clips ? "norm" : "element " + std::to_string(bad);
      EXPECT_THAT(refused.status, fails(Code::kInvalidArgument, named));
      expect_same_step(pairs, gradients(5000, 3), 2);
    }
  }
}

// What a checkpoint brings back is what the next step goes on from.
TEST(DeviceState, ThatIsWrittenIsTaken) {
  for (const std::string spec : kSpecs) {
    SCOPED_TRACE(spec);
    Pairs pairs = open_pairs(spec, 700);
    expect_same_step(pairs, gradients(700, 1), 0);
    for (int r = 0; r < kRanks; ++r) {
      const auto here = pairs.here.value().coder(r).state();
      const auto there = pairs.there.value().coder(r).state();
      for (std::size_t i = 0; i < here.size(); ++i) {
        const std::vector<float> kept = gradient(700, 40 + i);
        const auto bytes = const_view_of<float>(kept).bytes();
        std::ranges::copy(bytes, here[i].tensor.bytes().begin());
        std::ranges::copy(bytes, there[i].tensor.bytes().begin());
      }
    }
    expect_same_step(pairs, gradients(700, 2), 1);
  }
}

}  // namespace
}  // namespace gradwire::state_test
