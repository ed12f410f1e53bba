// The umbrella header compiles in a program that includes nothing else before it, and the basic
// vocabulary behaves. (tests/lint compiles every public header alone.)
#include "gradwire/gradwire.h"

#include <gtest/gtest.h>

namespace gradwire::public_headers_test {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return x / 2;
}
Status use(int x, int& out) {
  GW_ASSIGN(out, half(x));
  GW_TRY(Status());
  return {};
}

TEST(Status, CarriesCodeAndMessage) {
  int out = 0;
  EXPECT_TRUE(use(4, out).ok());
  EXPECT_EQ(out, 2);
  const Status bad = use(3, out).with_context("use");
  EXPECT_EQ(bad.code(), Code::kInvalidArgument);
  EXPECT_EQ(bad.message(), "use: odd");
  EXPECT_EQ(to_string(bad.code()), "invalid argument");
}

TEST(Piece, CoversWithoutOverlap) {
  for (int parts = 1; parts <= 17; ++parts) {
    for (std::int64_t n : {0, 1, 16, 17, 1000003}) {
      std::int64_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Range r = piece(n, parts, i);
        EXPECT_EQ(r.begin, next);
        EXPECT_GE(r.size(), 0);
        EXPECT_LE(r.size(), n / parts + 1);
        next = r.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(Tensor, ViewsKnowTheirBytes) {
  std::array<float, 6> data{};
  const TensorView view(reinterpret_cast<std::byte*>(data.data()), Shape::matrix(2, 3),
                        DType::kF32);
  EXPECT_EQ(view.bytes().size(), 24u);
  EXPECT_EQ(view.slice(4, 2).data(), reinterpret_cast<std::byte*>(data.data() + 4));
  EXPECT_TRUE(TensorView().empty());
  EXPECT_EQ(to_string(view.shape()), "(2, 3)");
}

}  // namespace
}  // namespace gradwire::public_headers_test
