// The store of ranks that are threads: a table behind a mutex.
#include <chrono>

#include "comm/rendezvous/key_table.h"
#include "gradwire/rendezvous.h"

namespace gradwire {
namespace {

class InprocStore final : public KeyValueStore {
 public:
  Status set(std::string_view key, ConstByteSpan value, Deadline /*deadline*/) override {
    return table_.set(key, value);
  }
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override {
    GW_TRY(rendezvous::check_limits(key, 0));
    const auto start = std::chrono::steady_clock::now();
    if (auto value = table_.wait(key, deadline)) return *std::move(value);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    return rendezvous::never_set(key, waited.count(), {});
  }

 private:
  rendezvous::KeyTable table_;
};

}  // namespace

std::shared_ptr<KeyValueStore> make_inproc_store() { return std::make_shared<InprocStore>(); }

}  // namespace gradwire
