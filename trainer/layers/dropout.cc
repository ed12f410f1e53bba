#include "trainer/layers/dropout.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/hash.h"
#include "base/philox.h"
#include "trainer/layers/block_part.h"

namespace gradwire {

template <typename T>
Dropout<T>::Dropout(SampleShape shape, double p, std::string_view name, const TensorShare& share)
    : shape_(shape),
      name_(hash_name(name)),
      dropped_(static_cast<std::uint32_t>(p * 0x1p32)),
      scale_(static_cast<T>(1 / (1 - p))) {
  GW_CHECK(p >= 0 && p < 1);
  if (!share.sequence || !share.divides()) return;
  part_ = {parts_elems(shape.elems(), share.ranks),
           part_begin(0, share.ranks, share.rank, shape.elems()), Placement::Axis::kPositions};
}

template <typename T>
Dropout<T>::Dropout(Range here, std::int64_t all, double p, std::string_view name)
    : Dropout({here.size(), 1, 1}, p, name) {
  part_ = {all, here.begin, Placement::Axis::kFeatures};
}

template <typename T>
void Dropout<T>::apply(const LayerPass<T>& pass, std::span<const T> from, std::span<T> to) const {
  if (pass.context.mode == PassMode::kEvaluate || dropped_ == 0) {
    if (pass.device != nullptr) return pass.device->copy(from, to);
    std::copy(from.begin(), from.end(), to.begin());
    return;
  }
  const std::int64_t elems = shape_.elems();
  const auto first = [&](std::int64_t row) {
    const std::int64_t sample = pass.context.first_sample + row;
    return static_cast<std::uint64_t>(part_ ? sample * part_->all + part_->begin : sample * elems);
  };
  if (!part_) return draw(pass, first(0), from, to);
  for (std::int64_t row = 0; row < pass.rows; ++row) {
    draw(pass, first(row), part_of(from, row * elems, elems), part_of(to, row * elems, elems));
  }
}

template <typename T>
void Dropout<T>::draw(const LayerPass<T>& pass, std::uint64_t first, std::span<const T> from,
                      std::span<T> to) const {
  // No tensor that is compressed is called as a dropout is: the dithers of its name are free.
  const RandomStream draws(pass.context.seed, RandomUse::kDither, name_, kSharedRank, 0,
                           pass.context.step);
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
