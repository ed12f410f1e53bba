// One rank that asks its launcher's store for a token: a program for tokens_test.py.
//
//   token_rank FOLDER
//
// Writes into FOLDER/LIFE-RANK who holds the token, in the words "LIFE-RANK" of the rank that was
// first, and where the store is. LIFE is how often torchrun has started the ranks before. A first
// life of several ends badly when all its ranks have asked, so that there is a second one.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "adapters/launch/launch.h"
#include "adapters/launch/sides.h"
#include "gradwire/communicator.h"
#include "gradwire/config.h"

namespace gradwire {
namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

bool await(const std::string& file) {
  const Deadline until = deadline_in(60);
  while (access(file.c_str(), F_OK) != 0) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

Status ask(const std::string& folder) {
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  GW_ASSIGN(const Rendezvous met, launch::meet(launch, environment, {}));
  CommunicatorOptions options;
  GW_TRY(launch::choose_side_rule(options, met, environment));
  if (!options.take_token) return {Code::kInvalidArgument, "this launcher has no store"};
  const std::string life = environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
  const auto file = [&](int rank) { return folder + "/" + life + "-" + std::to_string(rank); };
  GW_ASSIGN(const std::string holder,
            options.take_token("shrink/test/1", life + "-" + std::to_string(launch.rank),
                               deadline_in(20)));
  const std::string draft = file(launch.rank) + ".part";
  std::ofstream(draft) << holder << " " << environment("GRADWIRE_LAUNCHER_STORE").value_or("agent");
  if (std::rename(draft.c_str(), file(launch.rank).c_str()) != 0) {
    return {Code::kInternal, "cannot write " + draft};
  }
  for (int rank = 0; rank < launch.size; ++rank) {
    if (!await(file(rank))) return {Code::kTimedOut, "no " + file(rank)};
  }
  const bool again = environment("TORCHELASTIC_MAX_RESTARTS").value_or("0") != "0" && life == "0";
  return again ? Status(Code::kCancelled, "the first life ends") : Status();
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  const gradwire::Status status = gradwire::ask(argc > 1 ? argv[1] : ".");
  if (!status.ok()) std::fprintf(stderr, "token_rank: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
