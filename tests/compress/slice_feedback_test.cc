// Error feedback that a format does as it packs leaves the bits that separate passes leave.
#include "compress/error_feedback/slice_feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/elements.h"
#include "device/ops.h"
#include "gradwire/registry.h"
#include "tests/support/fails.h"

namespace gradwire::slice_feedback_test {
namespace {

constexpr std::int64_t kElems = 5000;
constexpr std::int64_t kOwnFirst = 1700;  // the part that nobody packs
constexpr std::int64_t kOwnCount = 1601;

// The slices of one tensor, of one rank, in one of the two ways.
template <typename T>
class Packer {
 public:
  Packer(const std::string& spec, double scale, bool at_once) : scale_(scale), at_once_(at_once) {
    const auto method = Registry::builtin().make(spec);
    EXPECT_TRUE(method.has_value()) << method.error().message();
    Compressor::Placement where;
    where.dtype = DTypeOf<T>::kValue;
    where.size = 3;
    where.rank = 1;
    where.seed = 7;
    where.tensor = 11;
    auto format = method.value()->open_slices(Shape::vector(kElems), where);
    EXPECT_TRUE(format.has_value()) << format.error().message();
    format_ = std::move(format).value();
    FeedbackOptions options;
    options.kind = FeedbackKind::kEf14;
    auto feedback = make_slice_feedback(options, Shape::vector(kElems), where, 0);
    EXPECT_TRUE(feedback.has_value());
    feedback_ = std::move(feedback).value();
  }

  bool packs() const { return feedback_->packs(*format_); }

  // The payloads of one step, one after another.
  std::vector<std::byte> step(std::vector<T>& gradient, std::uint64_t number) {
    payloads_.clear();
    const TensorView input = view_of<T>(std::span<T>(gradient));
    TensorView values = input;
    if (at_once_) {
      const auto corrected = feedback_->correct_part(input.slice(kOwnFirst, kOwnCount), kOwnFirst);
      EXPECT_TRUE(corrected.has_value());
      own_ = corrected.value().slice(kOwnFirst, kOwnCount);
    } else {
      const auto corrected = feedback_->correct(input, number);
      EXPECT_TRUE(corrected.has_value());
      values = corrected.value();
      own_ = values.slice(kOwnFirst, kOwnCount);
    }
    const auto mine = elements<T>(own_);
    const std::vector<T> kept(mine.begin(), mine.end());
    pack(values, 0, kOwnFirst, number);
    pack(values, kOwnFirst + kOwnCount, kElems - kOwnFirst - kOwnCount, number);
    EXPECT_EQ(std::memcmp(kept.data(), own_.data(), own_.bytes().size()), 0)
        << "the own part waits for its turn";
    const auto* bytes = reinterpret_cast<const std::byte*>(kept.data());
    payloads_.insert(payloads_.end(), bytes, bytes + own_.bytes().size());
    EXPECT_TRUE(feedback_->settle_exactly(kOwnFirst, kOwnCount).ok());
    EXPECT_TRUE(feedback_->finish().ok());
    return payloads_;
  }

  std::vector<T> residual() {
    const auto state = feedback_->state();
    EXPECT_EQ(state.size(), 1U);
    const auto values = elements<T>(state[0].tensor);
    return {values.begin(), values.end()};
  }

 private:
  void pack(TensorView values, std::int64_t first, std::int64_t count, std::uint64_t number) {
    const Slice slice{number, 11, 1, 0, first};
    std::vector<std::byte> wire(format_->bytes(count, 0));
    const TensorView part = values.slice(first, count);
    if (at_once_) {
      const auto wrote = feedback_->pack(*format_, {part, first, slice, scale_}, wire);
      ASSERT_TRUE(wrote.has_value()) << wrote.error().message();
      ASSERT_EQ(wrote.value(), wire.size());
    } else {
      ASSERT_TRUE(format_->pack(part, slice, wire, {}).has_value());
      std::vector<T> sent(static_cast<std::size_t>(count));
      const TensorView there = view_of<T>(std::span<T>(sent));
      ASSERT_TRUE(format_->unpack(wire, slice, there, {}).ok());
      ASSERT_TRUE(scale_ == 1 || gradwire::scale(there, scale_, {}).ok());
      ASSERT_TRUE(feedback_->settle(first, there).ok());
    }
    payloads_.insert(payloads_.end(), wire.begin(), wire.end());
  }

  double scale_;
  bool at_once_;
  std::unique_ptr<WireFormat> format_;
  std::unique_ptr<SliceFeedback> feedback_;
  TensorView own_;
  std::vector<std::byte> payloads_;
};

template <typename T>
std::vector<T> gradient(std::uint64_t step) {
  std::vector<T> values(static_cast<std::size_t>(kElems));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<double>(i + 17 * step);
    values[i] = static_cast<T>(std::sin(x * x) * std::exp(std::cos(x)));
  }
  return values;
}

template <typename T>
void expect_same_bits(const std::string& spec, double scale) {
  SCOPED_TRACE(spec);
  Packer<T> apart(spec, scale, false);
  Packer<T> at_once(spec, scale, true);
  ASSERT_TRUE(at_once.packs());
  for (std::uint64_t step = 0; step < 4; ++step) {
    std::vector<T> values = gradient<T>(step);
    EXPECT_EQ(apart.step(values, step), at_once.step(values, step)) << "step " << step;
    const std::vector<T> left = apart.residual();
    EXPECT_EQ(std::memcmp(left.data(), at_once.residual().data(), left.size() * sizeof(T)), 0)
        << "step " << step;
    for (std::int64_t i = kOwnFirst; i < kOwnFirst + kOwnCount; ++i) {
      ASSERT_EQ(left[static_cast<std::size_t>(i)], T{0});
    }
  }
}

TEST(SliceFeedback, OnePassLeavesTheBitsOfSeparateOnes) {
  for (const char* spec : {"absmax:bits=4", "absmax:bits=8", "minmax:bits=3", "qsgd:bits=4",
                           "signsgd", "onebit", "fp8:e4m3"}) {
    expect_same_bits<float>(spec, 1);
    expect_same_bits<double>(spec, 1);
    expect_same_bits<float>(spec, 0.375);
  }
}

TEST(SliceFeedback, ValuesThatAreNotFiniteAreNamed) {
  for (const bool own : {false, true}) {
    FeedbackOptions options;
    options.kind = FeedbackKind::kEf14;
    const auto made = make_slice_feedback(options, Shape::vector(8), {}, 0);
    ASSERT_TRUE(made.has_value());
    const auto& feedback = made.value();
    std::vector<float> values(8, 1.0F);
    values[own ? 3 : 5] = std::numeric_limits<float>::quiet_NaN();
    const TensorView input = view_of<float>(std::span<float>(values));
    const auto part = feedback->correct_part(input.slice(0, 4), 0);
    EXPECT_EQ(part.has_value(), !own);
    if (own) {
      EXPECT_THAT(part.error(), fails(Code::kInvalidArgument, "element 3"));
    }
  }
}

TEST(SliceFeedback, KindsWithPassesOfTheirOwnSaySo) {
  const auto method = Registry::builtin().make("absmax:bits=4");
  ASSERT_TRUE(method.has_value());
  const auto format = method.value()->open_slices(Shape::vector(8), {});
  ASSERT_TRUE(format.has_value());
  for (const FeedbackKind kind : {FeedbackKind::kEf21, FeedbackKind::kLoco}) {
    FeedbackOptions options;
    options.kind = kind;
    const auto made = make_slice_feedback(options, Shape::vector(8), {}, 0);
    ASSERT_TRUE(made.has_value());
    const auto& feedback = made.value();
    EXPECT_FALSE(feedback->packs(*format.value()));
    EXPECT_EQ(feedback->correct_part({}, 0).error().code(), Code::kUnsupported);
  }
}

}  // namespace
}  // namespace gradwire::slice_feedback_test
