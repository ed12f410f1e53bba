// One rank of a job in which a rank is killed or stopped: a program for faults_matrix_test.py.
//
// All ranks run one operation a few times; then the victims end as the flags say, before the next
// one, in the midst of it, or after it. The others go on until it fails, shrink, sum a hundred
// times among those that are left, and write what they saw, as one line of JSON, into --report.
//
// --how launcher: started by `gradwire run`, which says the rank and the number of ranks; the
// victim kills that instead of itself. What a rank says then is in --report, with "-RANK" behind
// it, and on its standard error, which goes into that name with ".said" behind it.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apps/environment.h"
#include "apps/launcher_watch.h"
#include "base/elements.h"
#include "base/text.h"
#include "gradwire/communicator.h"
#include "gradwire/config.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

struct Plan {
  int rank = 0;
  int size = 2;
  std::string store, transport, operation, when, how, report, flight;
  std::vector<int> victims;
  double deadline = 3;
  std::int64_t delay_us = 0;  // between the operation's start and the fault, for "during"
  std::size_t elems = 1 << 18;
};

// The time in which the machine did not let this process run: it counts against nobody.
class Stalls {
 public:
  Stalls() : thread_([this](const std::stop_token& stop) { watch(stop); }) {}
  double seconds() const { return stalled_; }

 private:
  void watch(const std::stop_token& stop) {
    for (Clock::time_point last = Clock::now(); !stop.stop_requested();) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const Clock::time_point now = Clock::now();
      const double extra = std::chrono::duration<double>(now - last).count() - 0.06;
      if (extra > 0) stalled_ = stalled_ + extra;
      last = now;
    }
  }
  std::atomic<double> stalled_{0};
  std::jthread thread_;
};

std::int64_t whole(const std::map<std::string, std::string>& flags, const std::string& name) {
  const auto found = flags.find(name);
  return found == flags.end() ? 0 : to_int(found->second).value_or(0);
}

Plan read_plan(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[std::string(argv[i]).substr(2)] = argv[i + 1];
  Plan plan;
  plan.rank = static_cast<int>(whole(flags, "rank"));
  plan.size = static_cast<int>(whole(flags, "size"));
  plan.store = flags["store"];
  plan.transport = flags["transport"];
  plan.operation = flags["operation"];
  plan.when = flags["when"];
  plan.how = flags["how"];
  plan.report = flags["report"];
  plan.flight = flags["flight"];
  plan.deadline = to_double(flags["deadline"]).value_or(3);
  plan.delay_us = whole(flags, "delay-us");
  for (std::size_t at = 0; at < flags["victims"].size(); at += 2) {
    plan.victims.push_back(flags["victims"][at] - '0');  // "1,3": one digit each
  }
  return plan;
}

bool of_launcher(const Plan& plan) { return plan.how == "launcher"; }

// From `gradwire run`, whose end of the pipe is gone when it is needed.
Status take_place(Plan& plan) {
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  plan.rank = launch.rank;
  plan.size = launch.size;
  plan.report += "-" + std::to_string(plan.rank);
  if (std::freopen((plan.report + ".said").c_str(), "w", stderr) == nullptr) {
    return {Code::kInternal, "no file " + plan.report + ".said"};
  }
  std::setvbuf(stderr, nullptr, _IONBF, 0);  // as it was: the end comes without a flush
  return {};
}

Status wait_for(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

// Sums job ranks + 1, and looks at every element.
Status sum(Communicator& world, std::size_t elems) {
  std::vector<float> data(elems, static_cast<float>(world.job_rank(world.rank()) + 1));
  float wanted = 0;
  for (int r = 0; r < world.size(); ++r) wanted += static_cast<float>(world.job_rank(r) + 1);
  const Status status = wait_for(world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
  if (!status.ok()) return status;
  const bool right = std::ranges::all_of(data, [&](float value) { return value == wanted; });
  return right ? Status() : Status(Code::kInternal, "wrong sum");
}

Status all_to_all(Communicator& world, std::size_t elems) {
  const auto size = static_cast<std::size_t>(world.size());
  const std::size_t row = elems / size;
  std::vector<float> in(row * size, static_cast<float>(world.rank())), out(row * size);
  const Status status = wait_for(
      world.all_to_all(const_view_of(std::span<const float>(in)), view_of(std::span(out))));
  if (!status.ok()) return status;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] != static_cast<float>(i / row)) return {Code::kInternal, "wrong element"};
  }
  return {};
}

Status broadcast(Communicator& world, std::size_t elems) {
  std::vector<float> data(elems, static_cast<float>(world.rank() + 7));
  const Status status = wait_for(world.broadcast(view_of(std::span(data)), 0));
  if (!status.ok()) return status;
  const bool right = std::ranges::all_of(data, [](float value) { return value == 7; });
  return right ? Status() : Status(Code::kInternal, "wrong element");
}

Status run(const Plan& plan, Communicator& world) {
  if (plan.operation == "all_reduce") return sum(world, plan.elems);
  if (plan.operation == "all_to_all") return all_to_all(world, plan.elems);
  if (plan.operation == "broadcast") return broadcast(world, plan.elems);
  if (plan.operation == "barrier") return wait_for(world.barrier());
  return world.split(world.rank() % 2, 0).error();
}

// A shell that ends continues what it left stopped, so a rank stops more than once.
void end_this_rank(const Plan& plan) {
  for (int times = 0; times < 1000; ++times) {
    kill(getpid(), plan.how == "stop" ? SIGSTOP : SIGKILL);
  }
}

// Of a fault that comes from outside (--how link): the driver makes files, and waits for this
// rank's.
void wait_for_file(const std::string& path) {
  const Deadline until = deadline_in(60);
  while (access(path.c_str(), F_OK) != 0 && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void meet_the_driver(const Plan& plan, Communicator& world) {
  std::ofstream(plan.report + ".ready") << "1\n";
  wait_for_file(plan.store + "/../go");
  if (plan.when != "after") return;
  (void)run(plan, world);
  std::ofstream(plan.report + ".once") << "1\n";
  wait_for_file(plan.store + "/../on");
}

void end_the_launcher() {
  const auto launcher = to_int(environment("GRADWIRE_LAUNCHER").value_or(""));
  if (launcher && *launcher > 1) (void)kill(static_cast<pid_t>(*launcher), SIGKILL);
}

// All ranks are in it. After this the next operation fails, but "after": nobody is in any then.
void lose_the_launcher(const Plan& plan, Communicator& world, std::jthread& fault) {
  const bool mine = std::ranges::find(plan.victims, plan.rank) != plan.victims.end();
  if (plan.when == "after") (void)run(plan, world);
  if (!mine) return;
  if (plan.when == "during") {
    fault = std::jthread([delay = plan.delay_us] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      end_the_launcher();
    });
    return;
  }
  if (plan.when == "after") std::this_thread::sleep_for(std::chrono::milliseconds(30));
  end_the_launcher();
}

void be_a_victim(const Plan& plan, Communicator& world) {
  if (plan.when == "during") {
    std::jthread fault([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(plan.delay_us));
      end_this_rank(plan);
    });
    for (int i = 0; i < 100000; ++i) (void)run(plan, world);
  }
  if (plan.when == "after") {
    (void)run(plan, world);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  end_this_rank(plan);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' || c == '\\' ? '\'' : c;
  return out + "\"";
}

struct Report {
  double join = 0, fail = 0, shrink = 0, stalled = 0;
  Status failure;
  std::string trouble;
  std::vector<int> survivors;
};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Until an operation fails; the time is that of the operation that did.
void fail(const Plan& plan, Communicator& world, const Stalls& stalls, Report& report) {
  const Deadline until = deadline_in(20 + 3 * plan.deadline);
  while (report.failure.ok() && Clock::now() < until) {
    const double stalled = stalls.seconds();
    const auto start = Clock::now();
    report.failure = run(plan, world);
    report.fail = since(start);
    report.stalled = stalls.seconds() - stalled;
  }
  if (report.failure.ok()) report.trouble = "nothing failed";
}

void go_on(Communicator& world, Report& report) {
  const auto start = Clock::now();
  auto shrunk = world.shrink();
  report.shrink = since(start);
  if (!shrunk.has_value()) {
    report.trouble = shrunk.error().message();
    return;
  }
  Communicator& left = *shrunk.value();
  for (int r = 0; r < left.size(); ++r) report.survivors.push_back(left.job_rank(r));
  for (int i = 0; i < 100 && report.trouble.empty(); ++i) {
    const Status status = sum(left, i % 10 == 0 ? 100000 : 1000);
    if (!status.ok())
      report.trouble = "sum " + std::to_string(i) + ": " + std::string(status.message());
  }
}

void write(const Plan& plan, const Report& report) {
  std::string survivors;
  for (const int r : report.survivors)
    survivors += (survivors.empty() ? "" : ",") + std::to_string(r);
  const std::string part = plan.report + ".part";
  std::ofstream file(part);
  file << format("{\"rank\":%d,\"join\":%.3f,\"fail\":%.3f,\"stalled\":%.3f,\"shrink\":%.3f,",
                 plan.rank, report.join, report.fail, report.stalled, report.shrink)
       << "\"survivors\":[" << survivors
       << "],\"code\":" << quoted(to_string(report.failure.code()))
       << ",\"verdict\":" << quoted(report.failure.message())
       << ",\"trouble\":" << quoted(report.trouble) << "}\n";
  file.close();
  (void)std::rename(part.c_str(), plan.report.c_str());
}

// It is the watch that ends this process, well before.
int outlive_the_launcher(const Plan& plan, Communicator& world, const Stalls& stalls,
                         Report& report) {
  std::jthread fault;
  if (report.failure.ok()) report.failure = wait_for(world.barrier());  // all watch
  if (!report.failure.ok()) {
    report.trouble = "failed before the fault";
  } else {
    lose_the_launcher(plan, world, fault);
    if (plan.when != "after") fail(plan, world, stalls, report);
  }
  if (plan.when != "after" || !report.trouble.empty()) write(plan, report);
  std::this_thread::sleep_for(std::chrono::seconds(20));
  return 1;
}

int play(const Plan& plan) {
  Report report;
  const auto start = Clock::now();
  auto store = make_file_store(plan.store);
  if (!store.has_value()) {
    report.trouble = store.error().message();
    write(plan, report);
    return 1;
  }
  Rendezvous rendezvous{
      .rank = plan.rank, .size = plan.size, .job = "faults", .store = store.value()};
  rendezvous.timeout_seconds = 60;
  CommunicatorOptions options{.deadline_seconds = plan.deadline};
  options.flight_folder = plan.flight;
  auto world = make_communicator(plan.transport, rendezvous, options);
  if (!world.has_value()) {
    report.trouble = world.error().message();
    write(plan, report);
    return 1;
  }
  report.join = since(start);
  const Stalls stalls;
  std::unique_ptr<LauncherWatch> watch;
  if (of_launcher(plan)) {
    watch = LauncherWatch::start(environment("GRADWIRE_LAUNCHER").value_or(""), *world.value());
  }
  // Of a machine that is starved a first operation may take long: that is not what is measured.
  for (int i = 0; i < 3 && report.failure.ok(); ++i) report.failure = run(plan, *world.value());
  if (of_launcher(plan)) return outlive_the_launcher(plan, *world.value(), stalls, report);
  if (report.failure.ok() && plan.how == "link") {
    meet_the_driver(plan, *world.value());
  } else if (report.failure.ok() &&
             std::ranges::find(plan.victims, plan.rank) != plan.victims.end()) {
    be_a_victim(plan, *world.value());
  }
  fail(plan, *world.value(), stalls, report);
  if (report.trouble.empty()) go_on(*world.value(), report);
  write(plan, report);
  return report.trouble.empty() ? 0 : 1;
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  gradwire::Plan plan = gradwire::read_plan(argc, argv);
  if (gradwire::of_launcher(plan)) {
    const gradwire::Status placed = gradwire::take_place(plan);
    if (!placed.ok()) {
      std::printf("%s\n", std::string(placed.message()).c_str());
      return 1;
    }
  }
  return gradwire::play(plan);
}
