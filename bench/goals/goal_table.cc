#include "bench/goals/goal_table.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/philox.h"
#include "bench/read_pass.h"

namespace gradwire::bench {
namespace {

// Of this thread on a processor: on a machine that others use too, waiting for one does not count.
double seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
double seconds_of(const std::function<void()>& run) {
  const double start = seconds_now();
  run();
  return seconds_now() - start;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void print_times(double times, const char* than, double wanted) {
  std::printf(" %6.1f x %s", times, than);
  if (wanted > 0) std::printf(" (%g x)", wanted);
}

}  // namespace

GoalTable::GoalTable(std::size_t elems, int rounds, std::string only, TorchPeer* torch)
    : x_(elems), rounds_(rounds), only_(std::move(only)), torch_(torch) {
  const RandomStream draws(1, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < elems; ++i) x_[i] = 1e-3f * static_cast<float>(draws.normal(i));
}

void GoalTable::measure(const Goal& goal, std::span<const float> read) {
  const std::string wanted = "," + only_ + ",";
  const bool chosen = wanted.find("," + std::string(goal.name) + ",") != std::string::npos;
  if (!only_.empty() && !chosen) return;
  const bool with_torch = torch_ != nullptr && goal.torch_name != nullptr;
  std::vector<double> share;
  std::vector<double> rate;
  std::vector<double> times;
  std::vector<double> torch_times;
  goal.run();
  if (with_torch) torch_->seconds(goal.torch_name);
  for (int round = 0; round < rounds_; ++round) {
    const double reading = seconds_of([&] { sink_ += read_pass(read); });
    const double own = seconds_of(goal.run);
    share.push_back(reading / own);
    rate.push_back(static_cast<double>(read.size_bytes()) * 1e-9 / own);
    if (goal.peer) times.push_back(seconds_of(goal.peer) / own);
    if (with_torch) torch_times.push_back(torch_->seconds(goal.torch_name) / own);
  }
  print(goal, {median(rate), median(share), median(times), median(torch_times)});
}

void GoalTable::print_head() {
  std::printf(
      "goal what                                          rate      of the read pass (goal)\n");
}

void GoalTable::print(const Goal& goal, const Medians& medians) {
  const bool torch_ran = medians.torch_times > 0;
  const bool met = medians.share >= goal.share && medians.times >= goal.times &&
                   (!torch_ran || medians.torch_times >= goal.torch_times);
  std::printf("%-4s %-40s %7.2f GB/s %5.0f %% (%2.0f %%)", goal.name, goal.what.c_str(),
              medians.rate, 100 * medians.share, 100 * goal.share);
  if (goal.peer_name != nullptr) print_times(medians.times, goal.peer_name, goal.times);
  if (torch_ran) print_times(medians.torch_times, "torch", goal.torch_times);
  const bool wanted = goal.share > 0 || goal.times > 0 || (torch_ran && goal.torch_times > 0);
  std::printf("%s\n", !wanted ? "" : met ? "  met" : "  NOT MET");
  std::fflush(stdout);
}

}  // namespace gradwire::bench
