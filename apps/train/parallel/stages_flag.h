// What `gradwire train --parallel pp=N` does not serve.
#pragma once

#include <string_view>
#include <vector>

#include "apps/train/train_options.h"
#include "gradwire/status.h"

namespace gradwire {

struct UnservedByStages {
  std::string_view flag;    // "--zero"
  std::string_view served;  // what is expected: "--zero 0"
  bool (*asked)(const TrainOptions& options);
};

// All of them; docs/pipelines.md has the same table.
const std::vector<UnservedByStages>& unserved_by_stages();

// kUnsupported names the flag and what is expected; success where there are no stages.
Status check_stages_served(const TrainOptions& options);

}  // namespace gradwire
