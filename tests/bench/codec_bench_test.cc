#include "bench/codec_bench.h"

#include <gtest/gtest.h>

namespace gradwire::bench::codec_bench_test {
namespace {

TEST(CodecBench, ShapesAreNearlySquare) {
  EXPECT_EQ(matrix_of(25'000'000), Shape::matrix(5000, 5000));
  EXPECT_EQ(matrix_of(12), Shape::matrix(3, 4));
  EXPECT_EQ(matrix_of(13), Shape::matrix(1, 13));
  EXPECT_EQ(matrix_of(1), Shape::matrix(1, 1));
}

TEST(CodecBench, RowsHoldWhatTheMethodsPromise) {
  auto bench = CodecBench::create({.elements = 40000, .rounds = 1});
  ASSERT_TRUE(bench.has_value());
  const Registry registry = Registry::builtin();
  const auto run = [&](std::string_view spec) {
    auto row = bench.value().run(registry, spec);
    EXPECT_TRUE(row.has_value()) << row.error().message();
    EXPECT_EQ(row.value().spec, spec);
    EXPECT_EQ(row.value().elements, 40000);
    EXPECT_EQ(row.value().threads, 1);
    EXPECT_GT(row.value().read_gbps, 0);
    EXPECT_GT(row.value().encode_gbps, 0);
    EXPECT_GT(row.value().decode_gbps, 0);
    return row.value();
  };
  const CodecRow none = run("none");
  EXPECT_EQ(none.bits_per_element, 32);
  EXPECT_EQ(none.nmse, 0);
  const CodecRow topk = run("topk:ratio=0.01,ef=ef14");
  EXPECT_EQ(topk.canonical, "topk:ratio=0.01");
  EXPECT_DOUBLE_EQ(topk.bits_per_element, 0.64);
  EXPECT_NEAR(topk.nmse, 0.915, 0.01);  // the share of a Gaussian's energy outside its top 1 %
  EXPECT_TRUE(topk.encode_ef_gbps.has_value());
  const CodecRow qsgd = run("qsgd:bits=4");  // 79 buckets
  EXPECT_DOUBLE_EQ(qsgd.bits_per_element, 4 + 79 * 32 / 40000.0);
  EXPECT_NEAR(qsgd.nmse, 0.038, 0.004);
  EXPECT_FALSE(run("signsgd:vote=majority").encode_ef_gbps.has_value());
  EXPECT_FALSE(bench.value().run(registry, "nothing").has_value());
}

TEST(CodecBench, ThreadsChangeNeitherBitsNorError) {
  auto one = CodecBench::create({.elements = 300'000, .rounds = 1});
  auto three = CodecBench::create({.elements = 300'000, .rounds = 1, .threads = 3});
  ASSERT_TRUE(one.has_value() && three.has_value());
  const Registry registry = Registry::builtin();
  for (const std::string_view spec : {"qsgd:bits=4", "topk:ratio=0.01", "none"}) {
    const auto a = one.value().run(registry, spec);
    const auto b = three.value().run(registry, spec);
    ASSERT_TRUE(a.has_value() && b.has_value());
    EXPECT_EQ(b.value().threads, 3);
    EXPECT_EQ(a.value().bits_per_element, b.value().bits_per_element);
    EXPECT_EQ(a.value().nmse, b.value().nmse);
  }
  EXPECT_EQ(CodecBench::create({.threads = 0}).error().code(), Code::kInvalidArgument);
}

TEST(CodecBench, NeedsElements) {
  EXPECT_EQ(CodecBench::create({.elements = 0}).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace gradwire::bench::codec_bench_test
