#include "apps/sweep/run_progress.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <utility>

#include "base/text.h"

namespace gradwire {

RunProgress::RunProgress(const std::string& label, std::vector<std::int64_t> steps, bool quiet)
    : steps_(std::move(steps)),
      total_(std::max<std::int64_t>(
          1, std::accumulate(steps_.begin(), steps_.end(), std::int64_t{0}))),
      progress_(stderr, quiet ? Progress::Style::kSilent : Progress::style_for(stderr), label,
                total_, 20, Progress::Unit::kPercent) {}

void RunProgress::run_ended(std::size_t run) {
  ++ended_;
  done_ += steps_[run];
}

std::int64_t RunProgress::lines_of(const std::string& path) {
  Tail& tail = tails_[path];
  std::ifstream file(path, std::ios::binary);
  file.seekg(tail.bytes);
  std::array<char, 65536> chunk{};
  while (file) {
    file.read(chunk.data(), chunk.size());
    tail.bytes += file.gcount();
    tail.lines += std::count(chunk.begin(), chunk.begin() + file.gcount(), '\n');
  }
  return tail.lines;
}

void RunProgress::show(const std::vector<Followed>& running, const std::string& what) {
  const auto now = Clock::now();
  if (now - last_ < std::chrono::milliseconds(500)) return;
  last_ = now;
  std::int64_t steps = done_;
  for (const Followed& one : running) steps += std::min(steps_[one.run], lines_of(one.metrics));
  progress_.update(std::min(steps, total_ - 1),
                   format("%zu of %zu runs; %s", ended_, steps_.size(), what.c_str()));
}

void RunProgress::finish() {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  progress_.update(total_, format("%zu run%s in %s", steps_.size(), steps_.size() == 1 ? "" : "s",
                                  clock_text(seconds).c_str()));
}

}  // namespace gradwire
