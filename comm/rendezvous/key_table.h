// The keys of one job and their values: what every store in one process is made of.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/rendezvous.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::rendezvous {

// kInvalidArgument unless key and value are within the limits of KeyValueStore.
Status check_limits(std::string_view key, std::size_t value_bytes);

// What set() says when the key has other bytes already.
Status written_twice(std::string_view key);

// What get() says when its deadline passed after `seconds`; `more` goes on where not empty.
Status never_set(std::string_view key, double seconds, std::string_view more);

// As part of a file's name: letters, digits, '-' and '_' stand for themselves, the rest as %xx.
std::string plain_name(std::string_view text);

// Thread-safe. Every key is written once; the same bytes again are no error.
class KeyTable final : public KeyValueStore {
 public:
  static constexpr std::size_t kMaxTotalBytes = std::size_t{256} << 20;

  // kOutOfMemory when the table would hold more than kMaxTotalBytes.
  Status set(std::string_view key, ConstByteSpan value, Deadline) override;
  std::optional<std::vector<std::byte>> find(std::string_view key) const;
  // Waits for the key; at the deadline never_set(), with `more()` if given.
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline,
                                     const std::function<std::string()>& more) const;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    return get(key, deadline, {});
  }

 private:
  using Map = std::map<std::string, std::vector<std::byte>, std::less<>>;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Map values_;
  std::size_t total_bytes_ = 0;
};

}  // namespace gradwire::rendezvous
