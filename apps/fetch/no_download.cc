// Stands in for download.cc in builds without libcurl.
#include "apps/fetch/download.h"

namespace gradwire {

Result<FetchOutcome> fetch_file(const RemoteFile& file, const std::string& folder,
                                const DownloadOptions& /*options*/) {
  return Status(Code::kUnsupported, "cannot fetch '" + file.name + "' into '" + folder +
                                        "': this build has no libcurl (install "
                                        "libcurl4-openssl-dev and configure again)");
}

}  // namespace gradwire
