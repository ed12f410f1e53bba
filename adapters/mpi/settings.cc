#include "adapters/mpi/settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string>

#include "base/text.h"

namespace gradwire::mpi {
namespace {

constexpr std::array<const char*, kCalls> kNames = {"MPI_Allreduce",
                                                    "MPI_Bcast",
                                                    "MPI_Reduce",
                                                    "MPI_Allgather",
                                                    "MPI_Allgatherv",
                                                    "MPI_Reduce_scatter",
                                                    "MPI_Reduce_scatter_block",
                                                    "MPI_Alltoall",
                                                    "MPI_Alltoallv",
                                                    "MPI_Gather",
                                                    "MPI_Gatherv",
                                                    "MPI_Scatter",
                                                    "MPI_Scatterv",
                                                    "MPI_Scan",
                                                    "MPI_Exscan",
                                                    "MPI_Barrier",
                                                    "MPI_Iallreduce",
                                                    "MPI_Ireduce",
                                                    "MPI_Ibcast",
                                                    "MPI_Iallgather",
                                                    "MPI_Ibarrier"};

Status bad(const char* name, const std::string& seen, const std::string& wanted) {
  return {Code::kInvalidArgument,
          "bad value for " + std::string(name) + " (got '" + seen + "', expected " + wanted + ")"};
}

// "allreduce": how a call is spelled in GRADWIRE_MPI_OPS.
std::string short_name(std::size_t call) {
  std::string name(kNames[call] + 4);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::string short_names() {
  std::string all;
  for (std::size_t call = 0; call < kCalls; ++call) all += short_name(call) + ", ";
  return all + "all or none, separated by commas";
}

Result<CallSet> read_calls(const char* variable, const std::string& text) {
  CallSet calls = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    CallSet named = word == "all" ? kAllCalls : 0;
    for (std::size_t call = 0; call < kCalls; ++call) {
      if (word == short_name(call)) named = CallSet{1} << call;
    }
    if (named == 0 && word != "none") return bad(variable, text, short_names());
    calls |= named;
  }
  return calls;
}

Result<Settings::Transport> read_transport(const char* variable, const std::string& text) {
  using enum Settings::Transport;
  if (text == "auto") return kAuto;
  if (text == "shm") return kShm;
  if (text == "ucx") return kUcx;
  if (text == "tcp") return kTcp;
  return bad(variable, text, "auto, shm, ucx or tcp");
}

}  // namespace

const char* name_of(Call call) { return kNames[static_cast<std::size_t>(call)]; }

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<Settings> read_settings(const EnvLookup& env) {
  Settings settings;
  if (const auto text = env("GRADWIRE_MPI_TRANSPORT")) {
    GW_ASSIGN(settings.transport, read_transport("GRADWIRE_MPI_TRANSPORT", *text));
  }
  if (const auto text = env("GRADWIRE_MPI_OPS")) {
    GW_ASSIGN(settings.calls, read_calls("GRADWIRE_MPI_OPS", *text));
  }
  if (const auto text = env("GRADWIRE_MPI_VERBOSE")) {
    if (*text != "0" && *text != "1") return bad("GRADWIRE_MPI_VERBOSE", *text, "0 or 1");
    settings.verbose = *text == "1";
  }
  if (const auto text = env("GRADWIRE_DEADLINE")) {
    const auto seconds = to_double(*text);
    if (!seconds || *seconds <= 0 || *seconds > 1e9) {
      return bad("GRADWIRE_DEADLINE", *text, "seconds above 0, at most 1e9");
    }
    settings.deadline_seconds = *seconds;
  }
  GW_ASSIGN(settings.links, links_from_environment(env, settings.links));
  return settings;
}

Result<Supervision> read_supervision(const EnvLookup& env) {
  Supervision supervision{.record_folder = env("GRADWIRE_MPI_RECORD").value_or("")};
  if (const auto text = env("GRADWIRE_MPI_RANKS")) {
    const auto ranks = to_int(*text);
    if (!ranks || *ranks < 1 || *ranks > (1 << 24)) {
      return bad("GRADWIRE_MPI_RANKS", *text, "a number of ranks");
    }
    supervision.launched_ranks = static_cast<int>(*ranks);
  }
  return supervision;
}

}  // namespace gradwire::mpi
