// One file per key in a directory that all ranks see. A file appears whole or not at all: it is
// written under another name and then linked, which fails where somebody was first.
//
//   file = "GWRF" mac:byte[32] value:byte[rest]     mac over key and value, zero without a secret
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/files.h"
#include "base/text.h"
#include "comm/rendezvous/hmac.h"
#include "comm/rendezvous/key_table.h"
#include "comm/rendezvous/messages.h"
#include "comm/rendezvous/socket.h"
#include "gradwire/rendezvous.h"

namespace gradwire {
namespace {

using rendezvous::bytes_of_text;
using rendezvous::Fd;
using rendezvous::Mac;
constexpr char kMagic[4] = {'G', 'W', 'R', 'F'};
constexpr std::size_t kMacAt = sizeof kMagic;
constexpr std::size_t kValueAt = kMacAt + sizeof(Mac);

Status io_error(const char* what, const std::string& path) {
  return {Code::kInvalidArgument,
          format("file rendezvous: cannot %s %s (%s)", what, path.c_str(), std::strerror(errno))};
}

// What would be too long becomes a hash.
std::string file_name(std::string_view key) {
  const std::string name = "k-" + rendezvous::plain_name(key);
  if (name.size() <= 200) return name;
  return "h-" + rendezvous::to_hex(rendezvous::hmac({}, {bytes_of_text(key)}));
}

Status write_whole(const std::string& path, ConstByteSpan bytes) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return io_error("create", path);
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd.get(), bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return io_error("write", path);
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

// The file's bytes; nullopt while there is none.
Result<std::optional<std::vector<std::byte>>> read_whole(const std::string& path) {
  std::error_code failure;
  const auto size = std::filesystem::file_size(path, failure);
  if (failure == std::errc::no_such_file_or_directory)
    return std::optional<std::vector<std::byte>>();
  constexpr auto kMost = kValueAt + rendezvous::kMaxValueBytes;
  if (!failure && (size < kValueAt || size > kMost))
    return Status(Code::kCorruptPayload,
                  format("file rendezvous: %s has %zu bytes (expected %zu..%zu)", path.c_str(),
                         static_cast<std::size_t>(size), kValueAt, kMost));
  const auto text = read_text(path);
  if (!text.has_value()) return text.error().with_context("file rendezvous");
  const ConstByteSpan bytes = bytes_of_text(text.value());
  return std::optional<std::vector<std::byte>>({bytes.begin(), bytes.end()});
}

class FileStore final : public KeyValueStore {
 public:
  FileStore(std::string directory, std::string_view secret)
      : directory_(std::move(directory)), secret_(secret) {}

  Status set(std::string_view key, ConstByteSpan value, Deadline /*deadline*/) override {
    GW_TRY(rendezvous::check_limits(key, value.size()));
    const std::string path = directory_ + "/" + file_name(key);
    const Mac mac = mac_of(key, value);
    std::vector<std::byte> bytes(kValueAt);
    std::memcpy(bytes.data(), kMagic, sizeof kMagic);
    std::copy(mac.begin(), mac.end(), bytes.begin() + kMacAt);
    bytes.insert(bytes.end(), value.begin(), value.end());
    const std::string draft = directory_ + "/draft-" + rendezvous::random_hex(16);
    const Status written = write_whole(draft, bytes);
    const Status published = written.ok() ? publish(draft, path, key, bytes) : written;
    ::unlink(draft.c_str());
    return published;
  }

  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    GW_TRY(rendezvous::check_limits(key, 0));
    const std::string path = directory_ + "/" + file_name(key);
    const auto start = std::chrono::steady_clock::now();
    std::chrono::milliseconds pause(1);
    while (true) {
      GW_ASSIGN(auto bytes, read_whole(path));
      if (bytes) return opened(path, key, *bytes);
      const auto now = std::chrono::steady_clock::now();
      if (now >= deadline) {
        const std::chrono::duration<double> waited = now - start;
        return rendezvous::never_set(key, waited.count(), "looked for " + path);
      }
      std::this_thread::sleep_for(
          std::min<std::chrono::steady_clock::duration>(pause, deadline - now));
      pause = std::min(pause * 2, std::chrono::milliseconds(50));
    }
  }

 private:
  Mac mac_of(std::string_view key, ConstByteSpan value) const {
    if (secret_.empty()) return {};
    return rendezvous::hmac(bytes_of_text(secret_),
                            {bytes_of_text("gradwire file rendezvous"), bytes_of_text(key), value});
  }

  // link(2) never replaces. File systems without hard links get a rename after a look, which is
  // atomic too, but of two writers at the same moment the later one wins.
  static Status publish(const std::string& draft, const std::string& path, std::string_view key,
                        const std::vector<std::byte>& bytes) {
    if (::link(draft.c_str(), path.c_str()) == 0) return {};
    const bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS;
    if (errno != EEXIST && !no_links) return io_error("create", path);
    GW_ASSIGN(const auto existing, read_whole(path));
    if (existing) return *existing == bytes ? Status() : rendezvous::written_twice(key);
    if (::rename(draft.c_str(), path.c_str()) != 0) return io_error("create", path);
    return {};
  }

  Result<std::vector<std::byte>> opened(const std::string& path, std::string_view key,
                                        const std::vector<std::byte>& bytes) const {
    if (bytes.size() < kValueAt || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
      return Status(Code::kCorruptPayload,
                    format("file rendezvous: %s is no rendezvous file", path.c_str()));
    Mac seen{};
    std::copy_n(bytes.begin() + kMacAt, seen.size(), seen.begin());
    std::vector<std::byte> value(bytes.begin() + kValueAt, bytes.end());
    if (!rendezvous::equal(seen, mac_of(key, value)))
      return Status(
          Code::kInvalidArgument,
          format("file rendezvous: %s was not written with this rank's secret", path.c_str()));
    return value;
  }

  std::string directory_;
  std::string secret_;
};

}  // namespace

Result<std::shared_ptr<KeyValueStore>> make_file_store(const std::string& directory,
                                                       std::string_view secret) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  if (failure || ::access(directory.c_str(), R_OK | W_OK | X_OK) != 0)
    return Status(
        Code::kInvalidArgument,
        format("file rendezvous: directory '%s' cannot be used (%s; expected a writable directory)",
               directory.c_str(), failure ? failure.message().c_str() : std::strerror(errno)));
  return std::shared_ptr<KeyValueStore>(std::make_shared<FileStore>(directory, secret));
}

}  // namespace gradwire
