#include "trainer/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::uint64_t kLongestHeader = 100'000'000;  // the limit of the format's own reader

Status corrupt(const std::string& what) { return Status(Code::kCorruptPayload, what); }

std::string header_of(std::span<const NamedTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::uint64_t offset = 0;
  for (const NamedTensor& named : tensors) {
    const Shape& shape = named.tensor.shape();
    const std::uint64_t end = offset + named.tensor.bytes().size();
    header[named.name] = {{"dtype", "F32"},
                          {"shape", std::vector(shape.dim.begin(), shape.dim.begin() + shape.rank)},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

struct Entry {
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
using Entries = std::map<std::string, Entry>;

std::optional<std::vector<std::uint64_t>> whole_numbers(const nlohmann::json& array) {
  if (!array.is_array()) return std::nullopt;
  std::vector<std::uint64_t> numbers;
  for (const nlohmann::json& item : array) {
    if (!item.is_number_unsigned()) return std::nullopt;
    numbers.push_back(item.get<std::uint64_t>());
  }
  return numbers;
}

Result<Entry> read_entry(const nlohmann::json& object) {
  const auto missing = [](const char* key, const char* wanted) {
    return corrupt(std::string("its ") + key + " is missing or malformed; " + wanted + " wanted");
  };
  if (!object.is_object()) return corrupt("its entry is not an object");
  if (!object.contains("dtype") || !object["dtype"].is_string()) {
    return missing("dtype", "a string");
  }
  const auto& dtype = object["dtype"].get_ref<const std::string&>();
  if (dtype != "F32") return Status(Code::kInvalidArgument, "dtype " + dtype + "; F32 wanted");
  const auto shape = whole_numbers(object.value("shape", nlohmann::json()));
  if (!shape) return missing("shape", "an array of whole numbers");
  const auto range = whole_numbers(object.value("data_offsets", nlohmann::json()));
  if (!range || range->size() != 2 || range->front() > range->back()) {
    return missing("data_offsets", "[BEGIN, END] with BEGIN <= END");
  }
  return Entry{*shape, range->front(), range->back()};
}

// Names and places; the places must tile [0, data_bytes).
Result<Entries> read_header(const std::string& text, std::uint64_t data_bytes) {
  const nlohmann::json header = nlohmann::json::parse(text, nullptr, false);
  if (!header.is_object()) return corrupt("the header is not a JSON object");
  Entries entries;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const auto& [name, object] : header.items()) {
    if (name == "__metadata__") continue;
    auto entry = read_entry(object);
    if (!entry.has_value()) return entry.error().with_context("tensor " + name);
    ranges.emplace_back(entry.value().begin, entry.value().end);
    entries.emplace(name, std::move(entry).value());
  }
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) {
      return corrupt(
          format("data_offsets leave a gap or overlap: a tensor begins at %llu; %llu "
                 "wanted",
                 static_cast<unsigned long long>(begin), static_cast<unsigned long long>(covered)));
    }
    covered = end;
  }
  if (covered != data_bytes) {
    return corrupt(format("%llu bytes of data; %llu, as data_offsets say, wanted",
                          static_cast<unsigned long long>(data_bytes),
                          static_cast<unsigned long long>(covered)));
  }
  return entries;
}

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
    const Entry& entry = found->second;
    const Shape& shape = named.tensor.shape();
    const std::vector<std::uint64_t> wanted(shape.dim.begin(), shape.dim.begin() + shape.rank);
    if (entry.shape != wanted) {
      return Status(Code::kInvalidArgument, "tensor " + named.name + ": shape " +
                                                text_of(entry.shape) + "; " + text_of(wanted) +
                                                " wanted");
    }
    if (entry.end - entry.begin != named.tensor.bytes().size()) {
      return corrupt(format(
          "tensor %s: %llu bytes; %zu, as its shape says, wanted", named.name.c_str(),
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
    return corrupt(format("%zu bytes; at least 8 wanted", bytes.size()));
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  const std::uint64_t after = bytes.size() - sizeof(length);
  const std::uint64_t most = std::min(after, kLongestHeader);
  if (length > most) {
    return corrupt(format("a header of %llu bytes; at most %llu wanted",
                          static_cast<unsigned long long>(length),
                          static_cast<unsigned long long>(most)));
  }
  const std::string header(bytes.data() + sizeof(length), length);
  GW_ASSIGN(const Entries entries, read_header(header, after - length));
  GW_TRY(check_match(entries, tensors));
  for (const NamedTensor& named : tensors) {
    const char* data = bytes.data() + sizeof(length) + length + entries.at(named.name).begin;
    std::memcpy(named.tensor.data(), data, named.tensor.bytes().size());
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
                                              "; f32 wanted");
  }
  GW_ASSIGN(const SavePlace place, place_of(path));
  const std::string header = header_of(tensors);
  const std::uint64_t length = header.size();
  std::ofstream file(place.written, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const NamedTensor& named : tensors) {
    const ByteSpan bytes = named.tensor.bytes();
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
  if (place.written == place.final) return {};  // to open a pipe is to wait for its reader
  const bool opened = std::ofstream(place.written, std::ios::binary | std::ios::app).is_open();
  const int code = errno;
  discard(place);
  return opened ? Status() : cannot_write(path, code);
}

Status load_safetensors(const std::string& path, std::span<const NamedTensor> tensors) {
  return load(path, tensors).with_context(path);
}

}  // namespace gradwire
