// The folder that a run's checkpoints are in.
//
//   FOLDER/step-0000000020/manifest.json            complete: it has its final name
//                          rank-0.safetensors ...
//   FOLDER/.step-0000000030.1f2e.part/              being written, or left behind by a crash
//   FOLDER/.step-0000000010.old/                    being removed
//
// A checkpoint is written under a name that nobody reads, synced, and renamed: at every moment, the
// power cord's included, it is complete or not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// For one writing job at a time. Errors are kInvalidArgument with the path and the system's reason.
class CheckpointStore {
 public:
  // Touches nothing yet.
  explicit CheckpointStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  // Where the checkpoint after `step` steps is, or will be.
  std::string path_of(std::int64_t step) const;
  // The steps of all that are complete, ascending; none where the folder does not exist.
  Result<std::vector<std::int64_t>> complete() const;

  // Makes the folder (and those above it) if need be, removes what crashes have left behind, and
  // makes a new empty folder to write the checkpoint into: its path. `tag` keeps jobs apart of
  // which one does not know yet that it is dead. A complete checkpoint of that step is refused.
  Result<std::string> begin(std::int64_t step, std::uint64_t tag) const;
  // All of `part` is on the disk under its final name on return. Its files have been synced.
  Status commit(const std::string& part, std::int64_t step) const;
  // Removes what begin() made.
  void discard(const std::string& part) const;
  // Removes all complete ones but the last `keep` (1 or more).
  Status prune(int keep) const;
  // Removes all complete ones but that of `step`.
  Status keep_only(std::int64_t step) const;

 private:
  Status remove(std::int64_t step) const;

  std::string folder_;
};

}  // namespace gradwire
