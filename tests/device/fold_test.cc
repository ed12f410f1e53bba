#include "device/fold.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/reference/collectives_reference.h"

namespace gradwire::fold_test {
namespace {

// The same fold, one element after another.
template <DType kType>
std::vector<std::byte> expected(ReduceOp op, int sources, std::int64_t elems) {
  using E = reference::Element<kType>;
  using Computed = typename E::Computed;
  std::vector<std::byte> bytes(static_cast<std::size_t>(elems) * sizeof(typename E::Stored));
  for (std::int64_t i = 0; i < elems; ++i) {
    Computed sum = E::widen(reference::input<kType>(0, i));
    for (int s = 1; s < sources; ++s) {
      const Computed next = E::widen(reference::input<kType>(s, i));
      if (op == ReduceOp::kMax) sum = sum < next ? next : sum;
      if (op == ReduceOp::kMin) sum = next < sum ? next : sum;
      if (op == ReduceOp::kProduct) sum = static_cast<Computed>(sum * next);
      if (op == ReduceOp::kSum || op == ReduceOp::kMean) sum = static_cast<Computed>(sum + next);
    }
    if constexpr (reference::is_floating<kType>()) {
      if (op == ReduceOp::kMean && sources > 1) sum *= static_cast<Computed>(1.0 / sources);
    }
    const auto stored = E::narrow(sum);
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof stored, &stored, sizeof stored);
  }
  return bytes;
}

// Sources and targets begin `shift` bytes behind a cache line; the first target is the last source.
template <DType kType>
void check(ReduceOp op, int sources, std::int64_t elems, std::size_t shift, Stores stores) {
  const auto want = expected<kType>(op, sources, elems);
  std::vector<std::vector<std::byte>> memory;
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  const auto at_line = [&](std::vector<std::byte>& bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    return bytes.data() + (64 - begin % 64) % 64 + shift;
  };
  for (int s = 0; s < sources + 2; ++s) memory.emplace_back(want.size() + 192, std::byte{0xee});
  for (int s = 0; s < sources; ++s) {
    const auto input = reference::inputs<kType>(s, 0, elems);
    std::byte* at = at_line(memory[static_cast<std::size_t>(s)]);
    if (!input.empty()) std::memcpy(at, input.data(), input.size());
    from.push_back(at);
  }
  to.push_back(at_line(memory[static_cast<std::size_t>(sources - 1)]));
  to.push_back(at_line(memory[static_cast<std::size_t>(sources)]));
  fold(op, kType, from, to, elems, stores);
  finish_stores();
  for (const std::byte* target : to) {
    EXPECT_TRUE(want.empty() || std::memcmp(target, want.data(), want.size()) == 0)
        << to_string(kType) << " op " << static_cast<int>(op) << ", " << sources << " sources, "
        << elems << " elements, shift " << shift;
    EXPECT_EQ(target[want.size()], std::byte{0xee});  // nothing behind the end
  }
}

template <DType kType>
void check_type() {
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
    if (op == ReduceOp::kMean && !reference::is_floating<kType>()) continue;
    for (const std::int64_t elems : {0, 1, 15, 16, 17, 1023, 1024, 1025, 5003}) {
      check<kType>(op, 1, elems, 0, Stores::kCached);
      check<kType>(op, 3, elems, 0, Stores::kStreaming);
      check<kType>(op, 2, elems, size_of(kType), Stores::kStreaming);
      check<kType>(op, 5, elems, size_of(kType), Stores::kCached);
    }
  }
}

TEST(Fold, EveryTypeEqualsTheScalarFold) {
  check_type<DType::kF64>();
  check_type<DType::kF32>();
  check_type<DType::kF16>();
  check_type<DType::kBF16>();
  check_type<DType::kI64>();
  check_type<DType::kI32>();
  check_type<DType::kI8>();
  check_type<DType::kU8>();
}

// Three sources that have `values` by turns, so that each value is in each source and next to each
// other one; the sources' lengths are whole stripes and a rest.
template <DType kType>
void check_extremes(ReduceOp op, Stores stores) {
  using E = reference::Element<kType>;
  using Computed = typename E::Computed;
  using Limits = std::numeric_limits<Computed>;
  const std::array values{Limits::quiet_NaN(), -Limits::quiet_NaN(), Computed{0}, -Computed{0},
                          Limits::infinity(),  -Limits::infinity(),  Computed{1}};
  constexpr std::int64_t kElems = 7 * 7 * 7;
  const auto value_of = [&](int source, std::int64_t i) {
    for (int s = 0; s < source; ++s) i /= 7;
    return values[static_cast<std::size_t>(i % 7)];
  };
  std::array<std::vector<typename E::Stored>, 4> memory;
  for (int s = 0; s < 3; ++s) {
    for (std::int64_t i = 0; i < kElems; ++i) {
      memory[static_cast<std::size_t>(s)].push_back(E::narrow(value_of(s, i)));
    }
  }
  memory[3].resize(kElems);
  std::vector<const std::byte*> from;
  for (int s = 0; s < 3; ++s) {
    from.push_back(reinterpret_cast<const std::byte*>(memory[static_cast<std::size_t>(s)].data()));
  }
  std::byte* const to[] = {reinterpret_cast<std::byte*>(memory[3].data())};
  fold(op, kType, from, to, kElems, stores);
  finish_stores();
  const auto below = [](Computed a, Computed b) {
    return a < b || (a == b && std::signbit(a) && !std::signbit(b));
  };
  for (std::int64_t i = 0; i < kElems; ++i) {
    Computed want = value_of(0, i);
    for (int s = 1; s < 3; ++s) {
      const Computed next = value_of(s, i);
      const bool better = op == ReduceOp::kMax ? below(want, next) : below(next, want);
      if (!std::isnan(want) && (std::isnan(next) || better)) want = next;
    }
    const Computed got = E::widen(memory[3][static_cast<std::size_t>(i)]);
    const bool same = got == want && std::signbit(got) == std::signbit(want);
    EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : same)
        << to_string(kType) << " op " << static_cast<int>(op) << ", element " << i << ": " << got
        << ", not " << want;
  }
}

TEST(Fold, ANanWinsAndZerosAreOrdered) {
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      check_extremes<DType::kF64>(op, stores);
      check_extremes<DType::kF32>(op, stores);
      check_extremes<DType::kF16>(op, stores);
      check_extremes<DType::kBF16>(op, stores);
    }
  }
}

// 1 + 2^-11 + 2^-11 in f16: rounded after each addition it stays 1 (ties go to even), rounded once
// it is 1 + 2^-10.
TEST(Fold, HalvesAreRoundedOnce) {
  const std::uint16_t one = 0x3c00;
  const std::uint16_t tiny = fp16_from_float(0x1p-11f);
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(&one),
                                      reinterpret_cast<const std::byte*>(&tiny),
                                      reinterpret_cast<const std::byte*>(&tiny)};
  std::uint16_t sum = 0;
  std::byte* const targets[] = {reinterpret_cast<std::byte*>(&sum)};
  fold(ReduceOp::kSum, DType::kF16, sources, targets, 1, Stores::kCached);
  EXPECT_EQ(sum, 0x3c01);
}

TEST(Fold, CopiesOfEveryAlignmentAreWhole) {
  std::vector<std::byte> from(5000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
  for (std::size_t shift = 0; shift < 70; ++shift) {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65},
          std::size_t{300}, std::size_t{4900}}) {
      for (const bool owning : {false, true}) {
        std::vector<std::byte> to(5100, std::byte{0xee});
        if (owning) {
          copy_and_own(to.data() + shift, from.data() + 3, bytes);
        } else {
          copy_with(Stores::kStreaming, to.data() + shift, from.data() + 3, bytes);
        }
        finish_stores();
        EXPECT_TRUE(bytes == 0 || std::memcmp(to.data() + shift, from.data() + 3, bytes) == 0);
        EXPECT_EQ(to[shift + bytes], std::byte{0xee});
        EXPECT_TRUE(shift == 0 || to[shift - 1] == std::byte{0xee});
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::fold_test
