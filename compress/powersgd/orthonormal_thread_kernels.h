// Cholesky-QR on a device, with the sums of orthonormal_loops.h and the factor of orthonormal.cc.
#pragma once

#include <bit>
#include <cmath>

#include "compress/powersgd/orthonormal_loops.h"
#include "compress/powersgd/thin_thread_kernels.h"

namespace gradwire::cuda {

template <class Block>
GW_DEVICE double shuffle_double(Block& block, double mine, unsigned lane) {
  const auto bits = std::bit_cast<std::uint64_t>(mine);
  const std::uint32_t low = block.shuffle(static_cast<std::uint32_t>(bits), lane);
  const std::uint32_t high = block.shuffle(static_cast<std::uint32_t>(bits >> 32), lane);
  return std::bit_cast<double>(std::uint64_t{high} << 32 | low);
}

// parts[b][k * count + l] = row k . row l over block b of their elements, for l <= k.
template <typename T>
struct GramBlocks {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kSums = cpu::kGramSums;
  static constexpr std::int64_t kPairs = kThreads / kSums;
  using Shared = NothingShared;

  const T* rows;
  std::int64_t count;
  std::int64_t length;
  double* parts;

  std::int64_t blocks() const {
    return blocks_for(count * count, kPairs) * blocks_for(length, cpu::kGramBlock);
  }

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    constexpr auto kBlock = static_cast<std::int64_t>(cpu::kGramBlock);
    const std::int64_t pairs = count * count;
    const std::int64_t pair_groups = blocks_for(pairs, kPairs);
    const std::int64_t b = block.block() / pair_groups;
    const std::int64_t pair = block.block() % pair_groups * kPairs + block.thread() / kSums;
    const std::int64_t k = pair / count;
    const std::int64_t l = pair % count;
    const bool wanted = pair < pairs && l <= k;
    const std::int64_t end = length - b * kBlock < kBlock ? length : (b + 1) * kBlock;
    double sum = 0;
    if (wanted) {
      const T* const x = rows + k * length;
      const T* const y = rows + l * length;
      for (std::int64_t j = b * kBlock + block.thread() % kSums; j < end; j += kSums) {
        sum = ::fma(static_cast<double>(x[j]), static_cast<double>(y[j]), sum);
      }
    }
    for (unsigned half = kSums / 2; half > 0; half /= 2) {
      sum += shuffle_double(block, sum, block.lane() + half);
    }
    if (wanted && block.thread() % kSums == 0) parts[b * pairs + pair] = sum;
  }
};

// t = L^-1 D of the Gram matrix that the parts add up to. Finds kThinDependent where a pivot is too
// small (t is then unspecified), kThinOnceMore where the least is below `enough`. One block.
struct InvertFactor {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kFew = 16;  // directions whose matrices are kept at hand
  struct Shared {
    double gram[kFew * kFew];
    double t[kFew * kFew];
    double scale[kFew];
    double column[kFew];
  };

  const double* parts;
  std::int64_t number;  // of parts
  std::int64_t count;
  double enough;
  double* gram;   // (count, count), and likewise for more than kFew alone
  double* inner;  // scale (count), column (count)
  double* t;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const bool few = count <= kFew;
    const Matrices at{few ? shared.gram : gram, few ? shared.t : t, few ? shared.scale : inner,
                      few ? shared.column : inner + count};
    add_up(block, at);
    const double least = factorise(block, at);
    if (least == 0) {
      if (block.thread() == 0) block.least(verdict, word_of(kPivotPlaces, kThinDependent));
      return;
    }
    if (block.thread() == 0 && least < enough) {
      block.least(verdict, word_of(kPivotPlaces, kThinOnceMore));
    }
    for (std::int64_t l = block.thread(); l < count; l += kThreads) invert_column(at, l);
  }

 private:
  struct Matrices {
    double* gram;
    double* t;
    double* scale;
    double* column;
  };

  // The sums of blocks, then rows and columns scaled so that the diagonal is 1.
  template <class Block>
  GW_DEVICE void add_up(Block& block, const Matrices& at) const {
    const std::int64_t pairs = count * count;
    for (std::int64_t pair = block.thread(); pair < pairs; pair += kThreads) {
      if (pair % count > pair / count) continue;
      double sum = 0;
      for (std::int64_t b = 0; b < number; ++b) sum += parts[b * pairs + pair];
      at.gram[pair] = sum;
    }
    block.barrier();
    for (std::int64_t k = block.thread(); k < count; k += kThreads) {
      at.scale[k] = 1 / ::sqrt(at.gram[k * count + k]);
    }
    block.barrier();
    for (std::int64_t pair = block.thread(); pair < pairs; pair += kThreads) {
      if (pair % count > pair / count) continue;
      at.gram[pair] *= at.scale[pair / count] * at.scale[pair % count];
    }
    block.barrier();
  }

  // The factor in place of the lower half; the least pivot, or 0. All threads give the same.
  template <class Block>
  GW_DEVICE double factorise(Block& block, const Matrices& at) const {
    double least = 1;
    for (std::int64_t m = 0; m < count; ++m) {
      const double pivot = at.gram[m * count + m];
      if (!(pivot > cpu::kLeastPivot)) return 0;
      least = pivot < least ? pivot : least;
      const double by = 1 / ::sqrt(pivot);
      block.barrier();  // all have read the pivot
      for (std::int64_t k = m + block.thread(); k < count; k += kThreads) {
        at.column[k] = at.gram[k * count + m] *= by;
      }
      block.barrier();
      const std::int64_t rest = count - m - 1;
      for (std::int64_t e = block.thread(); e < rest * rest; e += kThreads) {
        const std::int64_t k = m + 1 + e / rest;
        const std::int64_t l = m + 1 + e % rest;
        if (l <= k) at.gram[k * count + l] -= at.column[k] * at.column[l];
      }
      block.barrier();
    }
    return least;
  }

  // Column l of the inverse, by substitution, then scaled.
  GW_DEVICE void invert_column(const Matrices& at, std::int64_t l) const {
    for (std::int64_t k = l; k < count; ++k) {
      double sum = 0;
      for (std::int64_t m = l; m < k; ++m) sum -= at.gram[k * count + m] * at.t[m * count + l];
      const double by = 1 / at.gram[k * count + k];
      at.t[k * count + l] = k == l ? by : sum * by;
    }
    for (std::int64_t k = l; k < count; ++k) t[k * count + l] = at.t[k * count + l] * at.scale[l];
  }
};

// to = t rows, t lower triangular; `to` may be `rows`.
template <typename From, typename To>
struct MultiplyLower {
  static constexpr unsigned kThreads = 128;
  using Shared = NothingShared;

  const double* t;
  const From* rows;
  std::int64_t count;
  std::int64_t length;
  To* to;

  std::int64_t blocks() const { return blocks_for(length, kThreads); }

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t j = block.block() * kThreads + block.thread();
    if (j >= length) return;
    for (std::int64_t k = count; k-- > 0;) {  // a row needs none behind it
      double sum = 0;
      for (std::int64_t l = 0; l <= k; ++l) {
        sum = ::fma(t[k * count + l], static_cast<double>(rows[l * length + j]), sum);
      }
      to[k * length + j] = static_cast<To>(sum);
    }
  }
};

}  // namespace gradwire::cuda
