// One rank of a job that falls into sides: a program for sides_test.py. The launcher's variables
// say which rank it is and how the ranks meet; --folder is where the ranks and the test tell each
// other how far they are, and --victims are the ranks that end themselves.
//
// All sum until that fails, shrink, and sum twenty times among those that are left.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "adapters/launch/launch.h"
#include "base/elements.h"
#include "gradwire/communicator.h"
#include "gradwire/config.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

std::optional<std::string> environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Status sum(Communicator& world, std::size_t elems) {
  std::vector<float> data(elems, static_cast<float>(world.job_rank(world.rank()) + 1));
  float wanted = 0;
  for (int r = 0; r < world.size(); ++r) wanted += static_cast<float>(world.job_rank(r) + 1);
  GW_ASSIGN(Work work, world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
  GW_TRY(work.wait());
  const bool right = std::ranges::all_of(data, [&](float value) { return value == wanted; });
  return right ? Status() : Status(Code::kInternal, "wrong sum");
}

struct Report {
  std::string folder;
  int rank = 0;
  std::vector<int> survivors = {};

  // One line: the survivors, the code's name and the words of what ended it.
  int write(const Status& status) const {
    const std::string path = folder + "/report-" + std::to_string(rank);
    std::ofstream file(path + ".part");
    for (const int survivor : survivors) file << survivor << " ";
    file << "| " << to_string(status.code()) << " | " << status.message() << "\n";
    file.close();
    return std::rename((path + ".part").c_str(), path.c_str()) == 0 && status.ok() ? 0 : 1;
  }
};

Status go_on(Communicator& world, Report& report) {
  GW_ASSIGN(const auto left, world.shrink());
  for (int i = 0; i < 20; ++i) GW_TRY(sum(*left, 1000));
  for (int r = 0; r < left->size(); ++r) report.survivors.push_back(left->job_rank(r));
  return {};
}

Status play(const std::vector<int>& victims, Report& report) {
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  report.rank = launch.rank;
  GW_ASSIGN(const Rendezvous met, launch::meet(launch, environment, {}));
  GW_ASSIGN(const auto world, launch::connect(met, environment("SIDES_TRANSPORT").value_or("tcp"),
                                              {.deadline_seconds = 6}, environment, {}));
  GW_TRY(sum(*world, 1000));
  std::ofstream(report.folder + "/ready-" + std::to_string(launch.rank)) << "1\n";
  if (std::ranges::find(victims, launch.rank) != victims.end()) {
    const std::string go = report.folder + "/go";
    for (const Deadline until = deadline_in(60);
         access(go.c_str(), F_OK) != 0 && Clock::now() < until;) {
      if (!sum(*world, 1000).ok()) break;  // the other one was earlier
    }
    kill(getpid(), SIGKILL);
  }
  const Deadline until = deadline_in(90);
  Status failure;
  while (failure.ok() && Clock::now() < until) failure = sum(*world, 1000);
  if (failure.ok()) return {Code::kTimedOut, "nothing failed"};
  return go_on(*world, report);
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  std::vector<int> victims;
  gradwire::Report report;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--folder") report.folder = value;
    if (flag == "--victims") {
      for (const char c : value) victims.push_back(c - '0');  // "01": one digit each
    }
  }
  return report.write(gradwire::play(victims, report));
}
