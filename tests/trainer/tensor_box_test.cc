// Boxes of tensors: what is where, who counts it, and that parameters start from the same values
// however ranks share them.
#include "trainer/tensor_box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/mesh.h"
#include "tests/support/fails.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/parameters.h"
#include "trainer/step/clipping.h"

namespace gradwire::tensor_box_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;
const Shape kConvolution{{4, 3, 2, 5}, 4};

std::vector<std::int64_t> elements_of(const TensorBox& box) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < box.elems(); ++i) all.push_back(box.element(i));
  return all;
}

// Rows of queries, keys and values of heads [first, end) of `dim` rows each.
TensorBox of_heads(std::int64_t width, std::int64_t dim, Range heads) {
  return TensorBox::of(Shape::matrix(3 * width, width), {{3, width, width, 1}, 3})
      .cut(1, {heads.begin * dim, heads.end * dim});
}

std::vector<TensorBox> some_boxes() {
  const TensorBox matrix = TensorBox::of(Shape::matrix(6, 4));
  return {matrix,
          matrix.cut(0, {2, 5}),
          matrix.cut(1, {1, 3}),
          matrix.cut(0, {2, 5}).cut(1, {3, 4}),
          matrix.cut(0, {2, 2}),
          TensorBox::of(Shape::vector(7)).cut(0, {3, 7}),
          TensorBox::of(kConvolution).cut(0, {1, 3}).cut(1, {2, 3}).cut(3, {0, 4}),
          TensorBox::of(kConvolution).cut(1, {0, 2}),
          of_heads(8, 2, {1, 3})};
}

TEST(TensorBox, ElementsAreThoseOfItsRangesInTheirOrder) {
  const TensorBox matrix = TensorBox::of(Shape::matrix(3, 4));
  EXPECT_THAT(elements_of(matrix.cut(0, {1, 2})), ::testing::ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(elements_of(matrix.cut(1, {2, 4})), ::testing::ElementsAre(2, 3, 6, 7, 10, 11));
  EXPECT_THAT(elements_of(of_heads(2, 1, {1, 2})), ::testing::ElementsAre(2, 3, 6, 7, 10, 11));
  for (const TensorBox& box : some_boxes()) {
    EXPECT_TRUE(check_box(box).ok()) << to_string(box);
    std::int64_t before = -1;
    for (std::int64_t i = 0; i < box.elems(); ++i) {
      EXPECT_GT(box.element(i), before) << to_string(box);
      before = box.element(i);
      EXPECT_EQ(box.index_of(before), i) << to_string(box);
    }
    EXPECT_LT(before, box.whole.elems());
  }
}

TEST(TensorBox, CommonRunsAreAllCommonElementsAndContiguousInBoth) {
  const std::vector<TensorBox> boxes = some_boxes();
  for (const TensorBox& a : boxes) {
    for (const TensorBox& b : boxes) {
      if (a.whole != b.whole || a.grid != b.grid) continue;
      std::vector<std::int64_t> wanted;
      const std::vector<std::int64_t> of_b = elements_of(b);
      for (const std::int64_t e : elements_of(a)) {
        if (std::find(of_b.begin(), of_b.end(), e) != of_b.end()) wanted.push_back(e);
      }
      std::vector<std::int64_t> seen;
      int runs = 0;
      for_each_common_run(a, b, [&](const CommonRun& run) {
        ++runs;
        for (std::int64_t i = 0; i < run.elems; ++i) {
          EXPECT_EQ(a.element(run.in_a + i), b.element(run.in_b + i));
          seen.push_back(a.element(run.in_a + i));
        }
      });
      EXPECT_EQ(seen, wanted) << to_string(a) << " and " << to_string(b);
      if (a == b && a.is_whole()) {
        EXPECT_EQ(runs, 1) << to_string(a);
      }
    }
  }
}

TEST(TensorBox, WhatIsNoBoxIsRefused) {
  TensorBox box = TensorBox::of(Shape::matrix(6, 4));
  box.at[1] = {2, 5};
  EXPECT_THAT(check_box(box), fails(kInvalid, "(6, 4)", "2:5"));
  box.at[1] = {2, 1};
  EXPECT_THAT(check_box(box), fails(kInvalid, "2:1"));
  EXPECT_THAT(check_box(TensorBox::of(Shape::matrix(6, 4), Shape::vector(23))),
              fails(kInvalid, "(6, 4) as (23)", "24"));
  EXPECT_EQ(to_string(of_heads(2, 1, {1, 2})), "(6, 2) as (3, 2, 2)[0:3, 1:2, 0:2]");
}

TEST(TensorBox, BoxesCoverTheirTensorOnce) {
  const TensorBox whole = TensorBox::of(Shape::matrix(6, 4));
  const auto check = [](const std::vector<TensorBox>& boxes) { return check_boxes(boxes); };
  EXPECT_TRUE(check({whole, whole}).ok());
  EXPECT_TRUE(check({whole.cut(0, {0, 2}), whole.cut(0, {2, 6}), whole.cut(0, {0, 2})}).ok());
  EXPECT_TRUE(check({whole.cut(0, {0, 0}), whole}).ok());
  EXPECT_THAT(check({whole.cut(0, {0, 2}), whole.cut(0, {3, 6})}), fails(kInvalid, "20"));
  EXPECT_THAT(check({whole.cut(0, {0, 3}), whole.cut(0, {2, 6})}), fails(kInvalid, "2:6", "0:3"));
  EXPECT_THAT(check({whole, TensorBox::of(Shape::matrix(6, 4), Shape::vector(24))}),
              fails(kInvalid, "as (24)"));
}

// What every rank of a mesh holds of three tensors: a weight cut over tp, a gain that tp peers
// replicate, and an embedding that the first and the last stage have. Replicas hold the same.
struct Held {
  std::vector<TensorBox> weight, gain, embedding;
};
Held held_on(const MeshSizes& sizes) {
  Held held;
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const MeshCoordinates at = coordinates_of(sizes, rank);
    const TensorBox weight = TensorBox::of(Shape::matrix(5, 12));
    held.weight.push_back(at.pp == 0 ? weight.cut(1, even_part(12, sizes.tp, at.tp))
                                     : weight.cut(0, {0, 0}));
    const TensorBox gain = TensorBox::of(Shape::vector(7));
    held.gain.push_back(at.pp == sizes.pp - 1 ? gain : gain.cut(0, {0, 0}));
    const TensorBox embedding = TensorBox::of(Shape::matrix(9, 2));
    const bool ends = at.pp == 0 || at.pp == sizes.pp - 1;
    held.embedding.push_back(ends ? embedding.cut(0, even_part(9, sizes.tp, at.tp))
                                  : embedding.cut(0, {0, 0}));
  }
  return held;
}

TEST(TensorBox, EachElementIsCountedOnceOverTheWorldByOneOwner) {
  for (const MeshSizes& sizes : {MeshSizes{1, 1, 1}, MeshSizes{1, 4, 1}, MeshSizes{2, 2, 1},
                                 MeshSizes{1, 2, 3}, MeshSizes{3, 1, 2}, MeshSizes{2, 2, 2}}) {
    SCOPED_TRACE(to_string(sizes));
    const Held held = held_on(sizes);
    double square = 0;
    for (const auto* boxes : {&held.weight, &held.gain, &held.embedding}) {
      ASSERT_TRUE(check_boxes(*boxes).ok());
      std::vector<int> counted(static_cast<std::size_t>(boxes->front().whole.elems()));
      for (int rank = 0; rank < sizes.ranks(); ++rank) {
        const TensorBox& box = (*boxes)[static_cast<std::size_t>(rank)];
        const int owner = owner_of(*boxes, rank);
        if (box.elems() == 0) {
          EXPECT_EQ(owner, -1);
          continue;
        }
        ASSERT_EQ((*boxes)[static_cast<std::size_t>(owner)], box);
        EXPECT_LE(owner, rank);
        if (owner != rank) continue;
        std::vector<float> values;
        for (const std::int64_t e : elements_of(box)) {
          ++counted[static_cast<std::size_t>(e)];
          values.push_back(static_cast<float>(e));
        }
        square += sum_of_squares(values);
      }
      EXPECT_THAT(counted, ::testing::Each(1));
    }
    // The squares of 0 to n - 1, for n = 60, 7 and 18.
    EXPECT_EQ(square, 70210 + 91 + 1785);
  }
}

ParameterInfo weight_of(const Shape& shape, std::int64_t fan_in) {
  return {.name = "block0.qkv.weight", .shape = shape, .fan_in = fan_in};
}

// The parameter as the rank with this box has it.
ParameterInfo within(const ParameterInfo& whole, const TensorBox& box) {
  ParameterInfo part = whole;
  part.shape = Shape::vector(box.elems());
  part.box = box;
  return part;
}

void expect_same_values(const ParameterInfo& whole, const TensorBox& box) {
  SCOPED_TRACE(to_string(box));
  std::vector<float> all(static_cast<std::size_t>(whole.shape.elems()));
  init_parameters<float>({whole}, 7, all);
  std::vector<float> part(static_cast<std::size_t>(box.elems()));
  init_parameters<float>({within(whole, box)}, 7, part);
  for (std::int64_t i = 0; i < box.elems(); ++i) {
    ASSERT_EQ(part[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(box.element(i))]);
  }
}

TEST(TensorBox, ABoxStartsFromTheWholeTensorsElements) {
  for (const TensorBox& box : some_boxes()) {
    ParameterInfo whole = weight_of(box.whole, 4);
    for (const char* scheme : {"uniform", "xavier", "kaiming", "gpt2"}) {
      ASSERT_TRUE(set_init(whole, scheme));
      expect_same_values(whole, box);
    }
  }
}

TEST(TensorBox, SchemesTakeTheWholeTensorsFansAndDimensions) {
  for (const char* scheme : {"uniform", "xavier", "kaiming", "gpt2"}) {
    ParameterInfo whole = weight_of(kConvolution, 30);
    ParameterInfo part = within(whole, TensorBox::of(kConvolution).cut(0, {1, 2}));
    ASSERT_TRUE(set_init(whole, scheme) && set_init(part, scheme));
    EXPECT_EQ(part.init.kind, whole.init.kind) << scheme;
    EXPECT_EQ(part.init.value, whole.init.value) << scheme;
  }
  // A box of a matrix decays, and one of a bias does not, whatever shape it has here.
  ParameterInfo bias = within({.name = "bias", .shape = Shape::vector(6)},
                              TensorBox::of(Shape::vector(6), Shape::matrix(3, 2)).cut(1, {0, 1}));
  bias.shape = Shape::matrix(3, 1);
  const ParameterInfo row =
      within(weight_of(Shape::matrix(6, 4), 4), TensorBox::of(Shape::matrix(6, 4)).cut(0, {1, 2}));
  EXPECT_FALSE(whole_slices({bias})[0].decays);
  EXPECT_TRUE(whole_slices({row})[0].decays);
}

}  // namespace
}  // namespace gradwire::tensor_box_test
