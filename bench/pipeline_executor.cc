// What the executor of pipeline schedules costs by itself: lists whose operations do nothing, over
// links that have ended before they are asked. Prints nanoseconds an operation, the median of
// several runs of many steps each.
//
//   pipeline_executor [STEPS]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "trainer/pipeline/generate.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/run/executor.h"

namespace gradwire {
namespace {

class NoWork final : public PipelineWork {
 public:
  Status run(const PipelineOp&) override { return {}; }
  Status finish(const PipelineOp&) override { return {}; }
  Result<std::span<std::byte>> room_for(const PipelineOp&) override {
    return std::span<std::byte>();
  }
  Result<std::span<const std::byte>> message(const PipelineOp&) override {
    return std::span<const std::byte>();
  }
  void sent(const PipelineOp&) override {}
};

class NoTransfers final : public PipelineTransfers {
 public:
  Status prepare(std::size_t) override { return {}; }
  Status send(std::size_t, const PipelineOp&, int, std::span<const std::byte>) override {
    return {};
  }
  Status receive(std::size_t, const PipelineOp&, int, std::span<std::byte>) override { return {}; }
  Result<bool> done(std::size_t) override { return true; }
  Status wait(std::size_t) override { return {}; }
  void stop() override {}
};

// Nanoseconds an operation of rank 1 of 4, with 64 micro-batches.
Result<double> cost(const PipelineSpec& spec, int steps) {
  constexpr int kRuns = 9;
  GW_ASSIGN(const PipelineSchedule made, generate_pipeline(spec, 4, 64));
  GW_ASSIGN(const PipelineSchedule schedule, lower_pipeline(made, PipelineLinks::kTagged));
  NoWork work;
  NoTransfers transfers;
  GW_ASSIGN(PipelineExecutor executor, PipelineExecutor::create(schedule, 1, {}, work, transfers));
  std::array<double, kRuns> runs{};
  for (double& run : runs) {
    const auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) GW_TRY(executor.run());
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    run = spent.count() / (static_cast<double>(executor.size()) * steps);
  }
  std::ranges::nth_element(runs, runs.begin() + kRuns / 2);
  return runs[kRuns / 2];
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1000;
  for (const gradwire::PipelineKind kind : gradwire::kGeneratedPipelines) {
    const auto nanoseconds = gradwire::cost({.kind = kind}, steps);
    if (!nanoseconds.has_value()) {
      std::fprintf(stderr, "%s\n", std::string(nanoseconds.error().message()).c_str());
      return 1;
    }
    std::printf("%-14s %8.1f ns an operation\n", std::string(to_string(kind)).c_str(),
                nanoseconds.value());
  }
  return 0;
}
