#include "apps/bench/bench.h"

#include <array>

namespace gradwire {
namespace {

constexpr Command collective(std::string_view name, std::string_view help) {
  return {.name = name, .help = help, .run = bench_collectives, .takes_name = true};
}

constexpr std::array kBenchmarks{
    collective("all_reduce", "sum of all ranks' tensors on every rank, also compressed"),
    collective("reduce_scatter", "sum of all ranks' tensors, one part on each rank"),
    collective("all_gather", "every rank's block on every rank"),
    collective("all_to_all", "one block from every rank to every rank"),
    collective("broadcast", "the root's tensor on every rank"),
    collective("reduce", "sum of all ranks' tensors on the root"),
    collective("gather", "every rank's block on the root"),
    collective("scatter", "one block of the root's tensor on every rank"),
    collective("barrier", "synchronisation of all ranks"),
    collective("send_recv", "a message to the next rank and one from the previous"),
    Command{.name = "codecs",
            .help = "encoding and decoding rates of compressors",
            .run = bench_codecs},
    Command{.name = "exchange",
            .help = "steps of an aggregator, and a message, beside computation",
            .run = bench_exchange},
    Command{
        .name = "gemm", .help = "rates of matrix products that ranks divide", .run = bench_gemm},
};

}  // namespace

const CommandGroup& bench_group() {
  static const CommandGroup group{
      .name = "bench",
      .word = "BENCHMARK",
      .purpose =
          "Measures a collective operation over a range of sizes, compressors, or matrix "
          "products.",
      .commands = kBenchmarks,
      .example = "gradwire bench all_reduce --inproc 2 --min 1K --max 64K --seconds 0.01"};
  return group;
}

Result<int> bench_command(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "--explain") {  // without a name: of the usual operation
    std::vector<std::string> words{"all_reduce"};
    words.insert(words.end(), args.begin(), args.end());
    return bench_collectives(words);
  }
  return run_group(bench_group(), args);
}

}  // namespace gradwire
