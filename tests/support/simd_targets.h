// Runs code as every instruction set of this machine would run it.
#pragma once

#include <cstdint>
#include <string>

#include <hwy/highway.h>
#include <hwy/targets.h>

namespace gradwire::testing {

// Calls `call` with the name of each instruction set that the kernels were compiled for and this
// processor has, "SCALAR" (plain loops) among them, while Highway's dispatch takes it. Not for
// several threads.
template <typename Call>
void for_each_simd_target(const Call& call) {
  const std::int64_t all = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_SCALAR;
  for (std::int64_t rest = all; rest != 0; rest &= rest - 1) {
    hwy::GetChosenTarget().Update(rest & -rest);
    call(std::string(hwy::TargetName(rest & -rest)));
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace gradwire::testing
