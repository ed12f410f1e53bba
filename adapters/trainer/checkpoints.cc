#include "adapters/trainer/checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "adapters/trainer/agreement.h"
#include "adapters/trainer/divergence.h"
#include "base/philox.h"
#include "base/text.h"
#include "trainer/checkpoint/disk.h"
#include "trainer/checkpoint/part_list.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;

// A new one and the one before: nobody has gone on from the new one yet.
constexpr int kUntilProved = 2;

// Of this attempt alone: ranks of a job that died a moment ago may still be writing to theirs.
std::uint64_t fresh_tag() {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return mix64(mix64(static_cast<std::uint64_t>(now)) ^ static_cast<std::uint64_t>(::getpid()));
}

// A rank on another host may have written to another host's disk.
Status check_arrived(const std::string& folder, const CheckpointFile& file, std::size_t rank) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(folder + "/" + file.name, error);
  if (!error && bytes == file.bytes) return {};
  return {Code::kInvalidArgument, format("rank %zu wrote %llu bytes of %s, and rank 0 does not see "
                                         "them in %s (expected a folder that all ranks share)",
                                         rank, static_cast<unsigned long long>(file.bytes),
                                         file.name.c_str(), folder.c_str())};
}

}  // namespace

void Checkpoints::tell(std::string_view place) const {
  if (options_.observer) options_.observer(place);
}

// Rank 0 makes the folder; every rank's path of it.
Result<std::string> Checkpoints::begin(std::int64_t step) {
  Status made;
  std::string name;
  if (communicator_.rank() == 0) {
    auto part = store_.begin(step, fresh_tag());
    made = part.error();
    if (part.has_value()) {
      name = fs::path(part.value()).filename().string();
      made = store_.prune(options_.keep);
      if (!made.ok()) store_.discard(part.value());
    }
  }
  GW_ASSIGN(const std::vector<std::string> names,
            share_outcome(communicator_, made, name, options_.seconds));
  return store_.folder() + "/" + names[0];
}

Status Checkpoints::write_manifest_file(const std::string& part, CheckpointManifest manifest,
                                        std::span<const std::string> lists) {
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    if (lists[rank].empty()) continue;  // it had nothing to write
    GW_ASSIGN(const PartList list, read_part_list(lists[rank]));
    GW_TRY(check_arrived(part, list.file, rank));
    GW_TRY(add_file(manifest, list));
  }
  for (const auto& [name, tensor] : manifest.tensors) GW_TRY(check_slices(name, tensor));
  GW_ASSIGN(DiskFile file, DiskFile::create(part + "/" + std::string(kManifestName)));
  GW_TRY(file.write(write_manifest(manifest)));
  tell("manifest written");
  GW_TRY(file.finish());
  tell("manifest synced");
  return {};
}

// Rank 0, when all files are on the disk.
Status Checkpoints::finish(const std::string& part, const CheckpointManifest& manifest,
                           std::span<const std::string> lists) {
  GW_TRY(write_manifest_file(part, manifest, lists));
  GW_TRY(store_.commit(part, manifest.position.step));
  tell("renamed");
  return store_.prune(std::max(options_.keep, kUntilProved));
}

Status Checkpoints::settle() {
  return communicator_.rank() == 0 ? store_.prune(options_.keep) : Status();
}

Status Checkpoints::keep_only(std::int64_t step) {
  return communicator_.rank() == 0 ? store_.keep_only(step) : Status();
}

Status Checkpoints::save(const CheckpointPosition& position,
                         const std::map<std::string, std::string>& settings,
                         std::span<const TensorPart> mine) {
  const bool first = communicator_.rank() == 0;
  GW_TRY(check_mesh(position.mesh, communicator_.size()));
  const Status finite =
      share_outcome(communicator_, check_model(mine), {}, options_.seconds).error();
  diverged_ = finite.code() == Code::kInvalidArgument;  // what is lost on the way has other codes
  GW_TRY(finite);
  GW_ASSIGN(const std::string part, begin(position.step));
  tell("folder made");
  Status outcome;
  std::string list;
  if (!mine.empty()) {
    auto written = write_tensor_file(
        part, "rank-" + std::to_string(communicator_.rank()) + ".safetensors",
        coordinates_of(position.mesh, communicator_.rank()), mine, options_.observer);
    outcome = written.error();
    if (written.has_value()) list = write_part_list(written.value());
  }
  auto lists = share_outcome(communicator_, outcome, list, options_.seconds);
  outcome = lists.error();
  if (first && outcome.ok()) {
    CheckpointManifest manifest;
    manifest.position = position;
    manifest.settings = settings;
    manifest.written_by = options_.written_by;
    outcome = finish(part, manifest, lists.value());
  }
  if (first && !outcome.ok()) store_.discard(part);
  if (!lists.has_value()) return outcome;  // the same everywhere
  tell("about to end");
  return share_outcome(communicator_, outcome, {}, options_.seconds).error();
}

Result<std::optional<std::int64_t>> Checkpoints::last_step() {
  Status looked;
  std::string last;
  if (communicator_.rank() == 0) {
    const auto steps = store_.complete();
    looked = steps.error();
    if (steps.has_value() && !steps.value().empty()) last = std::to_string(steps.value().back());
  }
  GW_ASSIGN(const std::vector<std::string> found,
            share_outcome(communicator_, looked, last, options_.seconds));
  return to_int(found[0]);
}

Result<std::optional<CheckpointReader>> Checkpoints::open_last() {
  GW_ASSIGN(const std::optional<std::int64_t> step, last_step());
  if (!step) return std::optional<CheckpointReader>();
  auto reader = CheckpointReader::open(store_.path_of(*step));
  GW_TRY(share_outcome(communicator_, reader.error(), {}, options_.seconds).error());
  return std::optional<CheckpointReader>(std::move(reader).value());
}

}  // namespace gradwire
