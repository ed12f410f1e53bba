#include "trainer/tensor_box.h"

#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::size_t kDims = 4;

Status bad_box(const TensorBox& box, const std::string& wanted) {
  return {Code::kInvalidArgument, "box " + to_string(box) + " (expected " + wanted + ")"};
}

std::string range_list(const TensorBox& box) {
  std::string text;
  for (int d = 0; d < box.grid.rank; ++d) {
    const Range& range = box.at[static_cast<std::size_t>(d)];
    text += format("%s%lld:%lld", d == 0 ? "" : ", ", static_cast<long long>(range.begin),
                   static_cast<long long>(range.end));
  }
  return "[" + text + "]";
}

}  // namespace

TensorBox TensorBox::of(const Shape& whole, const Shape& grid) {
  TensorBox box{whole, grid};
  for (std::size_t d = 0; d < kDims; ++d) box.at[d] = {0, grid.dim[d]};
  return box;
}

TensorBox TensorBox::cut(int dim, Range range) const {
  TensorBox box = *this;
  Range& had = box.at[static_cast<std::size_t>(dim)];
  GW_CHECK(had.begin <= range.begin && range.begin <= range.end && range.end <= had.end);
  had = range;
  return box;
}

Shape TensorBox::shape() const {
  Shape shape = grid;
  for (std::size_t d = 0; d < kDims; ++d) shape.dim[d] = at[d].size();
  return shape;
}

std::int64_t TensorBox::elems() const {
  return at[0].size() * at[1].size() * at[2].size() * at[3].size();
}

std::int64_t TensorBox::element(std::int64_t i) const {
  std::int64_t element = 0;
  std::int64_t stride = 1;
  for (std::size_t d = kDims; d-- > 0;) {
    const std::int64_t width = at[d].size();
    element += (at[d].begin + i % width) * stride;
    i /= width;
    stride *= grid.dim[d];
  }
  return element;
}

std::int64_t TensorBox::index_of(std::int64_t element) const {
  std::int64_t index = 0;
  std::int64_t stride = 1;
  for (std::size_t d = kDims; d-- > 0;) {
    index += (element % grid.dim[d] - at[d].begin) * stride;
    element /= grid.dim[d];
    stride *= at[d].size();
  }
  return index;
}

std::string range_text(const TensorBox& box) { return box.is_whole() ? "" : range_list(box); }

std::string to_string(const TensorBox& box) {
  std::string text = to_string(box.whole);
  if (box.grid != box.whole) text += " as " + to_string(box.grid);
  return text + range_text(box);
}

Status check_box(const TensorBox& box) {
  if (box.grid.elems() != box.whole.elems()) {
    return bad_box(box,
                   format("a grid of %lld elements", static_cast<long long>(box.whole.elems())));
  }
  for (std::size_t d = 0; d < kDims; ++d) {
    const Range& range = box.at[d];
    if (0 <= range.begin && range.begin <= range.end && range.end <= box.grid.dim[d]) continue;
    return bad_box(box, "ranges within its dimensions, not " + range_list(box));
  }
  return {};
}

TensorBox common_box(const TensorBox& a, const TensorBox& b) {
  GW_CHECK(a.whole == b.whole && a.grid == b.grid);
  TensorBox both = a;
  for (std::size_t d = 0; d < kDims; ++d) {
    both.at[d].begin = std::max(a.at[d].begin, b.at[d].begin);
    both.at[d].end = std::max(both.at[d].begin, std::min(a.at[d].end, b.at[d].end));
  }
  return both;
}

Status check_boxes(std::span<const TensorBox> boxes) {
  std::vector<TensorBox> different;
  std::int64_t covered = 0;
  for (const TensorBox& box : boxes) {
    GW_TRY(check_box(box));
    const TensorBox& first = boxes.front();
    if (box.whole != first.whole || box.grid != first.grid) {
      return bad_box(box, "the tensor and grid of " + to_string(first));
    }
    bool fresh = box.elems() > 0;
    for (const TensorBox& other : different) {
      if (box == other) {
        fresh = false;
        break;
      }
      if (common_box(box, other).elems() > 0) {
        return bad_box(box, "one equal to " + to_string(other) + ", or without its elements");
      }
    }
    if (!fresh) continue;
    different.push_back(box);
    covered += box.elems();
    if (different.size() > kMostBoxes) {
      return bad_box(box, format("at most %zu different boxes of a tensor", kMostBoxes));
    }
  }
  if (boxes.empty() || covered == boxes.front().whole.elems()) return {};
  return bad_box(boxes.front(),
                 format("boxes of all elements, not of %lld", static_cast<long long>(covered)));
}

int owner_of(std::span<const TensorBox> held, int rank) {
  const TensorBox& box = held[static_cast<std::size_t>(rank)];
  if (box.elems() == 0) return -1;
  return static_cast<int>(std::find(held.begin(), held.end(), box) - held.begin());
}

}  // namespace gradwire
