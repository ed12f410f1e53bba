#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "compress/dgc/dgc_kernels.h"
#include "compress/dgc/dgc_loops.h"
#include "compress/simd/line_writer.h"
#include "compress/topk/topk_loops.h"

namespace gradwire::cpu {
namespace {

// look(begin, v) sees every run of the new v while it lies in the nearest cache.
template <typename T, typename Look>
bool accumulate_runs(const MomentumStep<T>& step, std::span<T> next_u, std::span<T> next_v,
                     const Look& look) {
  constexpr std::size_t kRun = LineWriter::kRoom / sizeof(T);
  LineWriter to_u(reinterpret_cast<std::byte*>(next_u.data()), next_u.size_bytes());
  LineWriter to_v(reinterpret_cast<std::byte*>(next_v.data()), next_v.size_bytes());
  bool finite = true;
  for (std::size_t begin = 0; begin < step.grad.size(); begin += kRun) {
    const std::size_t count = std::min(kRun, step.grad.size() - begin);
    T* const u = reinterpret_cast<T*>(to_u.room());
    T* const v = reinterpret_cast<T*>(to_v.room());
    finite &= DgcLoops<T>::kAccumulate(step.part(begin, count), u, v);
    look(begin, std::span<const T>(v, count));
    to_u.commit(count * sizeof(T));
    to_v.commit(count * sizeof(T));
  }
  to_u.finish();
  to_v.finish();
  return finite;
}

}  // namespace

template <typename T>
bool accumulate(const MomentumStep<T>& step, std::span<T> next_u, std::span<T> next_v) {
  return accumulate_runs<T>(step, next_u, next_v, [](std::size_t, std::span<const T>) {});
}

template <typename T>
bool accumulate_and_collect(const MomentumStep<T>& step, TopkKey<T> low, std::span<T> next_u,
                            std::span<T> next_v, TopkScratch<T>& found, std::size_t& count) {
  count = 0;
  return accumulate_runs<T>(step, next_u, next_v, [&](std::size_t begin, std::span<const T> v) {
    if (found.index.size() < count + v.size() + kSlack) {
      found.index.resize(2 * (count + v.size() + kSlack));
      found.value.resize(found.index.size());
    }
    std::uint32_t* const index = found.index.data() + count;
    const std::size_t more = TopkLoops<T>::kCollect(
        Corrected<T>(v), low, static_cast<std::uint32_t>(begin), index, nullptr);
    for (std::size_t j = 0; j < more; ++j) found.value[count + j] = v[index[j] - begin];
    count += more;
  });
}

template <typename T>
TopkKey<T> sampled_threshold(const MomentumStep<T>& step, double ratio, std::size_t samples,
                             const RandomStream& draws, std::vector<TopkKey<T>>& keys) {
  constexpr std::size_t kDraws = 1024;
  constexpr std::size_t kAhead = 16;  // samples asked for before their turn: none shares a line
  std::array<std::uint32_t, kDraws> words;
  const std::size_t stretch = step.grad.size() / samples;
  keys.resize(samples);
  for (std::size_t first = 0; first < samples; first += kDraws) {
    const std::size_t count = std::min(kDraws, samples - first);
    draws.words(first, std::span(words).first(count));
    const auto place = [&](std::size_t s) {
      return (first + s) * stretch + (std::uint64_t{words[s]} * stretch >> 32);
    };
    for (std::size_t s = 0; s < count; ++s) {
      if (s + kAhead < count) step.fetch(place(s + kAhead));
      keys[first + s] = topk_key(step.next_v(place(s)));
    }
  }
  const auto nth = keys.begin() + static_cast<std::ptrdiff_t>(dgc_rank(ratio, samples) - 1);
  std::nth_element(keys.begin(), nth, keys.end(), std::greater<>());
  return std::max<TopkKey<T>>(*nth, 1);
}

template <typename T>
double sum_of_squares(std::span<const T> x) {
  constexpr std::size_t kSums = 16;
  std::array<double, kSums> sums{};
  const std::size_t whole = x.size() / kSums * kSums;
  for (std::size_t i = 0; i < whole; i += kSums) {
    for (std::size_t j = 0; j < kSums; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      sums[j] += value * value;
    }
  }
  for (std::size_t i = whole; i < x.size(); ++i) {
    sums[i % kSums] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

#define GW_DGC_KERNELS(T)                                                                   \
  template bool accumulate<T>(const MomentumStep<T>&, std::span<T>, std::span<T>);          \
  template bool accumulate_and_collect<T>(const MomentumStep<T>&, TopkKey<T>, std::span<T>, \
                                          std::span<T>, TopkScratch<T>&, std::size_t&);     \
  template TopkKey<T> sampled_threshold<T>(const MomentumStep<T>&, double, std::size_t,     \
                                           const RandomStream&, std::vector<TopkKey<T>>&);  \
  template double sum_of_squares<T>(std::span<const T>)
GW_DGC_KERNELS(float);
GW_DGC_KERNELS(double);
#undef GW_DGC_KERNELS

}  // namespace gradwire::cpu
