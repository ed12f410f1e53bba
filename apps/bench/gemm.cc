// `gradwire bench gemm`.
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/bench/row_file.h"
#include "apps/flags.h"
#include "apps/machine.h"
#include "base/text.h"
#include "bench/products/product_bench.h"

namespace gradwire {
namespace {

nlohmann::ordered_json json_of_product(const bench::ProductRow& row) {
  nlohmann::ordered_json json;
  json["product"] = bench::to_string(row.side);
  json["ranks"] = row.ranks;
  json["rows"] = row.rows;
  json["in"] = row.in;
  json["out"] = row.out;
  json["operations"] = row.operations;
  json["time_us_min"] = row.seconds_min * 1e6;
  json["time_us_p50"] = row.seconds_p50 * 1e6;
  json["gflops"] = row.gflops;
  json["whole_gflops"] = row.whole_gflops;
  json["share_of_whole"] = row.share_of_whole;
  return json;
}

void print_product_heading(const bench::ProductBenchOptions& options) {
  std::printf("%s\n", machine_line().c_str());
  std::printf(
      "linear layers of %lld rows, width %lld, inner width %lld, on one of tp ranks; fp32, "
      "one thread, about %s s of processor time per row; GFLOP are 10^9 operations\n",
      static_cast<long long>(options.rows), static_cast<long long>(options.width),
      static_cast<long long>(options.inner), shortest(options.seconds).c_str());
  std::printf("%4s %-8s %20s %12s %12s %10s %14s\n", "tp", "product", "rows x in x out", "min us",
              "p50 us", "GFLOP/s", "of the whole");
}

void print_product_row(const bench::ProductRow& row) {
  const std::string sizes = format("%lld x %lld x %lld", static_cast<long long>(row.rows),
                                   static_cast<long long>(row.in), static_cast<long long>(row.out));
  std::printf("%4lld %-8s %20s %12.1f %12.1f %10.2f %12.0f %%\n", static_cast<long long>(row.ranks),
              std::string(bench::to_string(row.side)).c_str(), sizes.c_str(), row.seconds_min * 1e6,
              row.seconds_p50 * 1e6, row.gflops, 100 * row.share_of_whole);
  std::fflush(stdout);
}

}  // namespace

Result<int> bench_gemm(const std::vector<std::string>& args) {
  bench::ProductBenchOptions options;
  std::int64_t inner = 0;
  std::string json;
  Flags flags("bench gemm",
              "Measures the products of two linear layers whose weights tp ranks divide, as one "
              "rank computes them: (rows, width) x (width, inner / tp), outputs divided (column), "
              "and (rows, inner / tp) x (inner / tp, width), inputs divided (row). Each timing is "
              "followed by one of the whole product, whose rate the last column is a share of. "
              "Times are of the thread's processor time.");
  flags.integer("rows", options.rows, {1, 1 << 24},
                "rows of the product: samples of a micro-batch times their positions");
  flags.integer("width", options.width, {1, 1 << 20}, "width of the model, in elements");
  flags.integer("inner", inner, {1, 1 << 22}, "inner width, in elements; tp must divide it",
                "4 times --width");
  flags.integers("tp", options.ranks, {1, 1 << 16}, "numbers of ranks that divide the weights");
  flags.number("seconds", options.seconds, {0, 3600},
               "processor time per row, about, in seconds; at least 3 products");
  flags.seed("seed", options.seed, "seed of the elements");
  flags.json_output(json);
  flags.example("gradwire bench gemm --rows 256 --width 128 --tp 1,2,4 --seconds 0.05");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  options.inner = inner > 0 ? inner : 4 * options.width;
  GW_ASSIGN(RowFile file, RowFile::create(json));
  const bool table = json != kStandardOutput;
  if (table) print_product_heading(options);
  const Status ended = bench::bench_products(options, [&](const bench::ProductRow& row) {
    if (table) print_product_row(row);
    return file.write(json_of_product(row));
  });
  GW_TRY(ended.with_context("bench gemm"));
  return 0;
}

}  // namespace gradwire
