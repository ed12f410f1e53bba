#include "apps/inspect/flight_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/flight_folder.h"
#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostRanks = 65536;

// A member that is not there, or of another type, reads as `otherwise`.
std::int64_t number_in(const nlohmann::json& object, const char* key, std::int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>()
                                                             : otherwise;
}

std::string text_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<int> ranks_in(const nlohmann::json& object, const char* key) {
  std::vector<int> ranks;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return ranks;
  for (const nlohmann::json& rank : *found) {
    if (!rank.is_number_integer()) continue;
    const auto value = rank.get<std::int64_t>();
    if (value >= 0 && value < kMostRanks) ranks.push_back(static_cast<int>(value));
  }
  return ranks;
}

std::string what_of(const nlohmann::json& operation) {
  std::string text = text_in(operation, "name");
  const std::int64_t elems = number_in(operation, "elems", -1);
  const std::int64_t root = number_in(operation, "root", -1);
  if (elems >= 0) text += " of " + std::to_string(elems);
  for (const char* key : {"dtype", "reduce"}) {
    if (const std::string word = text_in(operation, key); !word.empty()) text += " " + word;
  }
  if (root >= 0) text += " with root " + std::to_string(root);
  return text;
}

FlightOperation operation_of(const nlohmann::json& json) {
  FlightOperation operation;
  operation.communicator = number_in(json, "communicator", 0);
  operation.number = number_in(json, "number", 0);
  const auto collective = json.find("collective");
  operation.collective = collective == json.end() || *collective != nlohmann::json(false);
  operation.what = what_of(json);
  operation.state = text_in(json, "state");
  operation.begun_us = number_in(json, "begun_us", 0);
  operation.ended_us = number_in(json, "ended_us", 0);
  operation.bytes_sent = number_in(json, "bytes_sent", 0);
  operation.waiting_for = ranks_in(json, "waiting_for");
  return operation;
}

Result<FlightFile> read_flight_file(const std::string& path) {
  GW_ASSIGN(const std::string text, read_whole_file(path));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto operations = json.is_object() ? json.find("operations") : json.end();
  const bool whole = json.is_object() && number_in(json, "version", 0) == 1 &&
                     operations != json.end() && operations->is_array();
  const std::int64_t rank = whole ? number_in(json, "rank", -1) : -1;
  const std::int64_t size = whole ? number_in(json, "size", -1) : -1;
  if (rank < 0 || rank >= size || size > kMostRanks) {
    return Status(Code::kInvalidArgument,
                  "inspect flight: " + path + " is not a flight record (expected version 1)");
  }
  FlightFile file;
  file.rank = static_cast<int>(rank);
  file.size = static_cast<int>(size);
  file.generation = number_in(json, "generation", 0);
  file.message = text_in(json, "message");
  file.orphaned = has_orphan_mark(std::filesystem::path(path).parent_path(), file.rank,
                                  number_in(json, "pid", 0));
  file.lost = ranks_in(json, "lost");
  file.silent = ranks_in(json, "silent");
  file.absent = ranks_in(json, "absent");
  for (const nlohmann::json& operation : *operations) {
    if (operation.is_object()) file.operations.push_back(operation_of(operation));
  }
  return file;
}

}  // namespace

Result<FlightFiles> read_flight_files(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".json")) paths.push_back(entry.path());
  }
  if (error || paths.empty()) {
    return Status(Code::kInvalidArgument,
                  "inspect flight: no flight records in '" + folder +
                      "' (expected the folder of --flight or GRADWIRE_FLIGHT)");
  }
  FlightFiles files;
  for (const std::string& path : paths) {
    GW_ASSIGN(FlightFile file, read_flight_file(path));
    const std::int64_t generation = file.generation;
    const int rank = file.rank;
    files[generation].insert_or_assign(rank, std::move(file));
  }
  return files;
}

}  // namespace gradwire
