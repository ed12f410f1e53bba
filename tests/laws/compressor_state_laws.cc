// What lasts from step to step: error feedback telescopes, and a saved state is the whole state.
#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/legality.h"
#include "tests/laws/law_data.h"

namespace gradwire::laws {
namespace {

using gradwire::testing::CoderRanks;

const Shape kShape = Shape::matrix(40, 6);

template <typename T>
typename CoderRanks<T>::Wrap with_ef14(double scale) {
  return [scale](std::unique_ptr<Coder> inner, const Shape& shape,
                 const Compressor::Placement& where) {
    return std::move(make_ef14(std::move(inner), shape, where, scale)).value();
  };
}

// Every state tensor of every rank, as bytes.
template <typename T>
std::vector<std::vector<std::byte>> saved(CoderRanks<T>& ranks) {
  std::vector<std::vector<std::byte>> all;
  for (int r = 0; r < ranks.size(); ++r) {
    for (const NamedTensor& part : ranks.coder(r).state()) {
      all.emplace_back(part.tensor.bytes().begin(), part.tensor.bytes().end());
    }
  }
  return all;
}
template <typename T>
void restore(CoderRanks<T>& ranks, const std::vector<std::vector<std::byte>>& state) {
  std::size_t next = 0;
  for (int r = 0; r < ranks.size(); ++r) {
    for (const NamedTensor& part : ranks.coder(r).state()) {
      ASSERT_LT(next, state.size());
      ASSERT_EQ(part.tensor.bytes().size(), state[next].size());
      std::copy(state[next].begin(), state[next].end(), part.tensor.bytes().begin());
      ++next;
    }
  }
  ASSERT_EQ(next, state.size());
}

template <typename T>
void expect_resumes(const Compressor& compressor, const typename CoderRanks<T>::Wrap& wrap) {
  auto whole = CoderRanks<T>::open(compressor, kShape, 2, 1, 77, wrap);
  ASSERT_TRUE(whole.has_value()) << whole.error().message();
  for (std::uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(whole.value().step(gradients<T>(kShape.elems(), 0, 2, step), step).status.ok());
  }
  const auto state = saved(whole.value());
  auto resumed = CoderRanks<T>::open(compressor, kShape, 2, 1, 77, wrap);
  restore(resumed.value(), state);
  for (std::uint64_t step = 3; step < 6; ++step) {
    const auto grads = gradients<T>(kShape.elems(), 0, 2, step);
    const auto a = whole.value().step(grads, step);
    const auto b = resumed.value().step(grads, step);
    EXPECT_EQ(a.bytes, b.bytes) << "step " << step;
    EXPECT_TRUE(same_bits(a.mean[1], b.mean[1])) << "step " << step;
  }
  EXPECT_EQ(saved(whole.value()), saved(resumed.value()));
}

GW_LAW(ResumeChangesNoPayload) {
  with_type([this]<typename T>() {
    expect_resumes<T>(compressor(), nullptr);
    if (compressor().traits().mean_is_average_of_own && !compressor().traits().own_feedback) {
      const double omega = compressor().bound(kShape).value;
      const bool divide = compressor().bound(kShape).kind == ErrorBound::Kind::kVariance;
      expect_resumes<T>(compressor(),
                        with_ef14<T>(divide ? 1 / (1 + omega) : compressor().bound(kShape).scale));
    }
  });
}

GW_LAW(StatefulIfAndOnlyIfItSaysSo) {
  with_type([this]<typename T>() {
    auto ranks = CoderRanks<T>::open(compressor(), kShape, 1);
    ASSERT_TRUE(ranks.value().step(gradients<T>(kShape.elems(), 0, 1, 0), 0).status.ok());
    EXPECT_EQ(compressor().traits().stateful, !ranks.value().coder(0).state().empty());
  });
}

// Sum of means + average residual = sum of average gradients, whatever the method.
GW_LAW(ErrorFeedbackTelescopes) {
  const PairOptions options{.error_feedback = true, .allow_unsafe = true};
  const auto verdict = check_pair(compressor(), kShape, options);
  const Traits traits = compressor().traits();
  if (!traits.mean_is_average_of_own || traits.own_feedback) {
    EXPECT_FALSE(verdict.has_value());
    return;
  }
  ASSERT_TRUE(verdict.has_value()) << verdict.error().message();
  const double scale = verdict.value().scale;
  with_type([this, &traits, scale]<typename T>() {
    constexpr int kSteps = 20;
    constexpr int kRanks = 3;
    auto ranks = CoderRanks<T>::open(compressor(), kShape, kRanks, 1, 77, with_ef14<T>(scale));
    std::vector<double> left(static_cast<std::size_t>(kShape.elems()));
    double size = 1;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const auto grads = gradients<T>(kShape.elems(), 0, kRanks, step);
      const auto outcome = ranks.value().step(grads, step);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      const auto given = average(grads);
      for (std::size_t i = 0; i < left.size(); ++i) {
        left[i] += given[i] - static_cast<double>(outcome.mean[0][i]);
      }
      for (const auto& own : outcome.own) size = std::max(size, largest(own));
    }
    for (int r = 0; r < kRanks; ++r) {
      const auto state = ranks.value().coder(r).state();
      ASSERT_EQ(state[0].name, "error");
      const auto error = elements<T>(state[0].tensor);
      for (std::size_t i = 0; i < left.size(); ++i) {
        left[i] -= static_cast<double>(error[i]) / kRanks;
      }
    }
    EXPECT_LE(largest(left), kSteps * rounding<T>(traits, kRanks) * size);
  });
}

}  // namespace

std::vector<Law> state_laws() {
  return {
      {"ResumeChangesNoPayload", ResumeChangesNoPayload},
      {"StatefulIfAndOnlyIfItSaysSo", StatefulIfAndOnlyIfItSaysSo},
      {"ErrorFeedbackTelescopes", ErrorFeedbackTelescopes},
  };
}

}  // namespace gradwire::laws
