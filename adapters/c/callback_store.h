// A rendezvous in a store that the caller has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/c/communicator.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"

namespace gradwire::c {

// The callbacks are called by whoever calls this, until close(). Any later call is kInternal.
class CallbackStore final : public KeyValueStore {
 public:
  CallbackStore(const gw_store& store, std::string prefix)
      : store_(store), prefix_(std::move(prefix)) {}

  Status set(std::string_view key, ConstByteSpan value, Deadline deadline) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;
  void close() { closed_ = true; }

 private:
  Status check_open(const std::string& key) const;

  const gw_store store_;
  const std::string prefix_;
  bool closed_ = false;
};

}  // namespace gradwire::c
