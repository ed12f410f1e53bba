// `gradwire bench codecs`.
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/bench/row_file.h"
#include "apps/flags.h"
#include "apps/machine.h"
#include "bench/codec_bench.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

constexpr const char* kDefaultSpecs =
    "none;cast:fp16;cast:bf16;qsgd:bits=8;qsgd:bits=4;qsgd:bits=2;signsgd;signsgd:vote=majority;"
    "topk:ratio=0.01;powersgd:rank=4";

nlohmann::ordered_json json_of(const bench::CodecRow& row) {
  nlohmann::ordered_json json;
  json["spec"] = row.spec;
  json["canonical"] = row.canonical;
  json["elements"] = row.elements;
  json["threads"] = row.threads;
  json["read_gbps"] = row.read_gbps;
  json["encode_gbps"] = row.encode_gbps;
  if (row.encode_ef_gbps) {
    json["encode_ef_gbps"] = *row.encode_ef_gbps;
  } else {
    json["encode_ef_gbps"] = nullptr;
  }
  json["decode_gbps"] = row.decode_gbps;
  json["bits_per_element"] = row.bits_per_element;
  json["nmse"] = row.nmse;
  return json;
}

void print_heading() {
  std::printf("%-26s %10s %12s %12s %12s %10s %12s\n", "spec", "read GB/s", "encode GB/s",
              "with EF GB/s", "decode GB/s", "bits/elem", "nmse");
}

void print_row(const bench::CodecRow& row) {
  std::printf("%-26s %10.2f %12.2f ", row.spec.c_str(), row.read_gbps, row.encode_gbps);
  if (row.encode_ef_gbps) {
    std::printf("%12.2f", *row.encode_ef_gbps);
  } else {
    std::printf("%12s", "-");
  }
  std::printf(" %12.2f %10.3f %12.4g\n", row.decode_gbps, row.bits_per_element, row.nmse);
  std::fflush(stdout);
}

}  // namespace

Result<int> bench_codecs(const std::vector<std::string>& args) {
  bench::CodecBenchOptions options;
  GW_ASSIGN(auto specs, parse_spec_list(kDefaultSpecs));
  std::int64_t rounds = options.rounds;
  std::string json;
  Flags flags("bench codecs",
              "Times encoding (alone and under error feedback) and decoding of Gaussian fp32 "
              "elements on one core, beside a read-only pass over the same memory. Rates are of "
              "fp32 gradient, 10^9 bytes per second, medians.");
  flags.integer("elements", options.elements, {1, 1e10}, "fp32 elements, shaped as a matrix");
  flags.custom(
      "compressors", "SPECS", kDefaultSpecs,
      [&specs](const std::string& text) {
        GW_ASSIGN(specs, parse_spec_list(text));
        return Status();
      },
      "specs with ; between");
  flags.integer("rounds", rounds, {1, 1000}, "timed repetitions");
  flags.seed("seed", options.seed, "of the elements");
  flags.text("json", json, "file for result rows, one JSON line each");
  GW_ASSIGN(const auto outcome, flags.parse({args.begin() + 1, args.end()}));
  if (outcome == Flags::Outcome::kHelp) return 0;
  options.rounds = static_cast<int>(rounds);
  GW_ASSIGN(RowFile file, RowFile::create(json));
  GW_ASSIGN(bench::CodecBench bench, bench::CodecBench::create(options));
  std::printf("%s\n", machine_line().c_str());
  print_heading();
  const Registry registry = Registry::builtin();
  for (const std::string& spec : specs) {
    GW_ASSIGN(const bench::CodecRow row, bench.run(registry, spec));
    print_row(row);
    GW_TRY(file.write(json_of(row)));
  }
  return 0;
}

}  // namespace gradwire
