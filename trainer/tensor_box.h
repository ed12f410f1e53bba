// Which elements of a tensor are here, where several ranks share it: a box, that is, a range of
// each dimension of a grid that the tensor's elements lie in.
//
// The grid is the tensor's own shape, or a refinement of it: other dimensions with the same
// elements in the same (row-major) order. So a part that is several boxes of the shape is one of
// the grid: the attention's projections (3 w, w), rows of all queries, keys and values, are the
// grid (3, w, w), of which a rank with heads [a, b) of d rows each has [0, 3) x [a d, b d) x
// [0, w). A parameter has one box (docs/decisions/0011).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gradwire/schedule.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

struct TensorBox {
  Shape whole;                                                // of the tensor
  Shape grid;                                                 // the same elements
  std::array<Range, 4> at{{{0, 0}, {0, 1}, {0, 1}, {0, 1}}};  // of each of the grid's dimensions

  // All of a tensor; in a grid of as many elements.
  static TensorBox of(const Shape& whole) { return of(whole, whole); }
  static TensorBox of(const Shape& whole, const Shape& grid);
  // The same box, of dimension `dim` of the grid `range` alone, which is within what it had.
  TensorBox cut(int dim, Range range) const;

  // Of what is in it: as many dimensions as the grid.
  Shape shape() const;
  std::int64_t elems() const;
  bool is_whole() const { return elems() == whole.elems(); }
  // Place of the box's element `i` among the tensor's, both in row-major order, and the inverse;
  // the latter of an element that the box has.
  std::int64_t element(std::int64_t i) const;
  std::int64_t index_of(std::int64_t element) const;

  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// "[0:3, 0:4]"; "" of all of a tensor.
std::string range_text(const TensorBox& box);
// "(6, 4)", "(6, 4)[0:3, 0:4]", "(6, 4) as (3, 2, 4)[0:3, 0:1, 0:4]": for messages.
std::string to_string(const TensorBox& box);

// kInvalidArgument unless the grid has the tensor's elements and each range lies in its dimension.
Status check_box(const TensorBox& box);

// What two boxes of the same tensor and grid have in common; without elements where that is
// nothing.
TensorBox common_box(const TensorBox& a, const TensorBox& b);

// kInvalidArgument unless the boxes are one tensor in one grid, any two of them equal or without a
// common element, and all elements of the tensor are in one: then each element is counted once if
// owner_of() counts. At most kMostBoxes different ones.
inline constexpr std::size_t kMostBoxes = 4096;
Status check_boxes(std::span<const TensorBox> boxes);

// The rank that counts the elements of rank `rank`'s box, and writes them to checkpoints: the
// lowest of those that hold the same box. `held`: what each rank of the world, or of a group, holds
// of one tensor, in rank order; a box without elements where it has nothing (-1 for its owner).
// Norms, clipping and flags of overflow add what owners have over the group, so that an element
// counts once however many ranks hold it: replicated gains of norms, tied embeddings on the first
// and the last stage. An element is updated, and decays, wherever it is held.
int owner_of(std::span<const TensorBox> held, int rank);

// Contiguous elements of two boxes.
struct CommonRun {
  std::int64_t in_a = 0;  // of the first one, among the elements of a
  std::int64_t in_b = 0;
  std::int64_t elems = 0;
};

// visit(CommonRun) for all elements that two boxes of one tensor and grid have in common, in
// ascending order of both.
template <typename Visit>
void for_each_common_run(const TensorBox& a, const TensorBox& b, const Visit& visit) {
  const TensorBox both = common_box(a, b);
  const std::int64_t count = both.elems();
  if (count == 0) return;
  // Dimensions from `from` on are whole, and one more may be a range: that much is contiguous.
  int from = both.grid.rank - 1;
  std::int64_t run = 1;
  for (; from > 0; --from) {
    const auto d = static_cast<std::size_t>(from);
    run *= both.at[d].size();
    if (both.at[d].size() != both.grid.dim[d]) break;
  }
  if (from == 0) run *= both.at[0].size();
  for (std::int64_t i = 0; i < count; i += run) {
    const std::int64_t element = both.element(i);
    visit(CommonRun{a.index_of(element), b.index_of(element), run});
  }
}

}  // namespace gradwire
