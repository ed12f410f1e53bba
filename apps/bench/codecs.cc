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

nlohmann::ordered_json json_of_codec(const bench::CodecRow& row) {
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
  json["encode_share_of_read"] = row.encode_gbps / row.read_gbps;
  json["decode_share_of_read"] = row.decode_gbps / row.read_gbps;
  if (row.encode_ef_gbps) {
    json["encode_ef_share_of_read"] = *row.encode_ef_gbps / row.read_gbps;
  } else {
    json["encode_ef_share_of_read"] = nullptr;
  }
  json["bits_per_element"] = row.bits_per_element;
  json["nmse"] = row.nmse;
  return json;
}

// A rate and its share of the read-only pass.
void print_rate(double gbps, double read_gbps) {
  std::printf(" %9.2f %4.0f %%", gbps, 100 * gbps / read_gbps);
}

void print_codec_heading() {
  std::printf("GB/s of fp32 gradient, and the share of the read-only pass\n");
  std::printf("%-26s %9s %16s %16s %16s %10s %11s\n", "spec", "read GB/s", "encode GB/s, %",
              "with EF GB/s, %", "decode GB/s, %", "bits/elem", "nmse");
}

void print_codec_row(const bench::CodecRow& row) {
  std::printf("%-26s %9.2f", row.spec.c_str(), row.read_gbps);
  print_rate(row.encode_gbps, row.read_gbps);
  if (row.encode_ef_gbps) {
    print_rate(*row.encode_ef_gbps, row.read_gbps);
  } else {
    std::printf(" %16s", "-");
  }
  print_rate(row.decode_gbps, row.read_gbps);
  std::printf(" %10.3f %11.4g\n", row.bits_per_element, row.nmse);
  std::fflush(stdout);
}

}  // namespace

Result<int> bench_codecs(const std::vector<std::string>& args) {
  bench::CodecBenchOptions options;
  GW_ASSIGN(auto specs, parse_spec_list(kDefaultSpecs));
  std::int64_t rounds = options.rounds;
  std::int64_t threads = options.threads;
  std::string json;
  Flags flags("bench codecs",
              "Measures encoding (with and without error feedback) and decoding of random fp32 "
              "elements, beside a read-only pass over the same memory. Rates are medians, in 10^9 "
              "bytes of fp32 gradient per second.");
  flags.integer("elements", options.elements, {1, 1e10}, "number of fp32 elements, as a matrix");
  flags.custom(
      "compressors", "SPECS", kDefaultSpecs,
      [&specs](const std::string& text) {
        GW_ASSIGN(specs, parse_spec_list(text));
        return Status();
      },
      "compressors, separated by semicolons");
  flags.alias("methods", "compressors");
  flags.integer("rounds", rounds, {1, 1000}, "timed repetitions");
  flags.integer("threads", threads, {1, 1024},
                "encoding and decoding threads of element-wise compressors; the read-only pass has "
                "one");
  flags.seed("seed", options.seed, "seed of the elements");
  flags.json_output(json);
  flags.example(
      "gradwire bench codecs --elements 100000 --rounds 3 --compressors 'topk:ratio=0.01'");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  options.rounds = static_cast<int>(rounds);
  options.threads = static_cast<int>(threads);
  GW_ASSIGN(RowFile file, RowFile::create(json));
  GW_ASSIGN(bench::CodecBench bench, bench::CodecBench::create(options));
  const bool table = json != kStandardOutput;
  if (table) {
    std::printf("%s\n", machine_line().c_str());
    print_codec_heading();
  }
  const Registry registry = Registry::builtin();
  for (const std::string& spec : specs) {
    GW_ASSIGN(const bench::CodecRow row, bench.run(registry, spec));
    if (table) print_codec_row(row);
    GW_TRY(file.write(json_of_codec(row)));
  }
  return 0;
}

}  // namespace gradwire
