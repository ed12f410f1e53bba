// Layers whose tensors ranks share, against the whole layers: values, bits, and bytes.
// The numbers M3 to M14 are those of the seeds' table of tensor parallelism.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/adapters/tensor/tensor_ranks.h"
#include "trainer/accounts/layer_traffic.h"
#include "trainer/layers/causal_attention.h"
#include "trainer/layers/chain.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/parallel/column_linear.h"
#include "trainer/layers/parallel/input_sum.h"
#include "trainer/layers/parallel/row_linear.h"
#include "trainer/layers/parallel/sequence_input.h"
#include "trainer/layers/parallel/sequence_row_linear.h"
#include "trainer/layers/relu.h"

namespace gradwire::testing::shared_layers_test {
namespace {

struct Sizes {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};
const std::vector<Sizes> kSizes{{32, 64, 128}, {64, 256, 64}};

// Of a tensor of so many floats in an all-reduce over p ranks; half of it in a gather, or a
// reduce-scatter.
std::uint64_t all_reduce_bytes(std::int64_t elems, int p) {
  return static_cast<std::uint64_t>(2 * elems * (p - 1) / p * 4);
}

template <typename T>
LayerRun<T> whole_linear(const Linear<T>& layer, const Sizes& sizes) {
  const std::int64_t params = parameter_elems(layer.parameters());
  LayerRun<T> run(layer, sizes.rows, draws<T>(sizes.rows * sizes.in, 1), draws<T>(params, 2));
  run.forward();
  run.backward(draws<T>(sizes.rows * sizes.out, 3));
  return run;
}

// Each rank has the outputs of its own columns; dx is the sum of all ranks'. Forward sends nothing.
TEST(SharedLayers, M3_PartitionOutput) {
  for (const Sizes& sizes : kSizes) {
    const Linear<float> layer(sizes.in, sizes.out);
    LayerRun<float> whole = whole_linear(layer, sizes);
    for (const int p : {2, 4}) {
      on_tensor_ranks(p, [&](TensorRank& at) {
        const Range here = even_part(sizes.out, p, at.rank());
        const InputSum<float> shared(
            std::make_unique<ColumnLinear<float>>(sizes.in, ColumnShare{sizes.out, here}));
        LayerRun<float> run(shared, sizes.rows, whole.x,
                            cut_parameters(whole.params, layer.parameters(), shared.parameters()));
        run.peers = &at.peers;
        EXPECT_EQ(at.bytes_of([&] { run.forward(); }), 0U);
        EXPECT_LE(relative_distance(run.y, columns_of(whole.y, sizes.out, here)), 1e-6);
        const auto dy = columns_of(draws<float>(sizes.rows * sizes.out, 3), sizes.out, here);
        EXPECT_EQ(at.bytes_of([&] { run.backward(dy); }),
                  all_reduce_bytes(sizes.rows * sizes.in, p));
        EXPECT_LE(relative_distance(run.dx, whole.dx), 1e-6);
        EXPECT_LE(relative_distance(run.grads, cut_parameters(whole.grads, layer.parameters(),
                                                              shared.parameters())),
                  1e-6);
      });
    }
  }
}

// The sum of what ranks make of their columns: bit for bit the fold of the same partial products in
// rank order, and the whole layer's to rounding. The way back sends nothing.
TEST(SharedLayers, M4_ReduceOutput) {
  for (const Sizes& sizes : kSizes) {
    const Linear<float> layer(sizes.in, sizes.out);
    LayerRun<float> whole = whole_linear(layer, sizes);
    for (const int p : {2, 3, 4}) {
      std::vector<std::vector<float>> parts(static_cast<std::size_t>(p));
      std::vector<std::vector<float>> sums(parts.size());
      on_tensor_ranks(p, [&](TensorRank& at) {
        const auto rank = static_cast<std::size_t>(at.rank());
        const Range here = even_part(sizes.in, p, at.rank());
        const RowLinear<float> shared({sizes.in, here}, sizes.out);
        LayerRun<float> run(shared, sizes.rows, columns_of(whole.x, sizes.in, here),
                            cut_parameters(whole.params, layer.parameters(), shared.parameters()));
        run.peers = &at.peers;
        const std::uint64_t sent = at.bytes_of([&] { run.forward(); });
        if (sizes.rows * sizes.out % p == 0) {
          EXPECT_EQ(sent, all_reduce_bytes(sizes.rows * sizes.out, p));
        }
        EXPECT_LE(relative_distance(run.y, whole.y), 1e-6);
        const auto dy = draws<float>(sizes.rows * sizes.out, 3);
        EXPECT_EQ(at.bytes_of([&] { run.backward(dy); }), 0U);
        EXPECT_LE(relative_distance(run.dx, columns_of(whole.dx, sizes.in, here)), 1e-6);
        EXPECT_LE(relative_distance(run.grads, cut_parameters(whole.grads, layer.parameters(),
                                                              shared.parameters())),
                  1e-6);
        sums[rank] = run.y;
        const Linear<float> alone(here.size(), sizes.out, {.bias = false});
        LayerRun<float> part(alone, sizes.rows, run.x,
                             std::vector<float>(run.params.begin(), run.params.end() - sizes.out));
        parts[rank] = part.forward();
      });
      const std::vector<float> bias(whole.params.end() - sizes.out, whole.params.end());
      std::vector<float> oracle = parts[0];
      for (std::size_t r = 1; r < parts.size(); ++r) {
        for (std::size_t i = 0; i < oracle.size(); ++i) oracle[i] += parts[r][i];
      }
      for (std::size_t i = 0; i < oracle.size(); ++i) oracle[i] += bias[i % bias.size()];
      for (const std::vector<float>& sum : sums) EXPECT_EQ(sum, oracle) << p << " ranks";
    }
  }
}

// What one rank sends times p / (p - 1), in elements.
std::int64_t elems_of(std::uint64_t bytes, int p) {
  return static_cast<std::int64_t>(bytes / sizeof(float)) * p / (p - 1);
}

// A layer's three phases as they were counted. `average`: gradients are summed over the ranks.
PhaseElems counted_phases(TensorRank& at, const Layer<float>& layer, std::int64_t rows,
                          std::int64_t inputs, bool average) {
  const int p = at.ranks();
  LayerRun<float> run(layer, rows, draws<float>(rows * inputs, 4),
                      draws<float>(parameter_elems(layer.parameters()), 5));
  run.peers = &at.peers;
  const auto dy = draws<float>(rows * layer.output().elems(), 6);
  PhaseElems phases;
  phases.forward = elems_of(at.bytes_of([&] { run.forward(); }), p);
  phases.backward = elems_of(at.bytes_of([&] { run.backward(dy); }), p);
  const auto exchange = [&] {
    if (!average) return;
    at.peers.start_sum(std::span(run.grads));
    at.peers.await();
  };
  phases.gradients = elems_of(at.bytes_of(exchange), p);
  return phases;
}

// The table, cell by cell: data parallel 0, 0, 2 Cout Cin; partition output of a divided input
// B Cin, B Cin, 0, of a whole one 0, 2 B Cin, 0; reduce output 2 B Cout, 0, 0.
TEST(SharedLayers, M5_TableOfCommunication) {
  for (const auto& [b, in, out] : kSizes) {
    const LayerSize size{in * out, in, out};
    const auto cells = [&, b = b](LayerDivision division) {
      return layer_traffic(division, size, b);
    };
    EXPECT_EQ(cells(LayerDivision::kDataParallel), (PhaseElems{0, 0, 2 * out * in}));
    EXPECT_EQ(cells(LayerDivision::kPartitionOutput), (PhaseElems{b * in, b * in, 0}));
    EXPECT_EQ(cells(LayerDivision::kColumnParallel), (PhaseElems{0, 2 * b * in, 0}));
    EXPECT_EQ(cells(LayerDivision::kReduceOutput), (PhaseElems{2 * b * out, 0, 0}));
    for (const int p : {2, 4}) {
      on_tensor_ranks(p, [&, b = b, in = in, out = out](TensorRank& at) {
        const Range columns = even_part(out, p, at.rank());
        const Range rows = even_part(in, p, at.rank());
        const Linear<float> replica(in, out, {.bias = false});
        EXPECT_EQ(counted_phases(at, replica, b / p, in, true),
                  cells(LayerDivision::kDataParallel));
        // The rows are positions of one sample, divided among the ranks.
        const TensorShare share{.ranks = p, .rank = at.rank(), .sequence = true};
        const SequenceInput<float> divided(
            std::make_unique<ColumnLinear<float>>(in, ColumnShare{out, columns},
                                                  LinearOptions{false, b}),
            {b, 1, in}, share);
        EXPECT_EQ(counted_phases(at, divided, 1, b / p * in, false),
                  cells(LayerDivision::kPartitionOutput));
        const InputSum<float> column(std::make_unique<ColumnLinear<float>>(
            in, ColumnShare{out, columns}, LinearOptions{false, b}));
        EXPECT_EQ(counted_phases(at, column, 1, b * in, false),
                  cells(LayerDivision::kColumnParallel));
        const RowLinear<float> row({in, rows}, out, {false, b});
        EXPECT_EQ(counted_phases(at, row, 1, b * rows.size(), false),
                  cells(LayerDivision::kReduceOutput));
      });
    }
  }
}

// Two linear layers as one block.
std::unique_ptr<Chain<double>> block(std::int64_t in, std::int64_t hidden, std::int64_t out, int p,
                                     int rank) {
  auto chain = std::make_unique<Chain<double>>(SampleShape{in, 1, 1});
  const Range here = even_part(hidden, p, rank);
  if (p == 1) {
    chain->add("fc", std::make_unique<Linear<double>>(in, hidden, LinearOptions{false, 1}));
    chain->add("out", std::make_unique<Linear<double>>(hidden, out, LinearOptions{false, 1}));
    return chain;
  }
  chain->add("fc", std::make_unique<InputSum<double>>(std::make_unique<ColumnLinear<double>>(
                       in, ColumnShare{hidden, here}, LinearOptions{false, 1})));
  chain->add("out", std::make_unique<RowLinear<double>>(RowShare{hidden, here}, out,
                                                        LinearOptions{false, 1}));
  return chain;
}

// (1 x 2) (2 x 2) (2 x 2): [x1 x2] [a b; c d] [e f; g h], whose ranks have [a; c], [e f] and [b;
// d], [g h]: the partial results add up to [ae + bg, af + bh] and so on. One exchange each way.
TEST(SharedLayers, M10_TheWorkedExample) {
  const double a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
  const std::vector<double> x{2, -1};
  const double u = x[0] * a + x[1] * c;
  const double v = x[0] * b + x[1] * d;
  const std::vector<double> wanted{u * e + v * g, u * f + v * h};
  // Weights are (out, in).
  const std::vector<double> params{a, c, b, d, e, g, f, h};
  const auto whole = block(2, 2, 2, 1, 0);
  LayerRun<double> alone(*whole, 1, x, params);
  EXPECT_EQ(alone.forward(), wanted);
  alone.backward({1, 1});
  on_tensor_ranks(2, [&](TensorRank& at) {
    const auto part = block(2, 2, 2, 2, at.rank());
    LayerRun<double> run(*part, 1, x,
                         cut_parameters(params, whole->parameters(), part->parameters()));
    run.peers = &at.peers;
    EXPECT_EQ(run.forward(), wanted);
    EXPECT_EQ(at.peers.exchanges(), 1);
    run.backward({1, 1});
    EXPECT_EQ(at.peers.exchanges(), 2);
    EXPECT_EQ(run.dx, alone.dx);
    EXPECT_EQ(run.grads, cut_parameters(alone.grads, whole->parameters(), part->parameters()));
  });
}

// All of a layer's ways back at once give the same bits as one after another.
TEST(SharedLayers, BackwardInOneIsBackwardInParts) {
  on_tensor_ranks(3, [&](TensorRank& at) {
    const auto part = block(6, 9, 5, 3, at.rank());
    const std::int64_t params = parameter_elems(part->parameters());
    LayerRun<double> run(*part, 4, draws(24, 1), draws(params, 2));
    run.peers = &at.peers;
    run.forward();
    const std::vector<double> dy = draws(20, 3);
    run.backward(dy);
    const std::vector<double> dx = run.dx;
    const std::vector<double> grads = run.grads;
    std::ranges::fill(run.dx, 777);
    std::ranges::fill(run.grads, 777);
    part->backward(run.pass(), dy, run.dx, run.grads);
    EXPECT_EQ(run.dx, dx);
    EXPECT_EQ(run.grads, grads);
  });
}

}  // namespace
}  // namespace gradwire::testing::shared_layers_test
