// What bench_collective() finds among ranks that are threads.
#pragma once

#include <vector>

#include "bench/collective_bench.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::bench {

// The rows of rank 0, or the first error.
inline Result<std::vector<CollectiveRow>> rows_of(int ranks,
                                                  const CollectiveBenchOptions& options) {
  auto worlds = make_inproc_communicators(ranks);
  if (!worlds.has_value()) return worlds.error();
  const Registry registry = Registry::builtin();
  std::vector<CollectiveRow> rows;
  const auto statuses = on_threads<Status>(ranks, [&](int r) {
    return bench_collective(*worlds.value()[static_cast<std::size_t>(r)], registry, options,
                            [&](const CollectiveRow& row) {
                              rows.push_back(row);
                              return Status();
                            });
  });
  for (const Status& status : statuses) GW_TRY(status);
  return rows;
}

}  // namespace gradwire::bench
