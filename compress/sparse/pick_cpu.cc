#include "compress/sparse/pick_kernels.h"

#include <algorithm>

#include "compress/simd/line_writer.h"
#include "compress/sparse/pick_loops.h"

namespace gradwire::cpu {

template <typename T>
bool pick(const Corrected<T>& p, std::span<const std::uint32_t> index, T factor,
          std::span<T> picked, const Rest<T>& rest) {
  constexpr std::size_t kRun = LineWriter::kRoom / sizeof(T);
  LineWriter to(reinterpret_cast<std::byte*>(rest.next),
                rest.next == nullptr ? 0 : p.size * sizeof(T));
  std::size_t j = 0;
  bool finite = true;
  for (std::size_t begin = 0; begin < p.size; begin += kRun) {
    const Corrected<T> run = p.part(begin, std::min(kRun, p.size - begin));
    T* const left = rest.next == nullptr ? nullptr : reinterpret_cast<T*>(to.room());
    finite &= PickLoops<T>::kCopyFinite(run, left);
    for (; j < index.size() && index[j] < begin + run.size; ++j) {
      const T value = run[index[j] - begin];
      picked[j] = value * factor;
      if (left != nullptr) left[index[j] - begin] = value - picked[j] * rest.own_scale;
    }
    if (left != nullptr) to.commit(run.size * sizeof(T));
  }
  to.finish();
  return finite;
}

template <typename T>
void spread(std::span<const std::uint32_t> index, std::span<const T> value, std::span<T> dst) {
  constexpr std::size_t kRun = LineWriter::kRoom / sizeof(T);
  LineWriter to(reinterpret_cast<std::byte*>(dst.data()), dst.size_bytes());
  std::size_t j = 0;
  for (std::size_t begin = 0; begin < dst.size(); begin += kRun) {
    const std::size_t count = std::min(kRun, dst.size() - begin);
    T* const run = reinterpret_cast<T*>(to.room());
    std::fill_n(run, count, T{0});
    for (; j < index.size() && index[j] < begin + count; ++j) run[index[j] - begin] = value[j];
    to.commit(count * sizeof(T));
  }
  to.finish();
}

#define GW_PICK_KERNELS(T)                                                                    \
  template bool pick<T>(const Corrected<T>&, std::span<const std::uint32_t>, T, std::span<T>, \
                        const Rest<T>&);                                                      \
  template void spread<T>(std::span<const std::uint32_t>, std::span<const T>, std::span<T>)
GW_PICK_KERNELS(float);
GW_PICK_KERNELS(double);
#undef GW_PICK_KERNELS

}  // namespace gradwire::cpu
