#include "trainer/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "trainer/corrupt_payload.h"

namespace gradwire {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 8> kNames{{{DType::kF64, "F64"},
                                                                    {DType::kF32, "F32"},
                                                                    {DType::kF16, "F16"},
                                                                    {DType::kBF16, "BF16"},
                                                                    {DType::kI64, "I64"},
                                                                    {DType::kI32, "I32"},
                                                                    {DType::kI8, "I8"},
                                                                    {DType::kU8, "U8"}}};

std::optional<std::vector<std::uint64_t>> whole_numbers(const nlohmann::json& array) {
  if (!array.is_array()) return std::nullopt;
  std::vector<std::uint64_t> numbers;
  for (const nlohmann::json& item : array) {
    if (!item.is_number_unsigned()) return std::nullopt;
    numbers.push_back(item.get<std::uint64_t>());
  }
  return numbers;
}

Result<SafetensorsEntry> read_entry(const std::string& name, const nlohmann::json& object) {
  const auto missing = [](const char* key, const char* wanted) {
    return corrupt_payload(std::string("its ") + key + " is missing or malformed (expected " +
                           wanted + ")");
  };
  if (!object.is_object()) return corrupt_payload("its entry is not an object");
  if (!object.contains("dtype") || !object["dtype"].is_string()) {
    return missing("dtype", "a string");
  }
  const auto shape = whole_numbers(object.value("shape", nlohmann::json()));
  if (!shape) return missing("shape", "an array of whole numbers");
  const auto range = whole_numbers(object.value("data_offsets", nlohmann::json()));
  if (!range || range->size() != 2 || range->front() > range->back()) {
    return missing("data_offsets", "[BEGIN, END] with BEGIN <= END");
  }
  return SafetensorsEntry{name, object["dtype"].get<std::string>(), *shape, range->front(),
                          range->back()};
}

Status check_tiling(std::span<const SafetensorsEntry> entries, std::uint64_t data_bytes) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const SafetensorsEntry& entry : entries) ranges.emplace_back(entry.begin, entry.end);
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) {
      return corrupt_payload(
          format("data_offsets leave a gap or overlap: a tensor begins at %llu (expected %llu)",
                 static_cast<unsigned long long>(begin), static_cast<unsigned long long>(covered)));
    }
    covered = end;
  }
  if (covered == data_bytes) return {};
  return corrupt_payload(format("%llu bytes of data (expected %llu, as data_offsets say)",
                                static_cast<unsigned long long>(data_bytes),
                                static_cast<unsigned long long>(covered)));
}

}  // namespace

std::string_view safetensors_name(DType type) {
  for (const auto& [known, name] : kNames) {
    if (known == type) return name;
  }
  return {};
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  for (const auto& [type, known] : kNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

std::vector<std::uint64_t> safetensors_shape(const Shape& shape) {
  return {shape.dim.begin(), shape.dim.begin() + shape.rank};
}

std::string write_safetensors_header(std::span<const SafetensorsEntry> entries) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const SafetensorsEntry& entry : entries) {
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

Result<std::vector<SafetensorsEntry>> read_safetensors_header(std::string_view text,
                                                              std::uint64_t data_bytes) {
  const nlohmann::json header = nlohmann::json::parse(text, nullptr, false);
  if (!header.is_object()) return corrupt_payload("the header is not a JSON object");
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, object] : header.items()) {
    if (name == "__metadata__") continue;
    auto entry = read_entry(name, object);
    if (!entry.has_value()) return entry.error().with_context("tensor " + name);
    entries.push_back(std::move(entry).value());
  }
  GW_TRY(check_tiling(entries, data_bytes));
  return entries;
}

}  // namespace gradwire
