#include "adapters/mpi/recorder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/files.h"

namespace gradwire::mpi {
namespace {

Status failed(const std::string& path, const std::string& why) {
  return {Code::kInvalidArgument, "cannot record to '" + path + "' (" + why +
                                      "); set GRADWIRE_MPI_RECORD to a writable folder"};
}

}  // namespace

void Recorder::add(const Kind& kind, std::chrono::steady_clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  const std::lock_guard lock(mutex_);
  Tally& tally = kinds_[kind];
  tally.least = tally.count == 0 ? seconds : std::min(tally.least, seconds);
  tally.most = std::max(tally.most, seconds);
  tally.seconds += seconds;
  ++tally.count;
}

Status Recorder::write(const std::string& folder, int rank) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return failed(folder, error.message());
  const std::string path = folder + "/rank-" + std::to_string(rank) + ".jsonl";
  auto opened = open_to_write(path);
  if (!opened.has_value()) return failed(path, std::string(opened.error().message()));
  const File file = std::move(opened).value();
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, tally] : kinds_) {
    std::fprintf(file.get(),
                 "{\"operation\":\"%s\",\"bytes\":%lld,\"ranks\":%d,\"carried\":%s,\"count\":%llu,"
                 "\"seconds\":%.9f,\"least_us\":%.3f,\"most_us\":%.3f}\n",
                 name_of(kind.call), static_cast<long long>(kind.bytes), kind.ranks,
                 kind.carried ? "true" : "false", static_cast<unsigned long long>(tally.count),
                 tally.seconds, tally.least * 1e6, tally.most * 1e6);
  }
  if (std::fflush(file.get()) != 0 || std::ferror(file.get()) != 0) {
    return failed(path, std::strerror(errno));
  }
  return {};
}

}  // namespace gradwire::mpi
