#include "trainer/activations.h"

#include <algorithm>

#include "base/check.h"
#include "trainer/layers/block_part.h"

namespace gradwire {

template <typename T>
auto Activations<T>::Memory::reserve(std::int64_t elems) -> Block {
  const Block block{elems_, elems};
  elems_ += whole_lines<T>(elems);
  return block;
}

template <typename T>
Status Activations<T>::Memory::allocate() {
  GW_ASSIGN(buffer_, Buffer::allocate(bytes()));
  return {};
}

template <typename T>
std::span<T> Activations<T>::Memory::block(Block block) {
  auto* data = reinterpret_cast<T*>(buffer_.bytes().data());
  return {data + block.offset, static_cast<std::size_t>(block.elems)};
}

template <typename T>
Result<Activations<T>> Activations<T>::create(const ActivationSizes& sizes, std::int64_t max_rows,
                                              DeltaRoom room) {
  Activations made;
  made.widths_ = sizes.widths;
  made.max_rows_ = max_rows;
  made.room_ = room;
  made.shared_ = std::make_shared<Memory>();
  for (const std::int64_t width : sizes.widths) {
    made.values_.push_back(made.own_.reserve(width * max_rows));
  }
  for (const std::int64_t elems : sizes.saved) made.saved_.push_back(made.own_.reserve(elems));
  if (room == DeltaRoom::kEveryLevel) {
    for (const std::int64_t width : sizes.widths) {
      made.deltas_.push_back(made.own_.reserve(width * max_rows));
    }
    for (const std::int64_t elems : sizes.stash) made.stash_.push_back(made.own_.reserve(elems));
  } else {
    const std::int64_t widest = *std::max_element(sizes.widths.begin(), sizes.widths.end());
    for (int turn = 0; turn < 2; ++turn) {
      made.deltas_.push_back(made.shared_->reserve(widest * max_rows));
    }
    std::int64_t stash = 0;
    for (const std::int64_t elems : sizes.stash) stash = std::max(stash, elems);
    made.stash_.push_back(made.shared_->reserve(stash));
  }
  made.scratch_ = made.shared_->reserve(sizes.scratch);
  GW_TRY(made.own_.allocate());
  GW_TRY(made.shared_->allocate());
  return made;
}

template <typename T>
Result<Activations<T>> Activations<T>::sibling() const {
  Activations made;
  made.widths_ = widths_;
  made.values_ = values_;
  made.deltas_ = deltas_;
  made.saved_ = saved_;
  made.stash_ = stash_;
  made.scratch_ = scratch_;
  made.max_rows_ = max_rows_;
  made.room_ = room_;
  made.shared_ = shared_;
  made.own_.reserve(own_.elems());
  GW_TRY(made.own_.allocate());
  return made;
}

template <typename T>
std::span<T> Activations<T>::values(std::size_t level, std::int64_t rows) {
  GW_CHECK(level < widths_.size() && rows <= max_rows_);
  return own_.block({values_[level].offset, widths_[level] * rows});
}

template <typename T>
std::span<T> Activations<T>::deltas(std::size_t level, std::int64_t rows) {
  GW_CHECK(level < widths_.size() && rows <= max_rows_);
  const std::int64_t elems = widths_[level] * rows;
  if (room_ == DeltaRoom::kEveryLevel) return own_.block({deltas_[level].offset, elems});
  return shared_->block({deltas_[level % 2].offset, elems});
}

template <typename T>
std::span<T> Activations<T>::stash(std::size_t level) {
  return room_ == DeltaRoom::kEveryLevel ? own_.block(stash_[level]) : shared_->block(stash_[0]);
}

template class Activations<float>;
template class Activations<double>;

}  // namespace gradwire
