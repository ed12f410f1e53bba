// gw_aggregator_options as the library's own.
#pragma once

#include "gradwire/aggregator.h"
#include "gradwire/c.h"
#include "gradwire/status.h"

namespace gradwire::c {

struct SpecOptions {
  AggregatorOptions options;
  bool skips = false;  // GW_NONFINITE_SKIPS
  // Where the tensors are, as they say it: nobody has looked whether that is there.
  gw_space space = GW_HOST;
  int device = 0;
};
// kInvalidArgument names the field, the number seen and those wanted.
Result<SpecOptions> read_spec_options(const char* function, const gw_aggregator_options* given);

}  // namespace gradwire::c
