#include "apps/train/metrics.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "apps/machine.h"
#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

// Nine significant digits: what tells two floats apart. JSON has no NaN or infinity: null.
Json nine_digits(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(format("%.9g", value).c_str(), nullptr);
}
// Seconds to the nanosecond.
Json seconds(double value) { return std::round(value * 1e9) / 1e9; }

// Of classes that sent something.
Json traffic_json(const TrafficBytes& traffic) {
  Json json = Json::object();
  for (std::size_t i = 0; i < traffic.size(); ++i) {
    if (traffic[i] == 0) continue;
    json[std::string(to_string(static_cast<TrafficClass>(i)))] = traffic[i];
  }
  return json;
}

Json cells(const StepRow& row) {
  Json line;
  line["bytes_sent"] = row.bytes_sent;
  if (Json by_class = traffic_json(row.traffic); !by_class.empty()) {
    line["traffic_bytes"] = std::move(by_class);
  }
  line["payload_bytes"] = row.payload_bytes;
  line["dense_bytes"] = row.dense_bytes;
  line["step_seconds"] = seconds(row.step_seconds);
  line["compute_seconds"] = seconds(row.compute_seconds);
  line["encode_seconds"] = seconds(row.encode_seconds);
  line["wire_seconds"] = seconds(row.wire_seconds);
  line["decode_seconds"] = seconds(row.decode_seconds);
  line["exposed_seconds"] = seconds(row.exposed_seconds);
  if (row.stage_wait_seconds) line["stage_wait_seconds"] = seconds(*row.stage_wait_seconds);
  return line;
}

void add(StepRow& sums, const StepRow& row) {
  sums.loss = row.loss;
  sums.tokens += row.tokens;
  sums.bytes_sent += row.bytes_sent;
  for (std::size_t i = 0; i < sums.traffic.size(); ++i) sums.traffic[i] += row.traffic[i];
  sums.payload_bytes += row.payload_bytes;
  sums.dense_bytes += row.dense_bytes;
  sums.step_seconds += row.step_seconds;
  sums.compute_seconds += row.compute_seconds;
  sums.encode_seconds += row.encode_seconds;
  sums.wire_seconds += row.wire_seconds;
  sums.decode_seconds += row.decode_seconds;
  sums.exposed_seconds += row.exposed_seconds;
  if (row.stage_wait_seconds) {
    sums.stage_wait_seconds = sums.stage_wait_seconds.value_or(0) + *row.stage_wait_seconds;
  }
}

// What add() sums up, of a line that an earlier run wrote.
StepRow row_of(const Json& line) {
  StepRow row;
  const auto number = [&](const char* key) {
    return line.contains(key) && line[key].is_number() ? line[key].get<double>() : 0.0;
  };
  const auto bytes = [&](const char* key) {
    const bool whole = line.contains(key) && line[key].is_number_unsigned();
    return whole ? line[key].get<std::uint64_t>() : 0;
  };
  row.loss = number("loss");
  row.tokens = static_cast<std::int64_t>(bytes("tokens"));
  row.bytes_sent = bytes("bytes_sent");
  for (std::size_t i = 0; line.contains("traffic_bytes") && i < row.traffic.size(); ++i) {
    const Json& by_class = line["traffic_bytes"];
    const std::string name(to_string(static_cast<TrafficClass>(i)));
    if (by_class.is_object() && by_class.contains(name) && by_class[name].is_number_unsigned()) {
      row.traffic[i] = by_class[name].get<std::uint64_t>();
    }
  }
  row.payload_bytes = bytes("payload_bytes");
  row.dense_bytes = bytes("dense_bytes");
  row.step_seconds = number("step_seconds");
  row.compute_seconds = number("compute_seconds");
  row.encode_seconds = number("encode_seconds");
  row.wire_seconds = number("wire_seconds");
  row.decode_seconds = number("decode_seconds");
  row.exposed_seconds = number("exposed_seconds");
  if (line.contains("stage_wait_seconds")) row.stage_wait_seconds = number("stage_wait_seconds");
  return row;
}

// Of texts alone.
void put_tokens(const StepRow& row, Json& line) {
  if (row.tokens == 0) return;
  line["tokens"] = row.tokens;
  if (row.step_seconds <= 0) return;
  line["tokens_per_second"] = nine_digits(static_cast<double>(row.tokens) / row.step_seconds);
}

Json memory_json(const MemoryTable& table) {
  Json json;
  for (const MemoryLine& line : table.lines) {
    json[line.place][line.what] = {
        {"planned", line.planned}, {"held", line.held}, {"peak", line.peak}};
  }
  json["device_peak"] = table.device_peak;
  json["host_peak"] = table.host_peak;
  json["copied_out"] = table.copied_out;
  json["copied_in"] = table.copied_in;
  return json;
}

Status cannot_write(const std::string& path) {
  return {Code::kInvalidArgument,
          "cannot write to the metrics file '" + path + "' (" + std::strerror(errno) + ")"};
}

}  // namespace

Result<MetricsFile> MetricsFile::create(const std::string& path) {
  return open(path, WriteFrom::kBeginning);
}
Result<MetricsFile> MetricsFile::append(const std::string& path) {
  return open(path, WriteFrom::kEnd);
}

Result<MetricsFile> MetricsFile::open(const std::string& path, WriteFrom from) {
  auto file = open_to_write(path, from);
  if (!file.has_value()) return file.error().with_context("metrics file");
  return MetricsFile(std::move(file).value(), path);
}

Status MetricsFile::keep(std::int64_t steps) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error)) return {};  // a pipe is not read back
  std::ifstream before(path_);
  std::string kept;
  for (std::string line; std::getline(before, line);) {
    const Json row = Json::parse(line, nullptr, false);
    const bool stays = row.is_object() && row.contains("step") && row["step"].is_number_integer() &&
                       row["step"].get<std::int64_t>() < steps;
    if (!stays) continue;
    kept += line + "\n";
    add(sums_, row_of(row));
    ++steps_;
  }
  const std::string part = path_ + ".part";
  GW_TRY(write_whole_file(part, kept));
  if (std::rename(part.c_str(), path_.c_str()) != 0) return cannot_write(path_);
  GW_ASSIGN(MetricsFile again, append(path_));
  file_ = std::move(again.file_);
  return {};
}

Status MetricsFile::write_line(const std::string& line) {
  const bool written = std::fputs(line.c_str(), file_.get()) >= 0 &&
                       std::fputc('\n', file_.get()) != EOF && std::fflush(file_.get()) == 0;
  if (written) return {};
  return cannot_write(path_);
}

Status MetricsFile::write_plan(std::int64_t steps, std::int64_t parameters, std::int64_t bytes) {
  const Json line{{"planned_steps", steps}, {"parameters", parameters}, {"planned_bytes", bytes}};
  return write_line(line.dump());
}

Status MetricsFile::write(const StepRow& row) {
  add(sums_, row);
  ++steps_;
  Json line;
  line["step"] = row.step;
  line["loss"] = nine_digits(row.loss);
  if (row.accuracy) line["accuracy"] = *row.accuracy;
  if (row.test_loss) line["test_loss"] = nine_digits(*row.test_loss);
  if (row.test_loss && row.tokens > 0) line["perplexity"] = nine_digits(std::exp(*row.test_loss));
  put_tokens(row, line);
  line["lr"] = row.lr;
  if (row.gradient_norm) line["gradient_norm"] = nine_digits(*row.gradient_norm);
  if (row.loss_scale) line["loss_scale"] = *row.loss_scale;
  if (row.skipped) line["skipped"] = true;
  line.update(cells(row));
  if (row.nmse) line["nmse"] = nine_digits(*row.nmse);
  if (row.exact_norm) line["exact_norm"] = nine_digits(*row.exact_norm);
  if (row.residual_norm) line["residual_norm"] = nine_digits(*row.residual_norm);
  return write_line(line.dump());
}

Status MetricsFile::write_totals(const RunFacts& facts) {
  const Machine here = machine();
  Json line;
  line["total"] = true;
  line["steps"] = steps_;
  if (steps_ > 0) line["loss"] = nine_digits(sums_.loss);
  if (facts.diverged) line["diverged"] = true;
  if (!facts.diverged) line["accuracy"] = facts.accuracy;
  if (facts.test_loss) line["test_loss"] = nine_digits(*facts.test_loss);
  if (facts.test_loss && facts.is_text)
    line["perplexity"] = nine_digits(std::exp(*facts.test_loss));
  put_tokens(sums_, line);
  if (facts.best) {
    line["best_test_loss"] = nine_digits(facts.best->test_loss);
    line["best_step"] = facts.best->step;
  }
  if (facts.test_samples > 0) line["test_samples"] = facts.test_samples;
  line.update(cells(sums_));
  if (!facts.diverged) {
    line["params_hash"] = format("%016llx", static_cast<unsigned long long>(facts.params_hash));
  }
  line["mode"] = facts.mode;
  if (facts.staleness_mean) line["staleness_mean"] = nine_digits(*facts.staleness_mean);
  if (facts.staleness_most) line["staleness_most"] = *facts.staleness_most;
  line["compressor"] = facts.compressor;
  line["algorithm"] = facts.algorithm;
  line["optimizer"] = facts.optimizer;
  if (facts.lr > 0) line["lr"] = facts.lr;
  if (facts.optimizer == "sgd" || facts.optimizer == "nesterov") line["momentum"] = facts.momentum;
  line["precision"] = facts.precision;
  line["ranks"] = facts.ranks;
  if (!facts.parallel.empty()) line["parallel"] = facts.parallel;
  if (facts.pipeline) {
    line["schedule"] = facts.pipeline->schedule;
    line["bubble"] = nine_digits(facts.pipeline->bubble);
  }
  line["accumulate"] = facts.accumulate;
  line["transport"] = facts.transport;
  line["model"] = facts.model;
  if (facts.parameters > 0) line["parameters"] = facts.parameters;
  line["data"] = facts.data;
  line["batch"] = facts.batch;
  line["seed"] = facts.seed;
  if (facts.memory) line["memory_bytes"] = memory_json(*facts.memory);
  for (const MemoryTable& table : facts.part_memory) {
    line["memory_bytes_by_stage"].push_back(memory_json(table));
  }
  line["gradwire"] = here.gradwire;
  line["commit"] = here.commit;
  line["cpu"] = here.cpu;
  line["cores"] = here.cores;
  return write_line(line.dump());
}

}  // namespace gradwire
