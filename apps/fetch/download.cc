#include "apps/fetch/download.h"

#include <curl/curl.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/fetch/sha256.h"
#include "base/files.h"

namespace gradwire {
namespace {

struct FreeCurl {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
using Handle = std::unique_ptr<CURL, FreeCurl>;

// Where the arriving bytes go.
struct Arrival {
  std::FILE* file;
  std::int64_t there;  // bytes in the file
  std::int64_t limit;
  bool too_long = false;
  bool disk_error = false;
  const DownloadOptions* options;
};

std::size_t on_bytes(char* data, std::size_t size, std::size_t count, void* user) {
  auto& arrival = *static_cast<Arrival*>(user);
  const std::size_t bytes = size * count;
  arrival.too_long = arrival.there + static_cast<std::int64_t>(bytes) > arrival.limit;
  if (arrival.too_long) return 0;
  if (std::fwrite(data, 1, bytes, arrival.file) != bytes) {
    arrival.disk_error = true;
    return 0;
  }
  arrival.there += static_cast<std::int64_t>(bytes);
  if (arrival.options->progress) arrival.options->progress(arrival.there);
  return bytes;
}

void configure(CURL* handle, const std::string& url, Arrival& arrival) {
  const DownloadOptions& options = *arrival.options;
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, 5L);
  curl_easy_setopt(handle, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options.connect_seconds * 1000));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_seconds));
  curl_easy_setopt(handle, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(arrival.there));
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_bytes);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &arrival);
}

std::int64_t size_or_zero(const std::string& path) {
  std::error_code ignored;
  const auto size = std::filesystem::file_size(path, ignored);
  return ignored ? 0 : static_cast<std::int64_t>(size);
}

Status drop(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  return error ? Status(Code::kInvalidArgument, "cannot remove '" + path + "'") : Status();
}

// One transfer that starts where `part` ends. An error leaves in `part` what a later try may use.
Status transfer_once(const RemoteFile& file, const std::string& url, const std::string& part,
                     const DownloadOptions& options) {
  const std::int64_t start = size_or_zero(part);
  if (start == file.bytes) return {};
  GW_ASSIGN(const File out,
            open_to_write(part, start > file.bytes ? WriteFrom::kBeginning : WriteFrom::kEnd));
  Arrival arrival{out.get(), start > file.bytes ? 0 : start, file.bytes, false, false, &options};
  const Handle handle(curl_easy_init());
  std::array<char, CURL_ERROR_SIZE> detail{};
  configure(handle.get(), url, arrival);
  curl_easy_setopt(handle.get(), CURLOPT_ERRORBUFFER, detail.data());
  const CURLcode code = curl_easy_perform(handle.get());
  if (arrival.disk_error || std::fflush(out.get()) != 0) {
    return {Code::kInvalidArgument, "cannot write '" + part + "': disk full?"};
  }
  long http = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &http);
  const bool cannot_resume = code == CURLE_RANGE_ERROR || http == 416;
  if (arrival.too_long || cannot_resume) {  // nothing of it is of use
    GW_TRY(drop(part));
    return {Code::kCorruptPayload,
            arrival.too_long ? "got more than the expected " + std::to_string(file.bytes) + " bytes"
                             : std::string("the server cannot resume; starting again")};
  }
  if (code != CURLE_OK) {
    return {Code::kPeerLost, detail[0] != 0 ? detail.data() : curl_easy_strerror(code)};
  }
  return {};
}

Status verify(const RemoteFile& file, const std::string& part) {
  if (const std::int64_t size = size_or_zero(part); size != file.bytes) {
    return {Code::kPeerLost, "the transfer ended early (got " + std::to_string(size) +
                                 " bytes, expected " + std::to_string(file.bytes) + ")"};
  }
  GW_ASSIGN(const std::string sum, sha256_of_file(part));
  if (sum == file.sha256) return {};
  GW_TRY(drop(part));
  return {Code::kCorruptPayload,
          "wrong checksum (got sha256 " + sum + ", expected " + file.sha256 + ")"};
}

Status fetch_from(const RemoteFile& file, const std::string& url, const std::string& part,
                  const DownloadOptions& options) {
  Status last;
  for (int attempt = 0; attempt < options.attempts; ++attempt) {
    const std::int64_t before = size_or_zero(part);
    last = transfer_once(file, url, part, options);
    if (last.ok()) last = verify(file, part);
    if (last.ok()) return {};
    if (last.code() == Code::kInvalidArgument) return last;  // this machine's fault
    const bool moved = size_or_zero(part) != before;         // a refused connection moves nothing
    if (!moved) return last;
  }
  return last;
}

}  // namespace

Result<FetchOutcome> fetch_file(const RemoteFile& file, const std::string& folder,
                                const DownloadOptions& options) {
  const std::string path = folder + "/" + file.name;
  if (std::filesystem::exists(path)) {
    GW_ASSIGN(const std::string sum, sha256_of_file(path));
    if (sum == file.sha256) return FetchOutcome::kAlreadyThere;
    return Status(Code::kInvalidArgument, "'" + path + "' is another file (got sha256 " + sum +
                                              ", expected " + file.sha256 +
                                              "); move it away and try again");
  }
  const std::string part = path + ".part";
  std::string failures;
  for (const std::string& url : file.urls) {
    const Status status = fetch_from(file, url, part, options);
    if (status.ok()) {
      std::error_code error;
      std::filesystem::rename(part, path, error);
      if (!error) return FetchOutcome::kFetched;
      return Status(Code::kInvalidArgument, "cannot rename '" + part + "': " + error.message());
    }
    if (status.code() == Code::kInvalidArgument) return status;
    failures += (failures.empty() ? "" : "; ") + url + ": " + std::string(status.message());
  }
  return Status(Code::kPeerLost, "cannot fetch '" + file.name + "' (" + failures + ")");
}

}  // namespace gradwire
