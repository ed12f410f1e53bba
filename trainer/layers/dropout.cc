#include "trainer/layers/dropout.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/hash.h"
#include "base/philox.h"

namespace gradwire {

template <typename T>
Dropout<T>::Dropout(SampleShape shape, double p, std::string_view name)
    : shape_(shape),
      name_(hash_name(name)),
      dropped_(static_cast<std::uint32_t>(p * 0x1p32)),
      scale_(static_cast<T>(1 / (1 - p))) {
  GW_CHECK(p >= 0 && p < 1);
}

template <typename T>
void Dropout<T>::apply(const LayerPass<T>& pass, std::span<const T> from, std::span<T> to) const {
  if (pass.context.mode == PassMode::kEvaluate || dropped_ == 0) {
    if (pass.device != nullptr) return pass.device->copy(from, to);
    std::copy(from.begin(), from.end(), to.begin());
    return;
  }
  // No tensor that is compressed is called as a dropout is: the dithers of its name are free.
  const RandomStream draws(pass.context.seed, RandomUse::kDither, name_, kSharedRank, 0,
                           pass.context.step);
  const auto first = static_cast<std::uint64_t>(pass.context.first_sample * shape_.elems());
  if (pass.device != nullptr) {
    return pass.device->dropout({draws, first, dropped_, static_cast<float>(scale_)}, from, to);
  }
  std::array<std::uint32_t, 256> words{};
  for (std::size_t done = 0; done < from.size();) {
    const std::size_t count = std::min(words.size(), from.size() - done);
    draws.words(first + done, std::span(words).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      to[done + i] = words[i] < dropped_ ? T(0) : from[done + i] * scale_;
    }
    done += count;
  }
}

template <typename T>
void Dropout<T>::forward(const LayerPass<T>& pass) const {
  apply(pass, pass.x, pass.y);
}

template <typename T>
void Dropout<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                std::span<T> dx) const {
  apply(pass, dy, dx);
}

template class Dropout<float>;
template class Dropout<double>;

}  // namespace gradwire
