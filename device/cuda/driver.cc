#include "device/cuda/driver.h"

#include <atomic>

#include "device/shared_library.h"

namespace gradwire::cuda {
namespace {

// As cuda.h declares them; a result of 0 is success.
struct Driver {
  int (*current)(void** context) = nullptr;
  int (*set_current)(void* context) = nullptr;
  int (*attribute)(void* value, int attribute, unsigned long long address) = nullptr;
  int (*wait_value)(void* stream, unsigned long long address, unsigned value,
                    unsigned flags) = nullptr;
};

const Driver& driver() {
  static const Driver found = [] {
    Driver made;
    const auto library = SharedLibrary::open("CUDA's driver", {"libcuda.so.1"});
    if (!library.has_value()) return made;
    const auto get = library.value().function<decltype(made.current)>("cuCtxGetCurrent");
    const auto set = library.value().function<decltype(made.set_current)>("cuCtxSetCurrent");
    const auto of = library.value().function<decltype(made.attribute)>("cuPointerGetAttribute");
    if (get.has_value() && set.has_value()) {
      made.current = get.value();
      made.set_current = set.value();
    }
    if (of.has_value()) made.attribute = of.value();
    const auto wait = library.value().function<decltype(made.wait_value)>("cuStreamWaitValue32_v2");
    if (wait.has_value()) made.wait_value = wait.value();
    return made;
  }();
  return found;
}

}  // namespace

void* current_context() {
  void* context = nullptr;
  if (driver().current == nullptr || driver().current(&context) != 0) return nullptr;
  return context;
}

void set_current_context(void* context) {
  if (driver().set_current != nullptr) static_cast<void>(driver().set_current(context));
}

bool has_ipc_handle(const void* data) {
  constexpr int kIsLegacyCudaIpcCapable = 10;
  int capable = 0;
  return driver().attribute != nullptr &&
         driver().attribute(&capable, kIsLegacyCudaIpcCapable,
                            reinterpret_cast<unsigned long long>(data)) == 0 &&
         capable != 0;
}

bool wait_for_word(void* stream, const std::uint32_t* word) {
  constexpr unsigned kAtLeast = 0;
  return driver().wait_value != nullptr &&
         driver().wait_value(stream, reinterpret_cast<unsigned long long>(word), 1, kAtLeast) == 0;
}

void set_word(std::uint32_t* word) {
  std::atomic_ref<std::uint32_t>(*word).store(1, std::memory_order_release);
}

int device_of_memory(const void* data) {
  constexpr int kMemoryType = 2;
  constexpr int kDeviceOrdinal = 9;
  constexpr unsigned kOfDevice = 2;
  const auto address = reinterpret_cast<unsigned long long>(data);
  unsigned type = 0;
  int ordinal = -1;
  if (driver().attribute == nullptr || driver().attribute(&type, kMemoryType, address) != 0 ||
      type != kOfDevice || driver().attribute(&ordinal, kDeviceOrdinal, address) != 0) {
    return -1;
  }
  return ordinal;
}

}  // namespace gradwire::cuda
