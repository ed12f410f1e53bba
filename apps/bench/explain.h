// `gradwire bench ... --explain`: the numbers that `auto` chooses by, and what they predict.
#pragma once

#include <cstdint>
#include <string>

#include "apps/flags.h"
#include "bench/collective_bench.h"
#include "gradwire/communicator.h"

namespace gradwire {

struct LinkFlags {
  LinkModel given;  // numbers below 0 are those of the cache, measured, or the defaults
  bool measure = false;
  bool explain = false;
};
// The defaults and the flags.
LinkFlags unset_links();
void add_link_flags(Flags& flags, LinkFlags& links);

// Collective: gives the communicator the links of this machine, the same on all ranks. Between
// processes, and where an explanation is wanted, rank 0's cache has them or they are measured and
// kept there; ranks as threads have the defaults otherwise. Numbers given by flags win.
Status settle_links(Communicator& communicator, const LinkFlags& flags,
                    const std::string& transport);

// The predicted time of every algorithm at every size of the benchmark.
std::string explanation(Communicator& communicator, const bench::CollectiveBenchOptions& options);

}  // namespace gradwire
