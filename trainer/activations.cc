#include "trainer/activations.h"

#include <algorithm>

#include "base/check.h"

namespace gradwire {
namespace {

// Elements rounded up to whole cache lines.
template <typename T>
std::int64_t padded(std::int64_t elems) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  return (elems + kLine - 1) / kLine * kLine;
}

}  // namespace

template <typename T>
Result<Activations<T>> Activations<T>::create(std::span<const std::int64_t> widths,
                                              std::int64_t max_rows, std::int64_t scratch) {
  Activations made;
  made.widths_.assign(widths.begin(), widths.end());
  made.max_rows_ = max_rows;
  std::int64_t next = 0;
  for (const std::int64_t width : widths) {
    made.value_offsets_.push_back(next);
    next += padded<T>(width * max_rows);
  }
  made.delta_offset_ = next;
  made.delta_stride_ = padded<T>(*std::max_element(widths.begin(), widths.end()) * max_rows);
  made.scratch_offset_ = next + 2 * made.delta_stride_;
  made.scratch_elems_ = scratch;
  const std::int64_t elems = made.scratch_offset_ + scratch;
  GW_ASSIGN(made.memory_, Buffer::allocate(static_cast<std::size_t>(elems) * sizeof(T)));
  return made;
}

template <typename T>
std::span<T> Activations<T>::block(std::int64_t offset, std::int64_t elems) {
  auto* data = reinterpret_cast<T*>(memory_.bytes().data());
  return {data + offset, static_cast<std::size_t>(elems)};
}

template <typename T>
std::span<T> Activations<T>::values(std::size_t level, std::int64_t rows) {
  GW_CHECK(level < widths_.size() && rows <= max_rows_);
  return block(value_offsets_[level], widths_[level] * rows);
}

template <typename T>
std::span<T> Activations<T>::deltas(std::size_t level, std::int64_t rows) {
  GW_CHECK(level < widths_.size() && rows <= max_rows_);
  const std::int64_t turn = static_cast<std::int64_t>(level % 2);
  return block(delta_offset_ + turn * delta_stride_, widths_[level] * rows);
}

template <typename T>
std::span<T> Activations<T>::scratch() {
  return block(scratch_offset_, scratch_elems_);
}

template class Activations<float>;
template class Activations<double>;

}  // namespace gradwire
