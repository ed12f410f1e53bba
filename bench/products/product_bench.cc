#include "bench/products/product_bench.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/philox.h"
#include "base/text.h"
#include "trainer/layers/linear.h"

namespace gradwire::bench {
namespace {

constexpr std::int64_t kFewestOperations = 3;
constexpr std::int64_t kMostOperations = 10000;
constexpr std::int64_t kMostElements = 1 << 30;  // of a matrix

// What this thread has computed: other work on the machine does not count.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<float> normal_elements(std::int64_t count, std::uint64_t seed, std::uint64_t tensor) {
  const RandomStream stream(seed, RandomUse::kTest, 0, 0, tensor, 0);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

Status check_positive(const char* what, std::int64_t value) {
  if (value >= 1) return {};
  return {Code::kInvalidArgument, format("product bench: %s %lld (expected at least 1)", what,
                                         static_cast<long long>(value))};
}

Status check(const ProductBenchOptions& options) {
  GW_TRY(check_positive("rows", options.rows));
  GW_TRY(check_positive("width", options.width));
  GW_TRY(check_positive("inner", options.inner));
  const std::int64_t largest = std::max(
      {options.rows * options.width, options.rows * options.inner, options.width * options.inner});
  if (largest > kMostElements) {
    return {Code::kInvalidArgument,
            format("product bench: a matrix of %lld elements (expected at most %lld)",
                   static_cast<long long>(largest), static_cast<long long>(kMostElements))};
  }
  for (const std::int64_t ranks : options.ranks) {
    GW_TRY(check_positive("ranks", ranks));
    if (options.inner % ranks == 0) continue;
    return {Code::kInvalidArgument,
            format("product bench: an inner width of %lld among %lld ranks (expected a multiple of "
                   "the ranks)",
                   static_cast<long long>(options.inner), static_cast<long long>(ranks))};
  }
  return {};
}

class TimedProduct {
 public:
  TimedProduct(std::int64_t rows, std::int64_t in, std::int64_t out, std::uint64_t seed)
      : layer_(in, out, {.bias = false}),
        rows_(rows),
        operations_(2.0 * static_cast<double>(rows * in * out)),
        x_(normal_elements(rows * in, seed, 1)),
        weight_(normal_elements(in * out, seed, 2)),
        y_(static_cast<std::size_t>(rows * out)) {
    run();
    seconds_.clear();  // the first one touches all memory
  }

  void run() {
    const LayerPass<float> pass{.rows = rows_, .params = weight_, .x = x_, .y = y_, .scratch = {}};
    const double start = processor_seconds();
    layer_.forward(pass);
    seconds_.push_back(processor_seconds() - start);
  }
  // Of run() since its birth, or since the last call of restart(), ascending.
  const std::vector<double>& sorted_seconds() {
    std::ranges::sort(seconds_);
    return seconds_;
  }
  void restart() { seconds_.clear(); }
  double gflops() { return operations_ / sorted_seconds()[seconds_.size() / 2] / 1e9; }

 private:
  Linear<float> layer_;
  std::int64_t rows_;
  double operations_;
  std::vector<float> x_;
  std::vector<float> weight_;
  std::vector<float> y_;
  std::vector<double> seconds_;
};

// `whole`: the product that `row` is a part of.
void measure(ProductRow& row, TimedProduct& whole, const ProductBenchOptions& options) {
  TimedProduct part(row.rows, row.in, row.out, options.seed);
  whole.restart();
  const double begin = processor_seconds();
  while (row.operations < kFewestOperations ||
         (processor_seconds() - begin < options.seconds && row.operations < kMostOperations)) {
    part.run();
    if (row.ranks > 1) whole.run();
    ++row.operations;
  }
  const std::vector<double>& seconds = part.sorted_seconds();
  row.seconds_min = seconds.front();
  row.seconds_p50 = seconds[seconds.size() / 2];
  row.gflops = part.gflops();
  row.whole_gflops = row.ranks > 1 ? whole.gflops() : row.gflops;
  row.share_of_whole = row.gflops / row.whole_gflops;
}

}  // namespace

std::string_view to_string(ProductSide side) {
  return side == ProductSide::kOutputs ? "column" : "row";
}

Status bench_products(const ProductBenchOptions& options,
                      const std::function<Status(const ProductRow&)>& take) {
  GW_TRY(check(options));
  std::array<TimedProduct, 2> whole{
      TimedProduct(options.rows, options.width, options.inner, options.seed),
      TimedProduct(options.rows, options.inner, options.width, options.seed)};
  for (const std::int64_t ranks : options.ranks) {
    const std::int64_t part = options.inner / ranks;
    for (const ProductSide side : {ProductSide::kOutputs, ProductSide::kInputs}) {
      ProductRow row{.side = side, .ranks = ranks, .rows = options.rows};
      row.in = side == ProductSide::kOutputs ? options.width : part;
      row.out = side == ProductSide::kOutputs ? part : options.width;
      measure(row, whole[static_cast<std::size_t>(side)], options);
      GW_TRY(take(row));
    }
  }
  return {};
}

}  // namespace gradwire::bench
