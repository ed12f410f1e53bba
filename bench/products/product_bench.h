// How fast a linear layer's product is when its weights are divided among ranks: each rank's is
// smaller, and a processor computes small products at a lower rate.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "gradwire/status.h"

namespace gradwire::bench {

struct ProductBenchOptions {
  std::int64_t rows = 1024;   // b s: samples of a micro-batch times their positions
  std::int64_t width = 512;   // h
  std::int64_t inner = 2048;  // w: outputs of the first layer, inputs of the second
  std::vector<std::int64_t> ranks{1, 2, 4, 8};  // t
  double seconds = 0.5;                         // about, of the processor for each row
  std::uint64_t seed = 1;                       // of the elements
};

// One rank's part of a linear layer: the outputs, or the inputs, are divided.
enum class ProductSide : std::uint8_t { kOutputs, kInputs };
std::string_view to_string(ProductSide side);  // "column", "row": as Megatron-LM calls them

// (rows, in) times (in, out), fp32, on one thread, by the kernel of the trainer's Linear. Each
// timing of a part is followed by one of the whole product, so that a share can be told on a noisy
// machine; seconds are of the thread's processor time. Rates are of medians, 10^9 of 2 rows in out
// operations a second.
struct ProductRow {
  ProductSide side = ProductSide::kOutputs;
  std::int64_t ranks = 1;
  std::int64_t rows = 0;
  std::int64_t in = 0;   // h, or w / t
  std::int64_t out = 0;  // w / t, or h
  std::int64_t operations = 0;
  double seconds_min = 0;
  double seconds_p50 = 0;
  double gflops = 0;
  double whole_gflops = 0;    // with t = 1, on the same side
  double share_of_whole = 1;  // gflops / whole_gflops
};

// Both sides for each number of ranks, in their order. `take` is called as soon as a row is
// measured; its error ends the benchmark. kInvalidArgument names a size below 1, or an inner width
// that does not divide.
Status bench_products(const ProductBenchOptions& options,
                      const std::function<Status(const ProductRow&)>& take);

}  // namespace gradwire::bench
