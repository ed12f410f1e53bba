// `gradwire bench ... --explain`: the numbers that `auto` chooses by, and what they predict.
#pragma once

#include <cstdint>
#include <string>

#include "apps/flags.h"
#include "bench/collective_bench.h"
#include "gradwire/communicator.h"

namespace gradwire {

struct LinkFlags {
  LinkModel given;  // numbers below 0 were not given
  bool measure = false;
  bool explain = false;
};
// The defaults and the flags.
LinkFlags unset_links();
void add_link_flags(Flags& flags, LinkFlags& links);

// Numbers given by flags win over those that the communicator has; the same on all ranks.
void use_given_links(Communicator& communicator, const LinkFlags& flags);

// The predicted time of every algorithm at every size of the benchmark.
std::string explanation(Communicator& communicator, const bench::CollectiveBenchOptions& options);

}  // namespace gradwire
