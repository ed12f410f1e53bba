#include "apps/bench/bench.h"

#include <array>
#include <cstdio>
#include <string_view>

#include "apps/command.h"

namespace gradwire {
namespace {

struct Benchmark {
  std::string_view name;
  std::string_view help;
  CommandMain run;  // is given its own name as the first word
};

constexpr std::array kBenchmarks{
    Benchmark{"all_reduce", "the sum of all ranks' tensors; also compressed", bench_collectives},
    Benchmark{"reduce_scatter", "each rank one part of the sum", bench_collectives},
    Benchmark{"all_gather", "everybody's rows for all", bench_collectives},
    Benchmark{"all_to_all", "a row from each to each", bench_collectives},
    Benchmark{"broadcast", "root's tensor for all", bench_collectives},
    Benchmark{"reduce", "the sum of all ranks' tensors for root", bench_collectives},
    Benchmark{"gather", "everybody's rows for root", bench_collectives},
    Benchmark{"scatter", "a row of root's for each", bench_collectives},
    Benchmark{"barrier", "nobody leaves before all have come", bench_collectives},
    Benchmark{"send_recv", "to the next rank and from the one before", bench_collectives},
    Benchmark{"codecs", "encode and decode, on one core", bench_codecs},
};

std::string names() {
  std::string text;
  for (const Benchmark& benchmark : kBenchmarks) {
    text += (text.empty() ? "" : ", ") + std::string(benchmark.name);
  }
  return text;
}

}  // namespace

Result<int> bench_command(const std::vector<std::string>& args) {
  const std::string wanted = args.empty() ? "" : args[0];
  if (wanted == "--help" || wanted == "-h") {
    std::printf("usage: gradwire bench NAME ...; gradwire bench NAME --help tells more\n\n");
    for (const Benchmark& benchmark : kBenchmarks) {
      std::printf("  %-15s %s\n", std::string(benchmark.name).c_str(),
                  std::string(benchmark.help).c_str());
    }
    return 0;
  }
  if (wanted == "--explain") {  // without a name: of the operation that matters most
    std::vector<std::string> words{"all_reduce"};
    words.insert(words.end(), args.begin(), args.end());
    return bench_collectives(words);
  }
  for (const Benchmark& benchmark : kBenchmarks) {
    if (benchmark.name == wanted) return benchmark.run(args);
  }
  return Status(Code::kInvalidArgument,
                "bench: unknown benchmark ('" + wanted + "' seen; one of " + names() + " wanted)");
}

}  // namespace gradwire
