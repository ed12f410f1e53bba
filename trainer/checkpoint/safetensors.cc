#include "trainer/checkpoint/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/text.h"
#include "device/host_copy.h"
#include "trainer/checkpoint/safetensors_header.h"
#include "trainer/corrupt_payload.h"

namespace gradwire {
namespace {

std::string header_of(std::span<const NamedTensor> tensors) {
  std::vector<SafetensorsEntry> entries;
  std::uint64_t offset = 0;
  for (const NamedTensor& named : tensors) {
    const std::uint64_t end = offset + named.tensor.bytes().size();
    entries.push_back({named.name, "F32", safetensors_shape(named.tensor.shape()), offset, end});
    offset = end;
  }
  return write_safetensors_header(entries);
}

using Entries = std::map<std::string, SafetensorsEntry>;

std::string text_of(const std::vector<std::uint64_t>& shape) {
  std::string text;
  for (const std::uint64_t dim : shape) text += (text.empty() ? "" : ", ") + std::to_string(dim);
  return "(" + text + ")";
}

Status check_match(const Entries& entries, std::span<const NamedTensor> tensors) {
  for (const NamedTensor& named : tensors) {
    const auto found = entries.find(named.name);
    if (found == entries.end()) {
      return Status(Code::kInvalidArgument, "it has no tensor " + named.name);
    }
    const SafetensorsEntry& entry = found->second;
    if (entry.dtype != "F32") {
      return Status(Code::kInvalidArgument,
                    "tensor " + named.name + ": dtype " + entry.dtype + " (expected F32)");
    }
    const std::vector<std::uint64_t> wanted = safetensors_shape(named.tensor.shape());
    if (entry.shape != wanted) {
      return Status(Code::kInvalidArgument, "tensor " + named.name + ": shape " +
                                                text_of(entry.shape) + " (expected " +
                                                text_of(wanted) + ")");
    }
    if (entry.end - entry.begin != named.tensor.bytes().size()) {
      return corrupt_payload(format(
          "tensor %s: %llu bytes (expected %zu, as its shape says)", named.name.c_str(),
          static_cast<unsigned long long>(entry.end - entry.begin), named.tensor.bytes().size()));
    }
  }
  if (entries.size() == tensors.size()) return {};
  for (const auto& entry : entries) {
    const auto same = [&](const NamedTensor& named) { return named.name == entry.first; };
    if (std::none_of(tensors.begin(), tensors.end(), same)) {
      return Status(Code::kInvalidArgument,
                    "its tensor " + entry.first + " is not one of the model's");
    }
  }
  return {};
}

Result<std::vector<char>> read_all(const std::string& path) {
  GW_TRY(check_readable(path));
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    const int code = error ? error.value() : errno;
    return Status(Code::kInvalidArgument, std::string("cannot open: ") + std::strerror(code));
  }
  std::vector<char> bytes(size);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) {
    return Status(Code::kInvalidArgument, "cannot be read to its end");
  }
  return bytes;
}

Status load(const std::string& path, std::span<const NamedTensor> tensors) {
  GW_ASSIGN(const std::vector<char> bytes, read_all(path));
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    return corrupt_payload(format("%zu bytes (expected at least 8)", bytes.size()));
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  const std::uint64_t after = bytes.size() - sizeof(length);
  const std::uint64_t most = std::min(after, kLongestSafetensorsHeader);
  if (length > most) {
    return corrupt_payload(format("a header of %llu bytes (expected at most %llu)",
                                  static_cast<unsigned long long>(length),
                                  static_cast<unsigned long long>(most)));
  }
  GW_ASSIGN(std::vector<SafetensorsEntry> found,
            read_safetensors_header({bytes.data() + sizeof(length), length}, after - length));
  Entries entries;
  for (SafetensorsEntry& entry : found) entries.emplace(entry.name, entry);
  GW_TRY(check_match(entries, tensors));
  for (const NamedTensor& named : tensors) {
    const char* data = bytes.data() + sizeof(length) + length + entries.at(named.name).begin;
    const auto* first = reinterpret_cast<const std::byte*>(data);
    GW_TRY(write_from_host({first, named.tensor.bytes().size()}, named.tensor));
  }
  return {};
}

Status cannot_write(const std::string& path, int code) {
  return Status(Code::kInvalidArgument,
                format("cannot write %s: %s", path.c_str(), std::strerror(code)));
}

// Where a file is written and where it ends up. A link keeps pointing where it did; what is no
// regular file (a device, a pipe) is written to as it is, never replaced.
struct SavePlace {
  std::filesystem::path written;
  std::filesystem::path final;
};

Result<SavePlace> place_of(const std::string& path) {
  std::error_code error;
  std::filesystem::path final = path;
  if (std::filesystem::is_symlink(final, error)) {
    final = std::filesystem::weakly_canonical(final, error);
    if (error) return cannot_write(path, error.value());
  }
  const auto type = std::filesystem::status(final, error).type();
  if (type == std::filesystem::file_type::directory) return cannot_write(path, EISDIR);
  if (type == std::filesystem::file_type::fifo && !is_given_pipe(path)) {
    return Status(Code::kInvalidArgument,
                  format("cannot write %s: got a FIFO, expected a file", path.c_str()));
  }
  const bool special = type != std::filesystem::file_type::regular &&
                       type != std::filesystem::file_type::not_found &&
                       type != std::filesystem::file_type::none;
  return SavePlace{special ? final : std::filesystem::path(final.string() + ".part"), final};
}

void discard(const SavePlace& place) {
  std::error_code ignored;
  if (place.written != place.final) std::filesystem::remove(place.written, ignored);
}

}  // namespace

Status save_safetensors(const std::string& path, std::span<const NamedTensor> tensors) {
  for (const NamedTensor& named : tensors) {
    if (named.tensor.dtype() == DType::kF32) continue;
    return Status(Code::kInvalidArgument, "tensor " + named.name + ": dtype " +
                                              std::string(to_string(named.tensor.dtype())) +
                                              " (expected f32)");
  }
  GW_ASSIGN(const SavePlace place, place_of(path));
  const std::string header = header_of(tensors);
  std::ofstream file(place.written, std::ios::binary | std::ios::trunc);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const NamedTensor& named : tensors) {
    const Result<HostCopy> copy = HostCopy::of(named.tensor);
    if (!copy.has_value()) {
      discard(place);
      return copy.error();
    }
    const ConstByteSpan bytes = copy.value().bytes();
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  file.close();
  if (!file) {
    const int code = errno;
    discard(place);
    return cannot_write(path, code);
  }
  if (place.written == place.final) return {};
  std::error_code error;
  std::filesystem::rename(place.written, place.final, error);
  if (!error) return {};
  discard(place);
  return cannot_write(path, error.value());
}

Status check_save_path(const std::string& path) {
  GW_ASSIGN(const SavePlace place, place_of(path));
  if (place.written == place.final) return {};
  const Status opened = open_to_write(place.written, WriteFrom::kEnd).error();
  discard(place);
  return opened;
}

Status load_safetensors(const std::string& path, std::span<const NamedTensor> tensors) {
  return load(path, tensors).with_context(path);
}

}  // namespace gradwire
