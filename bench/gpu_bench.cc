// What coders with kernels take on a CUDA device, beside a copy on the same device:
//   gpu_bench [--elements N] [--rounds R] [--warm-up MS] [--feedback none|ef14|both] [SPEC...]
//   gpu_bench --list    the specs that are measured where none is given, a line each
//   gpu_bench --smoke [--elements N] [--feedback ...] [SPEC...]    once, beside the host; no times
// Prints JSON lines, each as soon as it is known:
//   {"bench": "copy", ...}    once, after MS milliseconds (200) of copies
//   {"bench": "codec", "spec", "feedback", "stage": "encode" or "decode", ...}
//   {"bench": "codec", "spec", "feedback", "refused"}    gradwire serves no such pair
//   {"bench": "codec", "spec", "feedback", "failed"}     the next is measured all the same
//   {"bench": "smoke", "spec", "feedback", "same_bytes", "difference", ...}    of --smoke, for
//       N = 2^18: whether payloads are the host's, and how far means are from the host's, as a part
//       of their norm; or "refused", or "failed", also where these are not as they should be
// `seconds` are the device's, between events around the stage: the median of R rounds (20) after
// two that do not count; what the device waits for the host within the stage is in it.
// `host_seconds` are those until the host has heard of it. `moved_bytes` are what
// bench/moved_bytes.h says that any implementation moves; `copy_gbps` is the rate of copies, which
// read and write, made just before and just after; `share` is moved bytes a second over that.
// Gradients are matrices of 4096 columns where N (2^26) allows it.
// Exit status 1: something failed (and where the device does nothing more for this process, what
// comes after it is not tried); 77: no device.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/device_bench.h"
#include "bench/device_smoke.h"

namespace gradwire::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostElements = std::int64_t{1} << 32;
constexpr std::int64_t kSmokeElements = std::int64_t{1} << 18;

const std::vector<std::string> kSpecs = {"none",
                                         "lossless",
                                         "cast:fp16",
                                         "cast:bf16",
                                         "fp8",
                                         "mx:e4m3",
                                         "natural",
                                         "natural:bits=8",
                                         "signsgd",
                                         "onebit",
                                         "signum",
                                         "terngrad",
                                         "terngrad:shared=false",
                                         "global_qsgd:bits=4",
                                         "thc",
                                         "minmax:bits=2,spikes=1",
                                         "absmax:bits=4,transform=hadamard",
                                         "dgc:ratio=0.001",
                                         "cltk:ratio=0.01",
                                         "block_sparse",
                                         "minmax:bits=4",
                                         "absmax:bits=8",
                                         "absmax:bits=4",
                                         "qsgd:bits=8",
                                         "qsgd:bits=4",
                                         "qsgd:bits=2",
                                         "topk:ratio=0.01",
                                         "topk:ratio=0.1",
                                         "topk:ratio=0.04,index=bitmap",
                                         "threshold:tau=0.495",
                                         "randomk:ratio=0.01",
                                         "powersgd:rank=1",
                                         "powersgd:rank=4",
                                         "powersgd:rank=8",
                                         "acpsgd:rank=4"};

struct Asked {
  DeviceBenchOptions bench;
  std::vector<bool> feedback = {false, true};
  std::vector<std::string> specs = kSpecs;
  bool list = false;
  bool smoke = false;
  bool sized = false;  // --elements is given
};

void print(const Json& row) {
  // A message may hold bytes that are no UTF-8: of a spec, or a library's.
  std::printf("%s\n", row.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

void put_times(Json& row, const StageTime& time, const Asked& asked) {
  const double seconds = time.seconds > 0 ? time.seconds : 1e-9;
  row["elements"] = asked.bench.elements;
  row["rounds"] = asked.bench.rounds;
  row["seconds"] = time.seconds;
  row["host_seconds"] = time.host_seconds;
  row["gradient_gbps"] = static_cast<double>(asked.bench.elements) * 4e-9 / seconds;
  row["moved_bytes"] = time.moved_bytes;
  row["moved_gbps"] = time.rate() * 1e-9;
}

Json codec_row(const std::string& spec, bool feedback) {
  return {{"bench", "codec"}, {"spec", spec}, {"feedback", feedback}};
}

void print_stage(const char* stage, const std::string& spec, bool feedback, const StageTime& time,
                 const StageTime& copy, const Asked& asked) {
  Json row = codec_row(spec, feedback);
  row["stage"] = stage;
  put_times(row, time, asked);
  row["payload_bytes"] = time.payload_bytes;
  row["copy_gbps"] = copy.rate() * 1e-9;
  row["share"] = time.rate() / copy.rate();
  print(row);
}

// False where it failed.
bool measure(DeviceBench& bench, const std::string& spec, bool feedback, const Asked& asked) {
  static const Registry registry = Registry::builtin();
  const auto times = bench.run(registry, spec, feedback);
  Json row = codec_row(spec, feedback);
  if (!times.has_value()) {
    row["failed"] = times.error().message();
    print(row);
    return false;
  }
  if (!times.value().refused.empty()) {
    row["refused"] = times.value().refused;
    print(row);
    return true;
  }
  const CodedTimes& found = times.value();
  print_stage("encode", spec, feedback, found.encode, found.copy, asked);
  print_stage("decode", spec, feedback, found.decode, found.copy, asked);
  return true;
}

Result<std::int64_t> number_of(const std::string& word, const std::string& value,
                               std::int64_t least, std::int64_t most) {
  const auto number = to_int(value);
  if (number && *number >= least && *number <= most) return *number;
  return Status(Code::kInvalidArgument, word + " must be a number from " + std::to_string(least) +
                                            " to " + std::to_string(most) + " (got '" + value +
                                            "')");
}

Result<Asked> parse(int argc, char** argv) {
  Asked asked;
  std::vector<std::string> specs;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--list") {
      asked.list = true;
      continue;
    }
    if (word == "--smoke") {
      asked.smoke = true;
      continue;
    }
    if (!word.starts_with("--")) {
      specs.push_back(word);
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (word == "--feedback") {
      if (value != "none" && value != "ef14" && value != "both") {
        return Status(Code::kInvalidArgument,
                      word + " must be none, ef14 or both (got '" + value + "')");
      }
      if (value != "both") asked.feedback = {value == "ef14"};
    } else if (word == "--elements") {
      GW_ASSIGN(asked.bench.elements, number_of(word, value, 1, kMostElements));
      asked.sized = true;
    } else if (word == "--rounds") {
      GW_ASSIGN(const std::int64_t rounds, number_of(word, value, 1, 10'000));
      asked.bench.rounds = static_cast<int>(rounds);
    } else if (word == "--warm-up") {
      GW_ASSIGN(const std::int64_t milliseconds, number_of(word, value, 0, 60'000));
      asked.bench.warm_up_seconds = static_cast<double>(milliseconds) * 1e-3;
    } else {
      return Status(
          Code::kInvalidArgument,
          "unknown flag " + word +
              " (expected --elements, --rounds, --warm-up, --feedback, --list or --smoke)");
    }
  }
  if (!specs.empty()) asked.specs = std::move(specs);
  return asked;
}

// Each pair once. Fails as a whole where there is no device.
Result<bool> run_smoke(const Asked& asked) {
  const Registry registry = Registry::builtin();
  const std::int64_t elements = asked.sized ? asked.bench.elements : kSmokeElements;
  bool fine = true;
  for (const std::string& spec : asked.specs) {
    for (const bool feedback : asked.feedback) {
      const auto outcome = smoke(registry, spec, feedback, elements);
      if (!outcome.has_value() && outcome.error().code() == Code::kUnsupported) {
        return outcome.error();
      }
      Json row = {{"bench", "smoke"}, {"spec", spec}, {"feedback", feedback}};
      row["elements"] = elements;
      std::string fault;
      if (!outcome.has_value()) {
        fault = outcome.error().message();
      } else if (!outcome.value().refused.empty()) {
        row["refused"] = outcome.value().refused;
      } else {
        row["same_bytes"] = outcome.value().same_bytes;
        row["difference"] = outcome.value().difference;
        fault = fault_of(outcome.value(), spec);
      }
      if (!fault.empty()) row["failed"] = fault;
      fine = fine && fault.empty();
      print(row);
    }
  }
  return fine;
}

// True where nothing failed. Ends where the device does not even copy any more: what went wrong on
// it may have broken all of this process's work there.
Result<bool> run(const Asked& asked) {
  GW_ASSIGN(DeviceBench bench, DeviceBench::create(asked.bench));
  GW_ASSIGN(const StageTime copy, bench.copy());
  Json row = {{"bench", "copy"}};
  put_times(row, copy, asked);
  print(row);
  bool fine = true;
  for (const std::string& spec : asked.specs) {
    for (const bool feedback : asked.feedback) {
      if (measure(bench, spec, feedback, asked)) continue;
      fine = false;
      if (!bench.copy().has_value()) return fine;
    }
  }
  return fine;
}

int run(int argc, char** argv) {
  const auto asked = parse(argc, argv);
  if (!asked.has_value()) {
    std::fprintf(stderr, "gpu_bench: error: %s\n", std::string(asked.error().message()).c_str());
    return 1;
  }
  if (asked.value().list) {
    for (const std::string& spec : asked.value().specs) std::printf("%s\n", spec.c_str());
    return 0;
  }
  const auto fine = asked.value().smoke ? run_smoke(asked.value()) : run(asked.value());
  if (fine.has_value()) return fine.value() ? 0 : 1;
  const bool missing = fine.error().code() == Code::kUnsupported;
  std::fprintf(stderr, "gpu_bench: %s: %s\n", missing ? "skipped" : "error",
               std::string(fine.error().message()).c_str());
  return missing ? 77 : 1;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) { return gradwire::bench::run(argc, argv); }
