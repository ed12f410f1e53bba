#include "adapters/torch/meeting.h"

#include <cstdint>
#include <exception>
#include <vector>

#include "adapters/torch/clock.h"
#include "adapters/torch/failure.h"

namespace gradwire::torch_backend {

namespace {

// What C's callbacks see: the store, and why it last failed.
struct StoreCalls {
  c10::intrusive_ptr<c10d::Store> store;
  std::string failure;
};

int set(void* context, const char* key, const void* value, std::size_t bytes) {
  auto* calls = static_cast<StoreCalls*>(context);
  try {
    const auto* first = static_cast<const std::uint8_t*>(value);
    calls->store->set(key, std::vector<std::uint8_t>(first, first + bytes));
    return 0;
  } catch (const std::exception& error) {
    calls->failure = error.what();
    return 1;
  }
}

int get(void* context, const char* key, double seconds,
        void (*give)(void*, const void*, std::size_t), void* receiver) {
  auto* calls = static_cast<StoreCalls*>(context);
  try {
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::duration<double>(seconds));
    calls->store->wait({key}, std::max(limit, std::chrono::milliseconds(1)));
    const std::vector<std::uint8_t> value = calls->store->get(key);
    give(receiver, value.data(), value.size());
    return 0;
  } catch (const std::exception& error) {
    calls->failure = error.what();
    return 1;
  }
}

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace

Comm meet(const c10::intrusive_ptr<c10d::Store>& store, const std::string& purpose, int rank,
          int size, const GroupOptions& options, std::chrono::milliseconds timeout) {
  const std::int64_t use = store->add("gradwire-uses-" + purpose + std::to_string(rank), 1);
  const std::string job = "torch-" + purpose + std::to_string(use);
  const double seconds = seconds_of(timeout);
  gw_comm_options settings = GW_COMM_OPTIONS_INIT;
  settings.liveness_seconds = options.liveness;
  settings.timeout_seconds = seconds;
  settings.rendezvous_seconds = options.rendezvous > 0 ? options.rendezvous : seconds;
  settings.transport = or_null(options.transport);
  settings.interface_name = or_null(options.interface_name);
  settings.algorithm = or_null(options.algorithm);
  settings.links = or_null(options.links);
  settings.job = job.c_str();
  StoreCalls calls{store, {}};
  const gw_store table{&calls, &set, &get};
  gw_comm* comm = nullptr;
  const gw_status status = gw_init_store(&table, rank, size, &settings, &comm);
  if (status != GW_OK) {
    raise("gradwire: rank " + std::to_string(rank) + " of " + std::to_string(size) +
          " could not join the other ranks: " + gw_last_error() +
          (calls.failure.empty() ? "" : " (the store says: " + calls.failure + ")"));
  }
  return {comm, &gw_comm_free};
}

}  // namespace gradwire::torch_backend
