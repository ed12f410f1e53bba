// Stands in for download.cc in builds without libcurl.
#include "apps/fetch/download.h"

namespace gradwire {

Result<FetchOutcome> fetch_file(const RemoteFile& file, const std::string& folder,
                                const DownloadOptions& /*options*/) {
  const std::string address = file.urls.empty() ? file.name : file.urls.front();
  return Status(Code::kUnsupported,
                "cannot fetch '" + file.name + "' into '" + folder +
                    "': this build has no libcurl (download " + address +
                    " yourself, or install libcurl4-openssl-dev and build again: meson setup "
                    "--reconfigure build && ninja -C build apps/gradwire)");
}

}  // namespace gradwire
