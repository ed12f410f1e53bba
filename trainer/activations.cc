#include "trainer/activations.h"

#include <algorithm>

#include "base/check.h"
#include "trainer/layers/block_part.h"

namespace gradwire {

template <typename T>
auto Activations<T>::Memory::reserve(std::int64_t elems) -> Block {
  const Block block{end_, elems};
  end_ += whole_lines<T>(elems);
  elems_ = std::max(elems_, end_);
  return block;
}

template <typename T>
Status Activations<T>::Memory::allocate(const MemoryArena& arena, MemoryClass what) {
  GW_ASSIGN(buffer_, arena.allocate(what, bytes()));
  return {};
}

template <typename T>
std::span<T> Activations<T>::Memory::block(Block block) {
  auto* data = reinterpret_cast<T*>(buffer_.bytes().data());
  return {data + block.offset, static_cast<std::size_t>(block.elems)};
}

// Everything stays: levels, then what layers keep.
template <typename T>
void Activations<T>::lay_out_values(const ActivationSizes& sizes) {
  for (std::size_t level = 0; level < sizes.widths.size(); ++level) {
    values_.push_back(own_.reserve(sizes.level_elems(level, max_rows_)));
  }
  for (const std::int64_t elems : sizes.saved) saved_.push_back(own_.reserve(elems));
}

template <typename T>
void Activations<T>::lay_out_inside(const ActivationSizes& sizes, const LayerRange& segment) {
  for (std::size_t level = segment.begin; level < segment.end; ++level) {
    if (level > segment.begin) values_[level] = own_.reserve(sizes.level_elems(level, max_rows_));
    saved_[level] = own_.reserve(sizes.saved[level]);
  }
}

// What enters a segment stays, the output, and the inside of those that are kept; behind it the
// inside of one segment after another.
template <typename T>
void Activations<T>::lay_out_segments(const ActivationSizes& sizes) {
  values_.resize(sizes.widths.size());
  saved_.resize(sizes.saved.size());
  for (const auto& [range, again] : sizes.segments) {
    values_[range.begin] = own_.reserve(sizes.level_elems(range.begin, max_rows_));
    if (!again) lay_out_inside(sizes, range);
  }
  const std::size_t output = sizes.segments.back().range.end;
  values_[output] = own_.reserve(sizes.level_elems(output, max_rows_));
  const std::int64_t inside = own_.elems();
  for (const auto& [range, again] : sizes.segments) {
    if (!again) continue;
    own_.go_back(inside);
    lay_out_inside(sizes, range);
  }
}

template <typename T>
Activations<T> Activations<T>::lay_out(const ActivationSizes& sizes, std::int64_t max_rows,
                                       DeltaRoom room) {
  Activations made;
  made.widths_ = sizes.widths;
  made.max_rows_ = max_rows;
  made.room_ = room;
  made.shared_ = std::make_shared<Memory>();
  if (sizes.segments.empty()) {
    made.lay_out_values(sizes);
  } else {
    GW_CHECK(room == DeltaRoom::kTurns);
    made.lay_out_segments(sizes);
  }
  if (room == DeltaRoom::kEveryLevel) {
    for (std::size_t level = 0; level < sizes.widths.size(); ++level) {
      made.deltas_.push_back(made.own_.reserve(sizes.level_elems(level, max_rows)));
    }
    for (const std::int64_t elems : sizes.stash) made.stash_.push_back(made.own_.reserve(elems));
  } else {
    std::int64_t widest = 0;
    for (std::size_t level = 0; level < sizes.widths.size(); ++level) {
      widest = std::max(widest, sizes.level_elems(level, max_rows));
    }
    for (int turn = 0; turn < 2; ++turn) made.deltas_.push_back(made.shared_->reserve(widest));
    std::int64_t stash = 0;
    for (const std::int64_t elems : sizes.stash) stash = std::max(stash, elems);
    made.stash_.push_back(made.shared_->reserve(stash));
  }
  made.scratch_ = made.shared_->reserve(sizes.scratch);
  return made;
}

template <typename T>
Result<Activations<T>> Activations<T>::create(const ActivationSizes& sizes, std::int64_t max_rows,
                                              DeltaRoom room, const MemoryArena& arena) {
  Activations made = lay_out(sizes, max_rows, room);
  made.arena_ = arena;
  GW_TRY(made.own_.allocate(arena, MemoryClass::kActivations));
  GW_TRY(made.shared_->allocate(arena, MemoryClass::kWorkspace));
  return made;
}

template <typename T>
ActivationElems Activations<T>::elems(const ActivationSizes& sizes, std::int64_t max_rows,
                                      DeltaRoom room) {
  const Activations made = lay_out(sizes, max_rows, room);
  return {made.own_.elems(), made.shared_->elems()};
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
  made.arena_ = arena_;
  made.own_.reserve(own_.elems());
  GW_TRY(made.own_.allocate(arena_, MemoryClass::kActivations));
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
