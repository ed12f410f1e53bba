// `gradwire inspect payload FILE` and `gradwire inspect encode SPEC`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/flags.h"
#include "apps/inspect/inspect.h"
#include "apps/inspect/payload_file.h"
#include "apps/whole_file.h"
#include "base/philox.h"
#include "base/text.h"
#include "bench/codec_bench.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

std::vector<float> normal_values(std::int64_t elems, std::uint64_t seed) {
  const RandomStream stream(seed, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<float> values(static_cast<std::size_t>(elems));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

std::size_t bytes_of(const PayloadFile& file) {
  std::size_t bytes = 0;
  for (const auto& round : file.rounds) bytes += round.size();
  return bytes;
}

double bits_per_element(const PayloadFile& file) {
  return 8.0 * static_cast<double>(bytes_of(file)) / static_cast<double>(file.shape.elems());
}

// {"kind": "payload", ...} without what it decodes to.
Json header_json(const PayloadFile& file) {
  Json rounds = Json::array();
  for (const auto& round : file.rounds) rounds.push_back(round.size());
  return {{"kind", "payload"},
          {"spec", file.spec},
          {"shape", to_string(file.shape)},
          {"dtype", to_string(file.dtype)},
          {"elements", file.shape.elems()},
          {"seed", file.seed},
          {"step", file.step},
          {"round_bytes", std::move(rounds)},
          {"bits_per_element", bits_per_element(file)}};
}

void print_header(const PayloadFile& file) {
  std::printf("spec     %s\n", file.spec.c_str());
  std::printf("shape    %s, %s: %lld elements\n", to_string(file.shape).c_str(),
              std::string(to_string(file.dtype)).c_str(),
              static_cast<long long>(file.shape.elems()));
  std::printf("seed     %llu, step %llu\n", static_cast<unsigned long long>(file.seed),
              static_cast<unsigned long long>(file.step));
  std::printf("payload  %zu bytes in %zu round(s), %.4g bits per element\n", bytes_of(file),
              file.rounds.size(), bits_per_element(file));
  for (std::size_t round = 0; round < file.rounds.size(); ++round) {
    const auto& data = file.rounds[round];
    std::string hex;
    for (std::size_t i = 0; i < std::min<std::size_t>(data.size(), 16); ++i) {
      hex += format(" %02x", std::to_integer<unsigned>(data[i]));
    }
    std::printf("round %zu  %zu bytes:%s%s\n", round, data.size(), hex.c_str(),
                data.size() > 16 ? " ..." : "");
  }
}

struct Summary {
  std::size_t nonzero = 0;
  double least = 0;
  double most = 0;
  double mean = 0;
  double norm = 0;
  std::string first = {};  // elements that are not 0
};

Summary summary_of(const std::vector<double>& values) {
  Summary summary;
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    squares += values[i] * values[i];
    if (values[i] == 0) continue;
    if (summary.nonzero++ < 6) summary.first += format(" [%zu] %.6g", i, values[i]);
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  summary.least = *least;
  summary.most = *most;
  summary.mean = sum / static_cast<double>(values.size());
  summary.norm = std::sqrt(squares);
  return summary;
}

void print_summary(const Summary& summary, std::size_t elements) {
  std::printf("decoded  %zu of %zu elements are not 0; from %.6g to %.6g, mean %.6g, norm %.6g\n",
              summary.nonzero, elements, summary.least, summary.most, summary.mean, summary.norm);
  std::printf("first   %s\n", summary.first.empty() ? " none" : summary.first.c_str());
}

}  // namespace

Result<int> inspect_payload(const std::vector<std::string>& args) {
  std::string path;
  bool as_json = false;
  Flags flags("inspect payload",
              "Prints the header of a payload file and statistics of the decoded elements.");
  flags.positional("FILE", path, "payload file, written by gradwire inspect encode");
  flags.toggle("json", as_json, "one JSON object");
  flags.example(
      "gradwire inspect encode qsgd:bits=4 --out p.bin && gradwire inspect payload p.bin");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const std::string bytes, read_whole_file(path));
  const auto file = parse_payload_file(std::as_bytes(std::span(bytes)));
  if (!file.has_value()) return file.error().with_context(path);
  const auto values = decode_payload(Registry::builtin(), file.value());
  if (!values.has_value()) return values.error().with_context(path);
  const Summary summary = summary_of(values.value());
  if (as_json) {
    Json json = header_json(file.value());
    json["nonzero"] = summary.nonzero;
    json["least"] = summary.least;
    json["most"] = summary.most;
    json["mean"] = summary.mean;
    json["norm"] = summary.norm;
    std::printf("%s\n", json.dump().c_str());
    return 0;
  }
  print_header(file.value());
  print_summary(summary, values.value().size());
  return 0;
}

Result<int> inspect_encode(const std::vector<std::string>& args) {
  std::string spec;
  std::int64_t elements = 10000;
  std::uint64_t seed = 1;
  std::string out;
  bool as_json = false;
  Flags flags("inspect encode",
              "Encodes normally distributed random elements, shaped as a matrix, into a payload "
              "file.");
  flags.positional("SPEC", spec, "one compressor with its keys, e.g. topk:ratio=0.01");
  flags.integer("elements", elements, {1, static_cast<double>(kMaxPayloadElems)},
                "number of elements");
  flags.seed("seed", seed, "seed of the elements and of stochastic rounding");
  flags.file("out", out, "output file", "required");
  flags.toggle("json", as_json, "one JSON object");
  flags.example("gradwire inspect encode topk:ratio=0.01 --out payload.bin");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (out.empty()) {
    return Status(Code::kInvalidArgument,
                  "inspect encode: --out is missing (expected a file name)");
  }
  const Shape shape = bench::matrix_of(elements);
  GW_ASSIGN(const auto file,
            encode_payload(Registry::builtin(), spec, shape, seed, normal_values(elements, seed)));
  const std::vector<std::byte> bytes = format_payload_file(file);
  GW_TRY(write_whole_file(out, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  if (as_json) {
    std::printf("%s\n", header_json(file).dump().c_str());
  } else {
    print_header(file);
  }
  return 0;
}

}  // namespace gradwire
