#include "device/shared_library.h"

#include <dlfcn.h>

namespace gradwire {

Result<SharedLibrary> SharedLibrary::open(const std::string& what,
                                          const std::vector<std::string>& names) {
  std::string tried;
  for (const std::string& name : names) {
    if (void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return SharedLibrary(handle, name);
    }
    const char* const reason = ::dlerror();
    tried += "; " + std::string(reason == nullptr ? name + ": no reason given" : reason);
  }
  return Status(Code::kUnsupported, what + " cannot be opened" + tried);
}

Result<void*> SharedLibrary::find(const char* symbol) const {
  void* const address = ::dlsym(handle_, symbol);
  if (address != nullptr) return address;
  return Status(Code::kUnsupported, name_ + " has no " + symbol);
}

}  // namespace gradwire
