// What `gradwire train` does not serve where --parallel divides the model.
#pragma once

#include <string_view>
#include <vector>

#include "apps/train/train_options.h"
#include "gradwire/status.h"

namespace gradwire {

struct Unserved {
  std::string_view axis;    // "pp" or "tp": of which there is more than one rank
  std::string_view flag;    // "--zero"
  std::string_view served;  // what is expected: "--zero 0"
  bool (*asked)(const TrainOptions& options);
};

// All of them; docs/parallelism.md has the same table.
const std::vector<Unserved>& unserved_when_divided();

// The first that these options ask for; null: none.
const Unserved* first_unserved(const TrainOptions& options);

// Whether steps of a pipeline run into one another (pipedream, 2bw): weights are then older than
// their gradients.
bool goes_without_flush(const TrainOptions& options);

// kUnsupported names the flag and what is expected; success where no model is divided.
Status check_division_served(const TrainOptions& options);

}  // namespace gradwire
