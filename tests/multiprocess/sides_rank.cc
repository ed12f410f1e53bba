// One rank of a job that falls into sides: a program for sides_test.py. The launcher's variables
// say which rank it is and how the ranks meet; --folder is where the ranks and the test tell each
// other how far they are. --dying RANK kills itself --after MS milliseconds after its sums have
// failed, while the others shrink; --idle RANK lives on, but does not shrink before rank 0 has
// ended.
//
// All sum until that fails, shrink, and sum twenty times among those that are left; where that
// fails, they shrink again.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
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
  std::string failure = {};  // of the sums, before it shrank

  // One line: the survivors, the code's name, the words of what ended it, and of what failed first.
  int write(const Status& status) const {
    const std::string path = folder + "/report-" + std::to_string(rank);
    std::ofstream file(path + ".part");
    for (const int survivor : survivors) file << survivor << " ";
    file << "| " << to_string(status.code()) << " | " << status.message() << " | " << failure
         << "\n";
    file.close();
    return std::rename((path + ".part").c_str(), path.c_str()) == 0 && status.ok() ? 0 : 1;
  }
};

struct Options {
  std::string folder = {};
  int dying = -1, idle = -1;
  int after_ms = 0;
};

Status sums(Communicator& world) {
  for (int i = 0; i < 20; ++i) GW_TRY(sum(world, 1000));
  return {};
}

Status go_on(Communicator& world, Report& report) {
  GW_ASSIGN(std::unique_ptr<Communicator> left, world.shrink());
  Status status = sums(*left);
  for (int round = 0; round < 3 && !status.ok(); ++round) {
    GW_ASSIGN(left, left->shrink());
    status = sums(*left);
  }
  for (int r = 0; r < left->size(); ++r) report.survivors.push_back(left->job_rank(r));
  return status;
}

void await(const std::string& file) {
  for (const Deadline until = deadline_in(60);
       access(file.c_str(), F_OK) != 0 && Clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Status play(const Options& options, Report& report) {
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  report.rank = launch.rank;
  GW_ASSIGN(const Rendezvous met, launch::meet(launch, environment, {}));
  GW_ASSIGN(const auto world, launch::connect(met, environment("SIDES_TRANSPORT").value_or("tcp"),
                                              {.deadline_seconds = 6}, environment, {}));
  GW_TRY(sum(*world, 1000));
  std::ofstream(report.folder + "/ready-" + std::to_string(launch.rank)) << "1\n";
  const Deadline until = deadline_in(90);
  Status failure;
  while (failure.ok() && Clock::now() < until) {
    failure = sum(*world, 1000);
    if (launch.rank == 0 && access((options.folder + "/abort").c_str(), F_OK) == 0) {
      world->abort("the test asks for it");
    }
  }
  if (failure.ok()) return {Code::kTimedOut, "nothing failed"};
  report.failure = failure.message();
  if (launch.rank == options.dying) {
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(options.after_ms));
      kill(getpid(), SIGKILL);
    }).detach();
  }
  if (launch.rank == options.idle) await(options.folder + "/report-0");
  return go_on(*world, report);
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  gradwire::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--folder") options.folder = value;
    if (flag == "--dying") options.dying = std::atoi(value.c_str());
    if (flag == "--idle") options.idle = std::atoi(value.c_str());
    if (flag == "--after") options.after_ms = std::atoi(value.c_str());
  }
  gradwire::Report report{.folder = options.folder};
  return report.write(gradwire::play(options, report));
}
