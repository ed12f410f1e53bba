// Optimizer-level methods: each against its formula, its replicas, its state and its bytes.
#include "adapters/trainer/optimizers/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/adapters/method_job.h"
#include "tests/reference/methods_reference.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::methods_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

class EveryMethod : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryMethod, FollowsItsFormulaWhenNothingIsLost) {
  constexpr int kRanks = 3;
  constexpr int kSteps = 40;
  MethodOptions options = options_of(GetParam());
  if (GetParam() != "demo") options.compressor = "none";
  const Trace trace = run(options, kRanks, kSteps);
  reference::Vector start(kElems);
  for (std::size_t e = 0; e < kElems; ++e) start[e] = static_cast<double>(start_value(e));
  reference::MethodRun wanted(options, pieces(), start, kRanks);
  for (int step = 0; step < kSteps; ++step) {
    reference::Gradients g(kRanks, reference::Vector(kElems));
    for (int rank = 0; rank < kRanks; ++rank) {
      for (std::size_t e = 0; e < kElems; ++e) {
        g[static_cast<std::size_t>(rank)][e] = static_cast<double>(gradient(rank, step, e));
      }
    }
    wanted.step(g, rate(step));
    if (GetParam() == "demo") continue;
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto& seen = trace.x[static_cast<std::size_t>(step)][static_cast<std::size_t>(rank)];
      for (std::size_t e = 0; e < kElems; ++e) {
        ASSERT_NEAR(seen[e], wanted.of(rank)[e], 1e-4) << "step " << step << " element " << e;
      }
    }
  }
  if (GetParam() != "demo") return;
  // Its update is a sign: where q nearly is 0, rounding decides, and a step is off by 2 lr.
  int far = 0;
  for (std::size_t e = 0; e < kElems; ++e) {
    far += std::abs(trace.x.back()[0][e] - wanted.of(0)[e]) > 1e-4 ? 1 : 0;
  }
  EXPECT_LE(far, static_cast<int>(kElems) / 20);
}

TEST_P(EveryMethod, ReplicasAreBitIdenticalAfterEveryExchange) {
  for (const int ranks : {2, 3}) {
    const Trace trace = run(options_of(GetParam()), ranks, 40);
    int compared = 0;
    for (std::size_t step = 0; step < trace.x.size(); ++step) {
      if (!trace.equal[step]) continue;
      ++compared;
      for (const auto& x : trace.x[step]) EXPECT_EQ(x, trace.x[step][0]) << "step " << step;
    }
    EXPECT_GE(compared, GetParam() == "diloco" ? 8 : 15);
    EXPECT_NE(trace.x.back()[0], trace.x.front()[0]);
  }
}

TEST_P(EveryMethod, ElementsWithoutGradientsMoveByDecayAlone) {
  MethodOptions options = options_of(GetParam());
  options.optimizer.weight_decay = 0;
  const Trace trace = run(options, 2, 40);
  for (std::size_t e = kDeadFirst; e < kDeadEnd; ++e) {
    EXPECT_EQ(trace.x.back()[0][e], start_value(e)) << e;
  }
}

// One bit gives elements with tiny gradients their bucket's scale. Divided by their tiny variance
// it once threw parameters out to 1e14 within five steps.
TEST(OneBitMethods, NoElementMovesFurtherThanAdamCouldMoveIt) {
  for (const std::string name : {"onebit_adam", "zero_one_adam"}) {
    const Trace trace = run(options_of(name), 2, 40);
    for (std::size_t step = 1; step < trace.x.size(); ++step) {
      // zero_one_adam makes up to four steps' way when ranks meet.
      const double steps = name == "zero_one_adam" ? 8 : 1;
      const double most = steps * rate(static_cast<int>(step) / 2) * (1 + 0.05 * 2);
      for (std::size_t e = 0; e < kElems; ++e) {
        const double moved = std::abs(static_cast<double>(trace.x[step][0][e]) -
                                      static_cast<double>(trace.x[step - 1][0][e]));
        ASSERT_LE(moved, most) << name << " step " << step << " element " << e;
      }
    }
  }
}

TEST_P(EveryMethod, TheSameRunTwiceIsTheSameBits) {
  EXPECT_EQ(run(options_of(GetParam()), 3, 25).x, run(options_of(GetParam()), 3, 25).x);
}

// Entries that outlive their method, as a checkpoint would keep them.
struct SavedState {
  std::vector<NamedTensor> views;
  std::vector<std::vector<std::byte>> bytes;
};
SavedState keep(const std::vector<NamedTensor>& tensors) {
  SavedState saved;
  for (const NamedTensor& named : tensors) {
    const auto bytes = named.tensor.bytes();
    saved.bytes.emplace_back(bytes.begin(), bytes.end());
    saved.views.push_back({named.name, TensorView(saved.bytes.back().data(), named.tensor.shape(),
                                                  named.tensor.dtype())});
  }
  return saved;
}

// Runs `steps` steps on `ranks` ranks from `from` (empty: from the start), then saves.
struct Leg {
  std::vector<SavedState> saved;
  std::vector<std::vector<float>> x;
};
Leg leg(const MethodOptions& options, int ranks, int first, int steps, const Leg& from) {
  Leg to;
  to.saved.resize(static_cast<std::size_t>(ranks));
  to.x.resize(static_cast<std::size_t>(ranks));
  std::vector<std::vector<NamedTensor>> old;
  for (const SavedState& saved : from.saved) old.push_back(saved.views);
  const auto statuses = on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    const auto own = static_cast<std::size_t>(communicator->rank());
    GW_ASSIGN(const auto rank, Rank::create(*communicator, options));
    if (!old.empty()) {
      rank->x = from.x[0];
      // The views that the method has are of the same memory.
      GW_TRY(rank->method->load_state(old));
    }
    for (int step = first; step < first + steps; ++step) GW_TRY(rank->step(step));
    EXPECT_TRUE(rank->method->replicas_equal());
    to.saved[own] = keep(rank->method->state());
    to.x[own] = rank->x;
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return to;
}

// 20 steps are a whole number of intervals of every method here: zero_one_adam meets at 13, 14, 16,
// 18 (doubling to 2, then to 4) and 22, so its legs end at 18.
int leg_steps(const std::string& method) { return method == "zero_one_adam" ? 18 : 20; }

TEST_P(EveryMethod, GoesOnFromItsStateBitForBit) {
  const MethodOptions options = options_of(GetParam());
  const int first = leg_steps(GetParam());
  constexpr int kMore = 20;
  const Trace whole = run(options, 3, first + kMore);
  const Leg half = leg(options, 3, 0, first, {});
  EXPECT_EQ(half.x[0], whole.x[static_cast<std::size_t>(first) - 1][0]);
  std::vector<std::vector<float>> ends(3);
  std::vector<std::vector<NamedTensor>> old;
  for (const SavedState& saved : half.saved) old.push_back(saved.views);
  const auto statuses = on_ranks(3, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    GW_ASSIGN(const auto rank, Rank::create(*communicator, options));
    rank->x = half.x[0];
    GW_TRY(rank->method->load_state(old));
    EXPECT_EQ(rank->method->steps(), first);
    for (int step = first; step < first + kMore; ++step) GW_TRY(rank->step(step));
    ends[static_cast<std::size_t>(communicator->rank())] = rank->x;
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(ends, whole.x.back());
}

TEST_P(EveryMethod, GoesOnOnOtherNumbersOfRanks) {
  const MethodOptions options = options_of(GetParam());
  const int first = leg_steps(GetParam());
  const Leg three = leg(options, 3, 0, first, {});
  const auto average = [](const Leg& from) {
    // Of what ranks keep apart: entries that differ between ranks, all of them f32.
    std::vector<double> all;
    for (std::size_t i = 0; i < from.saved[0].views.size(); ++i) {
      const NamedTensor& named = from.saved[0].views[i];
      const bool own = named.name.ends_with(".error") || named.name.ends_with(".delta");
      if (!own || named.tensor.dtype() != DType::kF32) continue;
      std::vector<double> sum(static_cast<std::size_t>(named.tensor.elems()));
      for (const SavedState& rank : from.saved) {
        const auto values = elements<float>(ConstTensorView(rank.views[i].tensor));
        for (std::size_t e = 0; e < sum.size(); ++e) {
          sum[e] += static_cast<double>(values[e]) / static_cast<double>(from.saved.size());
        }
      }
      all.insert(all.end(), sum.begin(), sum.end());
    }
    return all;
  };
  for (const int ranks : {1, 2, 4}) {
    const Leg loaded = leg(options, ranks, first, 0, three);
    const auto before = average(three);
    const auto after = average(loaded);
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_NEAR(after[i], before[i], 1e-6 * (1 + std::abs(before[i])));
    }
  }
}

TEST_P(EveryMethod, ASkippedStepLeavesEverythingAsItWas) {
  const MethodOptions options = options_of(GetParam());
  const int first = leg_steps(GetParam());
  const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    GW_ASSIGN(const auto rank, Rank::create(*communicator, options));
    for (int step = 0; step < first; ++step) GW_TRY(rank->step(step));
    const SavedState before = keep(rank->method->state());
    GW_ASSIGN(const bool none, rank->method->consensus().any(false, Scope::kWorld));
    GW_ASSIGN(const bool one,
              rank->method->consensus().any(communicator->rank() == 1, Scope::kWorld));
    EXPECT_FALSE(none);
    EXPECT_TRUE(one);
    EXPECT_EQ(keep(rank->method->state()).bytes, before.bytes);
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

TEST_P(EveryMethod, RefusesWhatIsMissingFromItsState) {
  const MethodOptions options = options_of(GetParam());
  Leg one = leg(options, 1, 0, leg_steps(GetParam()), {});
  const std::string missing = one.saved[0].views[0].name;
  one.saved[0].views.erase(one.saved[0].views.begin());
  const auto statuses = on_ranks(1, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    GW_ASSIGN(const auto rank, Rank::create(*communicator, options));
    const std::vector<std::vector<NamedTensor>> old{one.saved[0].views};
    return rank->method->load_state(old);
  });
  EXPECT_THAT(statuses[0], fails(kInvalid, "'" + missing + "'", "missing"));
}

INSTANTIATE_TEST_SUITE_P(All, EveryMethod, ::testing::ValuesIn(method_names()),
                         [](const auto& test) { return test.param; });

// What a step sent as payload, of rank 0.
std::uint64_t payload(const Trace& trace, std::size_t step) {
  return trace.stats[step].payload_bytes - (step == 0 ? 0 : trace.stats[step - 1].payload_bytes);
}

TEST(OnebitAdam, SendsABitAnElementOnceTheVarianceIsFrozen) {
  const Trace trace = run(options_of("onebit_adam"), 2, 14);
  EXPECT_EQ(payload(trace, 11), kElems * 4);
  // Under sra each rank encodes all elements and its own half once more; scales are 4 bytes.
  EXPECT_LT(payload(trace, 12), kElems * 4 / 4);
  EXPECT_GE(payload(trace, 12), (kElems + kElems / 2) / 8);
}

TEST(ZeroOneAdam, SendsNothingWhenRanksStepAlone) {
  const Trace trace = run(options_of("zero_one_adam"), 2, 30);
  // Steps 13, 14 meet; then every second: 16, 18; then every fourth: 22, 26, 30.
  for (const std::size_t alone : {15, 17, 19, 20, 21, 23, 24, 25}) {
    EXPECT_EQ(payload(trace, alone - 1), 0u) << alone;
    EXPECT_FALSE(trace.equal[alone - 1]) << alone;
  }
  for (const std::size_t met : {13, 14, 16, 18, 22, 26, 30}) {
    EXPECT_GT(payload(trace, met - 1), 0u) << met;
    EXPECT_TRUE(trace.equal[met - 1]) << met;
  }
  // Variance: dense at 1, 2, 3, then every second step to 8, then every fourth.
  for (const std::size_t dense : {1, 2, 3, 4, 6, 8, 12}) {
    EXPECT_EQ(payload(trace, dense - 1), kElems * 4) << dense;
  }
  for (const std::size_t bits : {5, 7, 9, 10, 11}) {
    EXPECT_LT(payload(trace, bits - 1), kElems * 4 / 4) << bits;
  }
}

TEST(DiLoCo, SendsOncePerInterval) {
  MethodOptions options = options_of("diloco");
  options.compressor = "absmax:bits=4,min_elems=0,dense_1d=false";
  const Trace trace = run(options, 2, 10);
  for (std::size_t step = 0; step < 10; ++step) {
    EXPECT_EQ(payload(trace, step) > 0, step % 5 == 4) << step;
  }
  EXPECT_LT(payload(trace, 4), kElems * 4 / 2);
}

TEST(Demo, PayloadIsTheClosedForm) {
  const Trace trace = run(options_of("demo"), 2, 2);
  // Chunks of divisors up to 8: (12, 10) as 6 x 5, four of them; 7 as 1 x 7; (4, 6) whole; (5, 8)
  // whole. Three places of 12 bits are 5 bytes, three values 6.
  EXPECT_EQ(payload(trace, 0), (4 + 1 + 1 + 1) * (5u + 6u));
}

TEST(Demo, RefusesWhatIsNotFinite) {
  const auto statuses = on_ranks(1, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    GW_ASSIGN(const auto rank, Rank::create(*communicator, options_of("demo")));
    rank->g[130] = std::nanf("");
    GW_TRY(rank->method->before_step(0.1));
    return rank->method->finish({});
  });
  EXPECT_THAT(statuses[0], fails(kInvalid, "dead", "finite"));
}

TEST(Methods, RefuseBadOptions) {
  const auto refusal = [](const std::function<void(MethodOptions&)>& change) {
    const auto statuses = on_ranks(1, [&](std::unique_ptr<Communicator>& communicator) -> Status {
      MethodOptions options = options_of("onebit_adam");
      change(options);
      const auto made = Rank::create(*communicator, options);
      return made.error();
    });
    return statuses[0];
  };
  using O = MethodOptions;
  EXPECT_THAT(refusal([](O& o) { o.name = "adam"; }), fails(kInvalid, "optimizer", "adam"));
  EXPECT_THAT(refusal([](O& o) { o.freeze = 0; }), fails(kInvalid, "freeze 0", "1 step"));
  EXPECT_THAT(refusal([](O& o) { o.chunk = 65; }), fails(kInvalid, "chunk 65", "1", "64"));
  EXPECT_THAT(refusal([](O& o) { o.topk = 0; }), fails(kInvalid, "topk 0"));
  EXPECT_THAT(refusal([](O& o) { o.outer_lr = -1; }), fails(kInvalid, "outer_lr -1"));
  EXPECT_THAT(refusal([](O& o) { o.optimizer.beta2 = 1; }), fails(kInvalid, "beta2 1"));
  EXPECT_THAT(refusal([](O& o) { o.compressor = "nothing"; }), fails(kInvalid, "nothing"));
  EXPECT_THAT(refusal([](O& o) { o.name = "demo", o.compressor = "cast:bf16"; }),
              fails(kInvalid, "compressor", "cast:bf16", "none"));
}

}  // namespace
}  // namespace gradwire::testing::methods_test
