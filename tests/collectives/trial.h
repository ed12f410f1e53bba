// Runs schedules on numbers: the executor over the in-process transport, all ranks by turns in one
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/selection.h"
#include "comm/inproc/inproc_transport.h"

namespace gradwire {

using Bytes = std::vector<std::byte>;

// What one run of an operation starts from and ends with, by rank. in: the contents of kIn; where
// schedules are in place, of kOut.
struct Trial {
  ScheduleRequest request;
  DType dtype = DType::kI32;
  ReduceOp op = ReduceOp::kSum;
  Segmentation segmentation = {};
  bool apart = false;  // all_reduce out of place
  std::vector<Bytes> in = {};
  std::vector<Bytes> out = {};
};

// The first error of any rank; bounded by a minute.
inline Status drive(std::vector<Execution>& executions,
                    std::vector<std::unique_ptr<Transport>>& transports) {
  std::vector<ScratchPool> pools(executions.size());
  const Deadline until = deadline_in(60);
  for (bool done = false; !done;) {
    done = true;
    for (std::size_t r = 0; r < executions.size(); ++r) {
      GW_TRY(transports[r]->progress().error());
      if (executions[r].done()) continue;
      GW_TRY(executions[r].advance(*transports[r], pools[r]).error());
      done = false;
    }
    if (std::chrono::steady_clock::now() > until) return {Code::kTimedOut, "no end in a minute"};
  }
  for (std::size_t r = 0; r < executions.size(); ++r) executions[r].release(pools[r]);
  return {};
}

inline Status execute(Trial& run) {
  const int p = run.request.size;
  auto transports = make_inproc_transports(p);
  GW_TRY(transports.error());
  auto group = std::make_shared<std::vector<int>>(static_cast<std::size_t>(p));
  std::iota(group->begin(), group->end(), 0);
  std::vector<Execution> executions;
  run.out.resize(static_cast<std::size_t>(p));
  for (run.request.rank = 0; run.request.rank < p; ++run.request.rank) {
    const auto at = static_cast<std::size_t>(run.request.rank);
    Schedule schedule = make_schedule(run.request);
    if (run.apart) schedule = out_of_place(std::move(schedule));
    run.out[at].assign(static_cast<std::size_t>(schedule.out_elems) * size_of(run.dtype),
                       std::byte{0x55});
    if (schedule.in_place) run.out[at] = run.in[at];
    executions.emplace_back(
        std::make_shared<const Layout>(std::move(schedule), run.dtype, run.segmentation),
        Operands{.in = run.in[at].data(), .out = run.out[at].data(), .op = run.op},
        Route{group, 7, 3, 0});
  }
  return drive(executions, transports.value());
}

}  // namespace gradwire
