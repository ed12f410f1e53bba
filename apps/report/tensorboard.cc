#include "apps/report/tensorboard.h"

#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

// Wire types of protocol buffers.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
void put_raw(std::string& out, T value) {  // little-endian, as this project's machines are
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  out.append(bytes.data(), bytes.size());
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, Wire::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_wall_time(std::string& out, double seconds) {
  put_key(out, 1, Wire::kFixed64);
  put_raw(out, seconds);
}

std::string scalar_event(const Scalar& scalar) {
  std::string value;
  put_bytes(value, 1, scalar.tag);
  put_key(value, 2, Wire::kFixed32);
  put_raw(value, scalar.value);
  std::string summary;
  put_bytes(summary, 1, value);
  std::string event;
  put_wall_time(event, scalar.wall_time);
  put_key(event, 2, Wire::kVarint);
  put_varint(event, static_cast<std::uint64_t>(scalar.step));
  put_bytes(event, 5, summary);
  return event;
}

// So that a checksum of data that holds checksums does not become a special value.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

void put_record(std::string& out, const std::string& data) {
  std::string length;
  put_raw(length, static_cast<std::uint64_t>(data.size()));
  out += length;
  put_raw(out, masked(crc32c(length)));
  out += data;
  put_raw(out, masked(crc32c(data)));
}

// "2026-05-04T12:00:00Z" in seconds since 1970; 0 where it is no such text.
double seconds_of(const std::string& utc) {
  std::tm parts{};
  const char* end = strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end == nullptr ? 0 : static_cast<double>(timegm(&parts));
}

std::vector<Scalar> scalars_of(const RunResult& run) {
  std::vector<Scalar> scalars;
  double time = seconds_of(run.record.started);
  double sent = 0;
  for (const StepMetrics& step : run.metrics.steps) {
    time += step.step_seconds;
    sent += step.bytes_sent;
    const auto add = [&](const std::string& tag, const std::optional<double>& value) {
      if (value) scalars.push_back({tag, step.step, time, static_cast<float>(*value)});
    };
    add("loss", step.loss);
    add("accuracy", step.accuracy);
    add("test_loss", step.test_loss);
    add("perplexity", step.perplexity);
    add("lr", std::isfinite(step.lr) ? std::optional(step.lr) : std::nullopt);
    add("bytes/sent", step.bytes_sent);
    add("bytes/sent_in_all", sent);
    add("bytes/payload", step.payload_bytes);
    for (const auto& [name, bytes] : step.traffic) add("bytes/sent_for_" + name, bytes);
    add("seconds/step", step.step_seconds);
    add("seconds/compute", step.compute_seconds);
    add("seconds/exposed", step.exposed_seconds);
    add("error/nmse", step.nmse);
    add("error/exact_norm", step.exact_norm);
    add("error/residual_norm", step.residual_norm);
  }
  return scalars;
}

// A name as a folder: TensorBoard shows folders as the names of runs.
std::string folder_name(const std::string& name) {
  std::string out;
  for (const unsigned char c : name)
    out += std::isalnum(c) != 0 || std::strchr("-_.,=+", c) != nullptr ? static_cast<char>(c) : '_';
  return out;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> entries{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
      entries[i] = crc;
    }
    return entries;
  }();
  std::uint32_t crc = ~0U;
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<std::uint8_t>(c)) & 0xff];
  return ~crc;
}

std::string event_file(const std::vector<Scalar>& scalars) {
  std::string first;
  put_wall_time(first, scalars.empty() ? 0 : scalars.front().wall_time);
  put_bytes(first, 3, "brain.Event:2");
  std::string file;
  put_record(file, first);
  for (const Scalar& scalar : scalars) put_record(file, scalar_event(scalar));
  return file;
}

Status write_tensorboard(const Results& results, const std::string& directory) {
  for (const RunResult& run : results.runs) {
    const StudyCase& one = results.plan().cases[run.case_index];
    std::string folder = directory;
    if (!one.setting.empty()) folder += "/" + folder_name(one.setting);
    folder +=
        "/" + folder_name(one.row) + format("/seed%llu", static_cast<unsigned long long>(run.seed));
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error)
      return {Code::kInvalidArgument,
              "cannot make the folder '" + folder + "' (" + error.message() + ")"};
    const std::string name =
        format("/events.out.tfevents.%.0f.gradwire", seconds_of(run.record.started));
    GW_TRY(write_whole_file(folder + name, event_file(scalars_of(run))));
  }
  return {};
}

}  // namespace gradwire
