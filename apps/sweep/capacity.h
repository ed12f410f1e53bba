// How many runs the machine bears at once.
#pragma once

#include <cstdint>
#include <vector>

namespace gradwire {

// What one run takes while it runs.
struct RunLoad {
  int cores = 1;
  std::uint64_t bytes = 0;  // of memory; 0: not known yet
  bool alone = false;       // its times are only right when nothing else runs
};

// Not thread-safe.
class Capacity {
 public:
  // jobs: runs at once, whatever their cores; 0: as many as their cores allow. bytes: memory that
  // runs may use together.
  Capacity(int cores, std::uint64_t bytes, int jobs) : cores_(cores), bytes_(bytes), jobs_(jobs) {}

  // Whether such a run may start beside those that run. With none running it always may: a machine
  // that is too small for a run tries it, alone.
  bool admits(const RunLoad& load) const;
  void start(const RunLoad& load) { running_.push_back(load); }
  // One of start().
  void end(const RunLoad& load);

 private:
  int cores_;
  std::uint64_t bytes_;
  int jobs_;
  std::vector<RunLoad> running_;
};

// Memory that can be used without swapping, in bytes: the kernel's estimate, or what the control
// group has left where that is less.
std::uint64_t available_memory();

}  // namespace gradwire
