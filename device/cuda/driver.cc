#include "device/cuda/driver.h"

#include "device/shared_library.h"

namespace gradwire::cuda {
namespace {

// As cuda.h declares them; a result of 0 is success.
struct Driver {
  int (*current)(void** context) = nullptr;
  int (*set_current)(void* context) = nullptr;
  int (*attribute)(void* value, int attribute, unsigned long long address) = nullptr;
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

}  // namespace gradwire::cuda
