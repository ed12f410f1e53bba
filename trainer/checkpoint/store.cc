#include "trainer/checkpoint/store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/text.h"
#include "trainer/checkpoint/disk.h"
#include "trainer/checkpoint/manifest.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr int kDigits = 10;
constexpr mode_t kEverybodyMayEnter = 0755;

std::string name_of(std::int64_t step) {
  return format("step-%0*lld", kDigits, static_cast<long long>(step));
}

// Names that name_of() gives, and no others.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = to_int(std::string_view(name).substr(kPrefix.size()));
  if (!step || *step < 0 || name_of(*step) != name) return std::nullopt;
  return step;
}

// What begin() and prune() call folders that are not, or no longer, checkpoints.
bool is_left_over(const std::string& name) {
  return name.starts_with("." + std::string(kPrefix)) &&
         (name.ends_with(".part") || name.ends_with(".old"));
}

// The names in a folder; none where there is no such folder.
Result<std::vector<std::string>> names_in(const std::string& folder) {
  std::error_code error;
  fs::directory_iterator at(folder, error);
  if (error == std::errc::no_such_file_or_directory) return std::vector<std::string>();
  std::vector<std::string> names;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) return disk_error("read", folder, error.value());
  return names;
}

Status remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? disk_error("remove", path, error.value()) : Status();
}

// With every folder above it that is missing; each new name is on the disk on return.
Status make_folders(const fs::path& path) {
  std::error_code error;
  if (path.empty() || fs::is_directory(path, error)) return {};
  GW_TRY(make_folders(path.parent_path()));
  const bool made = ::mkdir(path.c_str(), kEverybodyMayEnter) == 0;
  if (!made && errno != EEXIST) return disk_error("make folder", path.string(), errno);
  if (!fs::is_directory(path, error)) return disk_error("make folder", path.string(), ENOTDIR);
  return sync_folder(path.has_parent_path() ? path.parent_path().string() : ".");
}

}  // namespace

std::string CheckpointStore::path_of(std::int64_t step) const {
  return folder_ + "/" + name_of(step);
}

Result<std::vector<std::int64_t>> CheckpointStore::complete() const {
  GW_ASSIGN(const std::vector<std::string> names, names_in(folder_));
  std::vector<std::int64_t> steps;
  for (const std::string& name : names) {
    std::error_code error;
    const auto step = step_of(name);
    // The manifest is written last: a folder that somebody copies here has it, or is no checkpoint.
    const fs::path manifest = fs::path(folder_) / name / kManifestName;
    if (step && fs::exists(manifest, error)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::string> CheckpointStore::begin(std::int64_t step, std::uint64_t tag) const {
  GW_TRY(make_folders(fs::path(folder_).lexically_normal()));
  GW_ASSIGN(const std::vector<std::string> names, names_in(folder_));
  for (const std::string& name : names) {
    if (is_left_over(name)) GW_TRY(remove_tree(folder_ + "/" + name));
  }
  std::error_code error;
  if (fs::exists(path_of(step), error)) {
    return disk_error("write", path_of(step), EEXIST);
  }
  std::string part = folder_ + "/." + name_of(step) +
                     format(".%016llx.part", static_cast<unsigned long long>(tag));
  if (::mkdir(part.c_str(), kEverybodyMayEnter) != 0) return disk_error("write", part, errno);
  return part;
}

Status CheckpointStore::commit(const std::string& part, std::int64_t step) const {
  GW_TRY(sync_folder(part));
  const std::string path = path_of(step);
  if (std::rename(part.c_str(), path.c_str()) != 0) return disk_error("write", path, errno);
  return sync_folder(folder_);
}

void CheckpointStore::discard(const std::string& part) const { (void)remove_tree(part); }

// Renamed first: no half of a checkpoint ever has a checkpoint's name.
Status CheckpointStore::remove(std::int64_t step) const {
  const std::string old = folder_ + "/." + name_of(step) + ".old";
  GW_TRY(remove_tree(old));
  if (std::rename(path_of(step).c_str(), old.c_str()) != 0) {
    return disk_error("remove", path_of(step), errno);
  }
  return remove_tree(old);
}

Status CheckpointStore::prune(int keep) const {
  GW_ASSIGN(const std::vector<std::int64_t> steps, complete());
  const std::size_t most = static_cast<std::size_t>(std::max(keep, 1));
  for (std::size_t i = 0; i + most < steps.size(); ++i) GW_TRY(remove(steps[i]));
  return {};
}

Status CheckpointStore::keep_only(std::int64_t step) const {
  GW_ASSIGN(const std::vector<std::int64_t> steps, complete());
  for (const std::int64_t one : steps) {
    if (one != step) GW_TRY(remove(one));
  }
  return {};
}

}  // namespace gradwire
