#include "trainer/layers/few_rows.h"

#include <algorithm>
#include <array>

namespace gradwire {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kAcross = 4;  // vectors of a tile beside one another: with kDown, half the registers
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
constexpr int kAcross = 2;
#else
constexpr int kVectorBytes = 16;
constexpr int kAcross = 2;
#endif
constexpr int kDown = 4;            // rows of a tile
constexpr int kDepth = 64;          // weights' rows that are summed up before dx is written
constexpr std::int64_t kLine = 64;  // bytes

template <typename T>
struct Lanes {
  static constexpr int kCount = kVectorBytes / static_cast<int>(sizeof(T));
  static constexpr int kWide = kAcross * kCount;  // elements of a tile's row
  using Vector [[gnu::vector_size(kVectorBytes)]] = T;
  using Loose [[gnu::vector_size(kVectorBytes), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
};

template <typename T>
using Vector = typename Lanes<T>::Vector;

template <typename T>
[[gnu::always_inline]] inline Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename Lanes<T>::Loose*>(from);
}

template <typename T>
[[gnu::always_inline]] inline void store(T* to, const Vector<T>& value) {
  *reinterpret_cast<typename Lanes<T>::Loose*>(to) = value;
}

// y(Rows, Outs) = x W^T, both with rows of `in` elements; `next` is fetched meanwhile, a line for
// each vector of the way. Every sum: lanes first, then across them, then the elements that are
// left.
template <typename T, int Rows, int Outs>
[[gnu::always_inline]] inline void dot_tile(std::int64_t in, const T* x, const T* weight, T* y,
                                            std::int64_t out, const T* next) {
  constexpr int kCount = Lanes<T>::kCount;
  std::array<std::array<Vector<T>, Outs>, Rows> sums{};
  std::int64_t i = 0;
  for (; i + kCount <= in; i += kCount) {
    __builtin_prefetch(next + i);
    std::array<Vector<T>, Outs> w;
    for (int o = 0; o < Outs; ++o) w[o] = load(weight + o * in + i);
    for (int r = 0; r < Rows; ++r) {
      const Vector<T> mine = load(x + r * in + i);
      for (int o = 0; o < Outs; ++o) sums[r][o] += mine * w[o];
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int o = 0; o < Outs; ++o) {
      T sum = 0;
      for (int lane = 0; lane < kCount; ++lane) sum += sums[r][o][lane];
      for (std::int64_t left = i; left < in; ++left)
        sum += x[r * in + left] * weight[o * in + left];
      y[r * out + o] = sum;
    }
  }
}

template <typename T, int Outs>
void dot_rows(const LinearSize& size, const T* x, const T* weight, T* y, const T* next) {
  std::int64_t r = 0;
  // The next weights come in row by row of theirs; what follows the last of them is not asked for.
  for (; r + kDown <= size.rows; r += kDown) {
    const std::int64_t row = std::min<std::int64_t>(r / kDown, Outs - 1);
    dot_tile<T, kDown, Outs>(size.in, x + r * size.in, weight, y + r * size.out, size.out,
                             next + row * size.in);
  }
  for (; r < size.rows; ++r) {
    dot_tile<T, 1, Outs>(size.in, x + r * size.in, weight, y + r * size.out, size.out, next);
  }
}

// dx(Rows, a tile's width) += dy W over `depth` rows of packed weights.
template <typename T, int Rows>
[[gnu::always_inline]] inline void spread_tile(std::int64_t depth, const T* dy, std::int64_t out,
                                               const T* packed, T* dx, std::int64_t in,
                                               bool first) {
  constexpr int kCount = Lanes<T>::kCount;
  std::array<std::array<Vector<T>, kAcross>, Rows> sums{};
  for (int r = 0; r < Rows && !first; ++r) {
    for (int v = 0; v < kAcross; ++v) sums[r][v] = load(dx + r * in + v * kCount);
  }
  for (std::int64_t o = 0; o < depth; ++o) {
    std::array<Vector<T>, kAcross> w;
    for (int v = 0; v < kAcross; ++v) w[v] = load(packed + o * Lanes<T>::kWide + v * kCount);
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < kAcross; ++v) sums[r][v] += dy[r * out + o] * w[v];
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < kAcross; ++v) store(dx + r * in + v * kCount, sums[r][v]);
  }
}

// A block of the weights, kDepth rows by a tile's width, side by side in memory: rows whose
// distance is a power of two would fight for the same lines of the first cache.
template <typename T>
using Packed = std::array<T, static_cast<std::size_t>(kDepth) * Lanes<T>::kWide>;

template <typename T>
void pack(const T* weight, std::int64_t in, std::int64_t depth, bool more, Packed<T>& packed) {
  constexpr int kWide = Lanes<T>::kWide;
  for (std::int64_t o = 0; o < depth; ++o) {
    const T* row = weight + o * in;
    std::copy_n(row, kWide, packed.data() + o * kWide);
    if (!more) continue;
    for (std::int64_t at = 0; at < kWide; at += kLine / static_cast<std::int64_t>(sizeof(T))) {
      __builtin_prefetch(row + kWide + at);
    }
  }
}

// dW(Outs, a tile's width) = dy^T x over all rows.
template <typename T, int Outs>
[[gnu::always_inline]] inline void outer_tile(const LinearSize& size, const T* dy, const T* x,
                                              T* dweight) {
  constexpr int kCount = Lanes<T>::kCount;
  std::array<std::array<Vector<T>, kAcross>, Outs> sums{};
  for (std::int64_t r = 0; r < size.rows; ++r) {
    std::array<Vector<T>, kAcross> values;
    for (int v = 0; v < kAcross; ++v) values[v] = load(x + r * size.in + v * kCount);
    for (int o = 0; o < Outs; ++o) {
      for (int v = 0; v < kAcross; ++v) sums[o][v] += dy[r * size.out + o] * values[v];
    }
  }
  for (int o = 0; o < Outs; ++o) {
    for (int v = 0; v < kAcross; ++v) store(dweight + o * size.in + v * kCount, sums[o][v]);
  }
}

template <typename T, int Outs>
void outer_rows(const LinearSize& size, const T* dy, const T* x, T* dweight) {
  std::int64_t i = 0;
  for (; i + Lanes<T>::kWide <= size.in; i += Lanes<T>::kWide) {
    outer_tile<T, Outs>(size, dy, x + i, dweight + i);
  }
  for (; i < size.in; ++i) {
    for (int o = 0; o < Outs; ++o) {
      T sum = 0;
      for (std::int64_t r = 0; r < size.rows; ++r) sum += dy[r * size.out + o] * x[r * size.in + i];
      dweight[o * size.in + i] = sum;
    }
  }
}

// Columns [begin, in) of dx, which no tile fits.
template <typename T>
void spread_rest(const LinearSize& size, const T* dy, const T* weight, T* dx, std::int64_t begin) {
  for (std::int64_t r = 0; r < size.rows; ++r) {
    for (std::int64_t i = begin; i < size.in; ++i) {
      T sum = 0;
      for (std::int64_t o = 0; o < size.out; ++o) {
        sum += dy[r * size.out + o] * weight[o * size.in + i];
      }
      dx[r * size.in + i] = sum;
    }
  }
}

}  // namespace

template <typename T>
void rows_forward(const LinearSize& size, const T* x, const T* weight, T* y) {
  std::int64_t o = 0;
  for (; o + kDown <= size.out; o += kDown) {
    const T* mine = weight + o * size.in;
    const T* next = o + 2 * kDown <= size.out ? mine + kDown * size.in : mine;
    dot_rows<T, kDown>(size, x, mine, y + o, next);
  }
  for (; o < size.out; ++o) {
    const T* mine = weight + o * size.in;
    dot_rows<T, 1>(size, x, mine, y + o, mine);
  }
}

template <typename T>
void rows_backward_input(const LinearSize& size, const T* dy, const T* weight, T* dx) {
  constexpr int kWide = Lanes<T>::kWide;
  const std::int64_t tiled = size.in / kWide * kWide;
  alignas(kVectorBytes) Packed<T> packed;
  for (std::int64_t o = 0; o < size.out; o += kDepth) {
    const std::int64_t depth = std::min<std::int64_t>(kDepth, size.out - o);
    for (std::int64_t i = 0; i < tiled; i += kWide) {
      pack(weight + o * size.in + i, size.in, depth, i + kWide < tiled, packed);
      std::int64_t r = 0;
      for (; r + kDown <= size.rows; r += kDown) {
        spread_tile<T, kDown>(depth, dy + r * size.out + o, size.out, packed.data(),
                              dx + r * size.in + i, size.in, o == 0);
      }
      for (; r < size.rows; ++r) {
        spread_tile<T, 1>(depth, dy + r * size.out + o, size.out, packed.data(),
                          dx + r * size.in + i, size.in, o == 0);
      }
    }
  }
  spread_rest(size, dy, weight, dx, tiled);
}

template <typename T>
void rows_backward_weight(const LinearSize& size, const T* dy, const T* x, T* dweight) {
  std::int64_t o = 0;
  for (; o + kDown <= size.out; o += kDown) {
    outer_rows<T, kDown>(size, dy + o, x, dweight + o * size.in);
  }
  for (; o < size.out; ++o) outer_rows<T, 1>(size, dy + o, x, dweight + o * size.in);
}

template void rows_forward<float>(const LinearSize&, const float*, const float*, float*);
template void rows_forward<double>(const LinearSize&, const double*, const double*, double*);
template void rows_backward_input<float>(const LinearSize&, const float*, const float*, float*);
template void rows_backward_input<double>(const LinearSize&, const double*, const double*, double*);
template void rows_backward_weight<float>(const LinearSize&, const float*, const float*, float*);
template void rows_backward_weight<double>(const LinearSize&, const double*, const double*,
                                           double*);

}  // namespace gradwire
