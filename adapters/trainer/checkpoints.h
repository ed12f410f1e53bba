// Checkpoints of a job of several ranks: written together, or not at all; read by any number.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/store.h"
#include "trainer/checkpoint/tensor_file.h"

namespace gradwire {

struct CheckpointsOptions {
  std::string folder;      // that all ranks see
  int keep = 2;            // complete ones that stay, 1 or more
  double seconds = 600;    // that the slowest rank may take to write or read its part
  std::string written_by;  // for the manifest
  WriteObserver observer = {};
};

// Collective: all ranks call the same functions in the same order, between operations of the
// communicator, which is borrowed for the object's life. Errors are the same on all ranks and name
// the rank, the path and the system's reason.
class Checkpoints {
 public:
  Checkpoints(Communicator& communicator, CheckpointsOptions options)
      : communicator_(communicator), options_(std::move(options)), store_(options_.folder) {}

  // Every rank gives the parts that it has; together they cover their tensors, each element once.
  // `settings` are rank 0's; `position` is equal on all ranks, its mesh that of the communicator. A
  // model that is not finite (check_model()) on any rank is refused before anything is touched. Of
  // older checkpoints more than `keep` are surplus, and go before anything is written, the oldest
  // first. On return the new one is on the disk, and the last `keep` are there, at least two:
  // whether training can go on from the new one is not known yet. After an error while it was
  // written those that were there still are.
  Status save(const CheckpointPosition& position,
              const std::map<std::string, std::string>& settings, std::span<const TensorPart> mine);
  // Whether the last save() was refused because the model is not finite.
  bool diverged() const { return diverged_; }

  // After a run that came to its end: the last `keep` stay. Rank 0's work.
  Status settle();
  // All but that of `step`, which is complete, are removed. Rank 0's work.
  Status keep_only(std::int64_t step);

  // The last complete one, the same on all ranks; nullopt where there is none. A damaged one is an
  // error, not passed over.
  Result<std::optional<CheckpointReader>> open_last();
  // The last complete one's step, rank 0's view of it.
  Result<std::optional<std::int64_t>> last_step();

 private:
  Result<std::string> begin(std::int64_t step);
  Status write_manifest_file(const std::string& part, CheckpointManifest manifest,
                             std::span<const std::string> lists);
  Status finish(const std::string& part, const CheckpointManifest& manifest,
                std::span<const std::string> lists);
  void tell(std::string_view place) const;

  Communicator& communicator_;
  CheckpointsOptions options_;
  CheckpointStore store_;
  bool diverged_ = false;
};

}  // namespace gradwire
