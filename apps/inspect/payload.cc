// `gradwire inspect payload FILE` and `gradwire inspect encode SPEC`.
#include <algorithm>
#include <cmath>
#include <cstdio>
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

std::vector<float> normal_values(std::int64_t elems, std::uint64_t seed) {
  const RandomStream stream(seed, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<float> values(static_cast<std::size_t>(elems));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.normal(i));
  return values;
}

void print_header(const PayloadFile& file) {
  std::size_t bytes = 0;
  for (const auto& round : file.rounds) bytes += round.size();
  std::printf("spec     %s\n", file.spec.c_str());
  std::printf("shape    %s, %s: %lld elements\n", to_string(file.shape).c_str(),
              std::string(to_string(file.dtype)).c_str(),
              static_cast<long long>(file.shape.elems()));
  std::printf("seed     %llu, step %llu\n", static_cast<unsigned long long>(file.seed),
              static_cast<unsigned long long>(file.step));
  std::printf("payload  %zu bytes in %zu round(s), %.4g bits per element\n", bytes,
              file.rounds.size(),
              8.0 * static_cast<double>(bytes) / static_cast<double>(file.shape.elems()));
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

void print_summary(const std::vector<double>& values) {
  std::size_t nonzero = 0;
  double sum = 0;
  double squares = 0;
  std::string first;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    squares += values[i] * values[i];
    if (values[i] == 0) continue;
    if (nonzero++ < 6) first += format(" [%zu] %.6g", i, values[i]);
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  std::printf("decoded  %zu of %zu elements are not 0; from %.6g to %.6g, mean %.6g, norm %.6g\n",
              nonzero, values.size(), *least, *most, sum / static_cast<double>(values.size()),
              std::sqrt(squares));
  std::printf("first   %s\n", first.empty() ? " none" : first.c_str());
}

}  // namespace

Result<int> inspect_payload(const std::vector<std::string>& args) {
  std::string path;
  Flags flags("inspect payload", "Prints what a payload file holds and what it decodes to.");
  flags.positional("file", path, "as gradwire inspect encode writes it");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const std::string bytes, read_whole_file(path));
  const auto file = parse_payload_file(std::as_bytes(std::span(bytes)));
  if (!file.has_value()) return file.error().with_context(path);
  const auto values = decode_payload(Registry::builtin(), file.value());
  if (!values.has_value()) return values.error().with_context(path);
  print_header(file.value());
  print_summary(values.value());
  return 0;
}

Result<int> inspect_encode(const std::vector<std::string>& args) {
  std::string spec;
  std::int64_t elements = 10000;
  std::uint64_t seed = 1;
  std::string out;
  Flags flags("inspect encode",
              "Encodes normally distributed random elements, shaped as a matrix, into a payload "
              "file.");
  flags.positional("spec", spec, "one method with its keys, such as topk:ratio=0.01");
  flags.integer("elements", elements, {1, static_cast<double>(kMaxPayloadElems)}, "how many");
  flags.seed("seed", seed, "of the elements and of the method's dither");
  flags.text("out", out, "the file to write", "required");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (out.empty()) {
    return Status(Code::kInvalidArgument,
                  "inspect encode: --out is missing (nothing seen; a file name wanted)");
  }
  const Shape shape = bench::matrix_of(elements);
  GW_ASSIGN(const auto file,
            encode_payload(Registry::builtin(), spec, shape, seed, normal_values(elements, seed)));
  const std::vector<std::byte> bytes = format_payload_file(file);
  GW_TRY(write_whole_file(out, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  print_header(file);
  return 0;
}

}  // namespace gradwire
