#include "apps/sweep/run_record.h"

#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>
#include <string_view>

#include "apps/whole_file.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kErrorPrefix = "gradwire: error: ";
constexpr std::array kOutcomes{"complete", "diverged", "failed"};

std::string record_path(const std::string& folder) { return folder + "/run.json"; }

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

Machine machine_of(const Json& json) {
  return {.cpu = text_of(json, "cpu"),
          .cores = static_cast<int>(number_of(json, "cores")),
          .kernel = text_of(json, "kernel"),
          .gradwire = text_of(json, "gradwire"),
          .commit = text_of(json, "commit"),
          .compiler = text_of(json, "compiler"),
          .ucx = text_of(json, "ucx")};
}

}  // namespace

Json to_json(const Machine& machine) {
  return {{"cpu", machine.cpu},       {"cores", machine.cores},
          {"kernel", machine.kernel}, {"gradwire", machine.gradwire},
          {"commit", machine.commit}, {"compiler", machine.compiler},
          {"ucx", machine.ucx}};
}

Json to_json(const RunRecord& record) {
  Json json{{"row", record.row},
            {"setting", record.setting},
            {"spec", record.spec},
            {"command", record.command},
            {"machine", to_json(record.machine)},
            {"host", record.host},
            {"started", record.started},
            {"seconds", record.seconds},
            {"peak_bytes", record.peak_bytes},
            {"outcome", kOutcomes[static_cast<std::size_t>(record.outcome)]},
            {"exit_status", record.exit_status},
            {"reason", record.reason}};
  if (record.steps) json["steps"] = *record.steps;
  return json;
}

std::optional<RunRecord> read_record(const std::string& folder) {
  const auto text = read_whole_file(record_path(folder));
  if (!text.has_value()) return std::nullopt;
  const Json json = Json::parse(text.value(), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  RunRecord record{.row = text_of(json, "row"),
                   .setting = text_of(json, "setting"),
                   .spec = json.value("spec", Json::object()),
                   .command = text_of(json, "command"),
                   .machine = machine_of(json.value("machine", Json::object())),
                   .host = text_of(json, "host"),
                   .started = text_of(json, "started"),
                   .seconds = number_of(json, "seconds"),
                   .peak_bytes = static_cast<std::uint64_t>(number_of(json, "peak_bytes")),
                   .exit_status = static_cast<int>(number_of(json, "exit_status")),
                   .reason = text_of(json, "reason")};
  if (json.contains("steps") && json["steps"].is_number_integer())
    record.steps = json["steps"].get<std::int64_t>();
  const std::string outcome = text_of(json, "outcome");
  for (std::size_t i = 0; i < kOutcomes.size(); ++i) {
    if (outcome != kOutcomes[i]) continue;
    record.outcome = static_cast<RunOutcome>(i);
    return record;
  }
  return std::nullopt;
}

Status write_record(const std::string& folder, const RunRecord& record) {
  return replace_whole_file(
      record_path(folder),
      to_json(record).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string words_of(const std::string& log) {
  std::ifstream file(log);
  std::string line;
  std::string error;
  std::string last;
  while (std::getline(file, line)) {
    if (line.find(kErrorPrefix) != std::string::npos && error.empty()) error = line;
    if (!line.empty()) last = line;
  }
  if (error.empty()) return last;
  return error.erase(error.find(kErrorPrefix), kErrorPrefix.size());
}

bool says_not_finite(const std::string& log) {
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    if (line.find("error: ") != std::string::npos && line.find("finite") != std::string::npos)
      return true;
  }
  return false;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), size};
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace gradwire
