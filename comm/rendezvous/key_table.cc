#include "comm/rendezvous/key_table.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/text.h"
#include "comm/rendezvous/messages.h"

namespace gradwire::rendezvous {

Status check_limits(std::string_view key, std::size_t value_bytes) {
  if (key.empty() || key.size() > kMaxKeyBytes)
    return {Code::kInvalidArgument,
            format("rendezvous: a key of %zu bytes (expected 1..%zu)", key.size(), kMaxKeyBytes)};
  if (value_bytes > kMaxValueBytes)
    return {Code::kInvalidArgument,
            format("rendezvous: %zu bytes for key '%.*s' (expected at most %zu)", value_bytes,
                   static_cast<int>(key.size()), key.data(), kMaxValueBytes)};
  return {};
}

Status written_twice(std::string_view key) {
  return {
      Code::kInvalidArgument,
      format("rendezvous: key '%.*s' was set twice with different bytes (expected once; do two "
             "processes claim the same rank, or do two jobs of one name (GRADWIRE_JOB) share this "
             "store?)",
             static_cast<int>(key.size()), key.data())};
}

Status never_set(std::string_view key, double seconds, std::string_view more) {
  return {Code::kTimedOut,
          format("rendezvous: key '%.*s' was not set within %.1f s%s%.*s",
                 static_cast<int>(key.size()), key.data(), seconds, more.empty() ? "" : "; ",
                 static_cast<int>(more.size()), more.data())};
}

std::string plain_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_';
    name += plain ? std::string(1, c) : format("%%%02x", static_cast<unsigned char>(c));
  }
  return name;
}

Status KeyTable::set(std::string_view key, ConstByteSpan value, Deadline /*deadline*/) {
  GW_TRY(check_limits(key, value.size()));
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found != values_.end()) {
    if (std::ranges::equal(found->second, value)) return {};
    return written_twice(key);
  }
  if (total_bytes_ + key.size() + value.size() > kMaxTotalBytes)
    return {Code::kOutOfMemory,
            format("rendezvous: the store is full (got %zu bytes, expected at most %zu)",
                   total_bytes_, kMaxTotalBytes)};
  total_bytes_ += key.size() + value.size();
  values_.emplace(key, std::vector<std::byte>(value.begin(), value.end()));
  changed_.notify_all();
  return {};
}

std::optional<std::vector<std::byte>> KeyTable::find(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

Result<std::vector<std::byte>> KeyTable::get(std::string_view key, Deadline deadline,
                                             const std::function<std::string()>& more) const {
  GW_TRY(check_limits(key, 0));
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  Map::const_iterator found;
  const bool there = changed_.wait_until(
      lock, deadline, [&] { return (found = values_.find(key)) != values_.end(); });
  if (there) return found->second;
  lock.unlock();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  return never_set(key, waited.count(), more ? more() : "");
}

}  // namespace gradwire::rendezvous

std::shared_ptr<gradwire::KeyValueStore> gradwire::make_inproc_store() {
  return std::make_shared<rendezvous::KeyTable>();
}
