#include "adapters/c/callback_store.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/text.h"

namespace gradwire::c {
namespace {

constexpr std::size_t kMostKey = 256;

using Bytes = std::optional<std::vector<std::byte>>;

extern "C" void take_value(void* receiver, const void* value, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(value);
  static_cast<Bytes*>(receiver)->emplace(first, first + bytes);
}

}  // namespace

Status CallbackStore::check_open(const std::string& key) const {
  if (closed_) return {Code::kInternal, "store: key '" + key + "' is read after initialisation"};
  if (key.size() < kMostKey) return {};
  return {Code::kInvalidArgument,
          format("store: a key of %zu bytes, '", key.size()) + key +
              format("' (expected less than %zu; use a shorter job name)", kMostKey)};
}

Status CallbackStore::set(std::string_view key, ConstByteSpan value, Deadline) {
  const std::string full = prefix_ + std::string(key);
  GW_TRY(check_open(full));
  const int failed = store_.set(store_.context, full.c_str(), value.data(), value.size());
  if (failed == 0) return {};
  return {Code::kInternal, format("store: its set() returned %d for key '", failed) + full + "'"};
}

Result<std::vector<std::byte>> CallbackStore::get(std::string_view key, Deadline deadline) {
  const std::string full = prefix_ + std::string(key);
  GW_TRY(check_open(full));
  const auto start = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(deadline - start).count();
  Bytes value;
  const int failed =
      store_.get(store_.context, full.c_str(), std::max(seconds, 0.0), take_value, &value);
  const double waited =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (failed == 0 && value) return *std::move(value);
  return Status(failed == 0 ? Code::kInternal : Code::kTimedOut,
                "store: key '" + full + "'" +
                    (failed == 0 ? " has no value" : format(": its get() returned %d", failed)) +
                    format(" after %.1f s", waited));
}

}  // namespace gradwire::c
