// Files from the web that must be exactly the ones named: resumed, bounded, verified.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

struct RemoteFile {
  std::string name;               // in the folder
  std::vector<std::string> urls;  // tried in order
  std::int64_t bytes = 0;         // exact; more is refused while it arrives
  std::string sha256;             // 64 hex digits
};

struct DownloadOptions {
  double connect_seconds = 15;
  double stall_seconds = 30;  // gives a server up that sends nothing for so long
  int attempts = 3;           // per URL: a broken transfer is resumed
  std::function<void(std::int64_t bytes)> progress;  // bytes there so far; may be empty
};

enum class FetchOutcome : std::uint8_t { kAlreadyThere, kFetched };

// Puts the file into `folder` (which exists). While it arrives it is called NAME.part; a .part left
// by an earlier try is resumed. A file of that name with other contents is an error and stays. The
// error names every URL tried and what went wrong there.
Result<FetchOutcome> fetch_file(const RemoteFile& file, const std::string& folder,
                                const DownloadOptions& options);

}  // namespace gradwire
