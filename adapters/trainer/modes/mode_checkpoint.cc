#include "adapters/trainer/modes/mode_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "adapters/trainer/agreement.h"
#include "adapters/trainer/own_momentum.h"
#include "base/text.h"

namespace gradwire {
namespace {

// R of "rank-R/..."; -1 of any other name.
int rank_in(const std::string& name) {
  int rank = -1;
  return std::sscanf(name.c_str(), "rank-%d/", &rank) == 1 ? rank : -1;
}

}  // namespace

Status ModeCheckpoint::check(const CheckpointManifest& manifest) const {
  GW_TRY(check_same_settings(manifest, options_.run));
  const CheckpointPosition& position = manifest.position;
  if (position.step <= options_.steps) return {};
  return {Code::kInvalidArgument,
          format("it is after %lld steps, and the run ends after %lld (expected at least as many)",
                 static_cast<long long>(position.step), static_cast<long long>(options_.steps))};
}

Result<std::optional<ResumedFrom>> ModeCheckpoint::open_last() {
  GW_ASSIGN(from_, checkpoints_.open_last());
  if (!from_) return std::optional<ResumedFrom>();
  GW_TRY(check(from_->manifest()).with_context(from_->path()));
  return std::optional<ResumedFrom>(
      resumed_from(from_->path(), from_->manifest(), options_.run.notes));
}

Status ModeCheckpoint::read(std::span<const ModePart> mine) {
  std::set<std::string> used;
  for (const ModePart& part : mine) {
    used.insert(part.name);
    GW_TRY(from_->read(part.name, part.shape, part.begin, part.values));
  }
  // Nothing that this rank kept, or one that there is no more, is left behind silently.
  for (const auto& [name, tensor] : from_->manifest().tensors) {
    const int rank = rank_in(name);
    const bool gone = rank >= communicator_.size();
    if (!gone && (rank != communicator_.rank() || used.contains(name))) continue;
    if (options_.run.leaves_momentum && is_momentum(name)) continue;
    return {Code::kInvalidArgument,
            from_->path() + ": tensor '" + name + "' has no counterpart in this run"};
  }
  return {};
}

Status ModeCheckpoint::read_all(std::span<const ModePart> mine) {
  const Status status = read(mine);
  const auto wrote = static_cast<int>(from_->manifest().position.mesh.ranks());
  if (status.ok() || wrote == communicator_.size()) return status;
  return status.with_context(
      format("%d ranks wrote it (got %d): a mode whose ranks keep state of their own resumes on as "
             "many ranks as wrote it",
             wrote, communicator_.size()));
}

Result<std::int64_t> ModeCheckpoint::restore(std::span<const ModePart> mine) {
  if (!from_) return 0;
  const Status status = read_all(mine);
  GW_TRY(share_outcome(communicator_, status, {}, options_.run.files.seconds).error());
  const std::int64_t done = from_->manifest().position.step;
  from_.reset();
  return done;
}

bool ModeCheckpoint::lacks(const std::string& part) const {
  if (!from_ || from_->manifest().position.mesh.ranks() != communicator_.size()) return false;
  return !from_->manifest().tensors.contains(part);
}

std::int64_t ModeCheckpoint::next(std::int64_t done) const {
  if (done >= options_.steps) return std::numeric_limits<std::int64_t>::max();
  if (options_.every == 0) return options_.steps;
  return std::min((done / options_.every + 1) * options_.every, options_.steps);
}

Status ModeCheckpoint::save(std::int64_t done, std::span<const ModePart> mine) {
  CheckpointPosition position;
  position.step = done;
  position.consumed_samples = done * options_.run.batch;
  position.seed = options_.run.seed;
  position.mesh.dp = communicator_.size();
  position.learning_rate = options_.lr;
  std::vector<TensorPart> parts;
  for (const ModePart& part : mine) {
    if (part.written)
      parts.push_back({part.name, TensorBox::of(part.shape), part.begin, part.values});
  }
  return checkpoints_.save(position, settings_of(options_.run), parts).with_context("checkpoint");
}

}  // namespace gradwire
