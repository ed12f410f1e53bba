#include "apps/compare/run_progress.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::size_t kParts = 1000;  // of one run

std::size_t lines_of(const std::string& path) {
  std::ifstream file(path);
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'));
}

}  // namespace

RunProgress::RunProgress(std::size_t runs, bool quiet)
    : runs_(runs),
      progress_(stderr, quiet ? Progress::Style::kSilent : Progress::style_for(stderr), "compare",
                static_cast<std::int64_t>(std::max<std::size_t>(1, runs) * kParts), 20,
                Progress::Unit::kPercent) {}

void RunProgress::show(const std::vector<std::string>& metrics, const std::string& what) {
  const auto now = Clock::now();
  if (now - last_ < std::chrono::milliseconds(500)) return;
  last_ = now;
  std::size_t parts = done_ * kParts;
  for (const std::string& path : metrics) {
    if (steps_per_run_ > 0) parts += std::min(kParts - 1, lines_of(path) * kParts / steps_per_run_);
  }
  progress_.update(static_cast<std::int64_t>(parts),
                   format("%zu of %zu runs; %s", done_, runs_, what.c_str()));
}

void RunProgress::finish() {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  progress_.update(static_cast<std::int64_t>(std::max<std::size_t>(1, runs_) * kParts),
                   format("%zu runs in %s", runs_, clock_text(seconds).c_str()));
}

}  // namespace gradwire
