// `gradwire inspect flight DIR`: why a job failed, by the records of its ranks.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "apps/flags.h"
#include "apps/inspect/flight_files.h"
#include "apps/inspect/inspect.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Files = std::map<int, FlightFile>;
using Json = nlohmann::ordered_json;

std::string listed(const std::set<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (const int rank : ranks) text += (text.back() == ' ' ? "" : ", ") + std::to_string(rank);
  return text;
}

std::string place(const FlightOperation& operation) {
  return format("operation %lld of communicator %lld: ", static_cast<long long>(operation.number),
                static_cast<long long>(operation.communicator)) +
         operation.what;
}

double seconds(std::int64_t microseconds) { return static_cast<double>(microseconds) * 1e-6; }

// The first operation of the rank that did not succeed, else its last.
const FlightOperation* telling(const FlightFile& file) {
  if (file.operations.empty()) return nullptr;
  for (const FlightOperation& operation : file.operations) {
    if (operation.state != "done") return &operation;
  }
  return &file.operations.back();
}

std::string rank_line(const FlightFile& file) {
  std::string text = format("rank %-3d ", file.rank);
  const FlightOperation* operation = telling(file);
  if (operation == nullptr) return text + "no operation before it failed";
  text += operation->state + " " + place(*operation);
  if (operation->ended_us > operation->begun_us) {
    text += format(", %.3f s", seconds(operation->ended_us - operation->begun_us));
  }
  text += format(", %lld bytes sent", static_cast<long long>(operation->bytes_sent));
  const std::set<int> waited(operation->waiting_for.begin(), operation->waiting_for.end());
  if (!waited.empty()) text += ", waiting for " + listed(waited);
  return text;
}

// The first operation that two ranks describe differently.
std::optional<std::string> disagreement(const Files& files) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::map<std::string, std::set<int>>> seen;
  for (const auto& [rank, file] : files) {
    for (const FlightOperation& operation : file.operations) {
      if (!operation.collective) continue;
      seen[{operation.communicator, operation.number}][operation.what].insert(rank);
    }
  }
  for (const auto& [where, whats] : seen) {
    if (whats.size() < 2) continue;
    std::string text =
        format("the ranks called different operations as operation %lld of communicator %lld:",
               static_cast<long long>(where.second), static_cast<long long>(where.first));
    for (const auto& [what, ranks] : whats) text += "\n  " + what + ": " + listed(ranks);
    return text;
  }
  return std::nullopt;
}

// Ranks of a communicator that had not begun an operation in which others failed. Who is a member
// shows in what it has done there.
std::optional<std::string> laggards(const Files& files) {
  for (const auto& [rank, file] : files) {
    const FlightOperation* failed = telling(file);
    if (failed == nullptr || failed->state == "done" || !failed->collective) continue;
    std::set<int> behind;
    for (const auto& [other, record] : files) {
      bool member = false;
      bool begun = false;
      for (const FlightOperation& operation : record.operations) {
        if (!operation.collective || operation.communicator != failed->communicator) continue;
        member = true;
        begun = begun || operation.number >= failed->number;
      }
      if (member && !begun) behind.insert(other);
    }
    if (!behind.empty()) return listed(behind) + " had not begun " + place(*failed);
  }
  return std::nullopt;
}

// By what the ranks that wrote something say of others.
struct Accusations {
  std::map<int, std::set<int>> by;  // accused -> who says so
  std::string why;
};

Accusations accusations(const Files& files, std::vector<int> FlightFile::*list) {
  Accusations found;
  for (const auto& [rank, file] : files) {
    for (const int accused : file.*list) found.by[accused].insert(rank);
  }
  return found;
}

std::optional<std::string> accused(const Files& files) {
  const std::tuple<std::vector<int> FlightFile::*, const char*> kinds[] = {
      {&FlightFile::lost, "lost"},
      {&FlightFile::silent, "silent"},
      {&FlightFile::absent, "absent from the operation"}};
  for (const auto& [list, word] : kinds) {
    std::string text;
    for (const auto& [rank, by] : accusations(files, list).by) {
      if (by == std::set<int>{rank}) continue;
      text += (text.empty() ? "" : "\n") + format("rank %d was %s (reported by ", rank, word) +
              listed(by) + ")" + (files.contains(rank) ? "" : "; it left no record");
    }
    if (!text.empty()) return text;
  }
  return std::nullopt;
}

// A rank whose launcher has died gives up, and others then take it for lost.
std::optional<std::string> launcher(const Files& files) {
  std::set<int> orphans;
  for (const auto& [rank, file] : files) {
    if (file.orphaned) orphans.insert(rank);
  }
  if (orphans.empty()) return std::nullopt;
  return "the launcher died (reported by " + listed(orphans) + ")";
}

std::string cause_of(const Files& files) {
  if (const auto text = launcher(files)) return *text;
  if (const auto text = disagreement(files)) return *text;
  if (const auto text = accused(files)) return *text;
  if (const auto text = laggards(files)) return *text;
  std::set<int> silent;
  for (int rank = 0; rank < files.begin()->second.size; ++rank) {
    if (!files.contains(rank)) silent.insert(rank);
  }
  if (!silent.empty()) return listed(silent) + " left no record, and no other rank reports why";
  return "unknown: no rank is missing and all agree; see the ranks' own errors";
}

}  // namespace

std::string explain_flight(const Files& files) {
  std::string text;
  for (const auto& [rank, file] : files) text += rank_line(file) + "\n";
  const int size = files.begin()->second.size;
  std::set<int> without;
  for (int rank = 0; rank < size && without.size() < 20; ++rank) {
    if (!files.contains(rank)) without.insert(rank);
  }
  if (!without.empty()) text += listed(without) + " left no record\n";
  std::map<std::string, std::set<int>> said;
  for (const auto& [rank, file] : files) said[file.message].insert(rank);
  for (const auto& [message, ranks] : said) text += listed(ranks) + " reported: " + message + "\n";
  return text + "cause: " + cause_of(files) + "\n";
}

nlohmann::ordered_json flight_json(std::int64_t generation, const Files& files) {
  Json ranks = Json::array();
  for (const auto& [rank, file] : files) {
    Json one{{"rank", rank}, {"error", file.message}};
    if (const FlightOperation* operation = telling(file)) {
      one["operation"] = operation->what;
      one["communicator"] = operation->communicator;
      one["number"] = operation->number;
      one["state"] = operation->state;
      one["seconds"] =
          seconds(std::max<std::int64_t>(operation->ended_us - operation->begun_us, 0));
      one["bytes_sent"] = operation->bytes_sent;
      one["waiting_for"] = operation->waiting_for;
    }
    ranks.push_back(std::move(one));
  }
  return {{"kind", "flight"},
          {"generation", generation},
          {"size", files.begin()->second.size},
          {"ranks", std::move(ranks)},
          {"cause", cause_of(files)}};
}

Result<int> inspect_flight(const std::vector<std::string>& args) {
  std::string folder;
  bool as_json = false;
  Flags flags(
      "inspect flight",
      "Merges the flight records that the ranks of a failed job left in a folder, and names the "
      "cause of the failure.");
  flags.positional("DIR", folder, "folder of --flight or GRADWIRE_FLIGHT");
  flags.toggle("json", as_json, "one JSON line per generation of the job");
  flags.example("gradwire inspect flight records");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const FlightFiles files, read_flight_files(folder));
  for (const auto& [generation, ranks] : files) {
    if (as_json) {
      std::printf("%s\n", flight_json(generation, ranks).dump().c_str());
      continue;
    }
    if (files.size() > 1) {
      std::printf("generation %lld (%s)\n", static_cast<long long>(generation),
                  generation == 0 ? "the whole job" : "after shrink");
    }
    std::printf("%s", explain_flight(ranks).c_str());
  }
  return 0;
}

}  // namespace gradwire
