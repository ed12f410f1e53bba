// A layer with all the memory that its calls want, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/philox.h"
#include "trainer/layers/layer.h"

namespace gradwire {

// Standard normal draws.
template <typename T = double>
std::vector<T> draws(std::int64_t count, std::uint64_t seed) {
  const RandomStream stream(seed, RandomUse::kTest, 1, kSharedRank, 0, 0);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(stream.normal(i));
  return values;
}

// What forward and backward write starts as 777, which must not survive.
template <typename T>
struct LayerRun {
  LayerRun(const Layer<T>& of, std::int64_t samples, std::vector<T> input,
           std::vector<T> parameters)
      : layer(of),
        rows(samples),
        x(std::move(input)),
        params(std::move(parameters)),
        y(size(rows * of.output().elems()), T(777)),
        scratch(size(of.scratch_elems(rows, MemorySpace::kHost)), T(777)),
        saved(size(of.saved_elems(rows)), T(777)),
        stash(size(of.stash_elems(rows)), T(777)),
        buffers(size(parameter_elems(of.buffers()))),
        statistics(size(of.statistics_elems())),
        dx(x.size(), T(777)),
        grads(params.size(), T(777)) {
    init_parameters<T>(of.buffers(), 0, buffers);
  }

  LayerPass<T> pass() {
    return {rows,  params,  x,          y,       scratch, saved,
            stash, buffers, statistics, context, nullptr, peers};
  }
  const std::vector<T>& forward() {
    layer.forward(pass());
    return y;
  }
  void backward(const std::vector<T>& dy) {
    layer.backward_input(pass(), dy, dx);
    layer.backward_params(pass(), dy, grads);
    layer.finish_input(pass(), dy, dx);
  }

  static std::size_t size(std::int64_t elems) { return static_cast<std::size_t>(elems); }

  const Layer<T>& layer;
  std::int64_t rows;
  std::vector<T> x;
  std::vector<T> params;
  std::vector<T> y;
  std::vector<T> scratch;
  std::vector<T> saved;
  std::vector<T> stash;
  std::vector<T> buffers;
  std::vector<double> statistics;
  std::vector<T> dx;
  std::vector<T> grads;
  PassContext context = {};
  LayerPeers* peers = nullptr;
};

}  // namespace gradwire
