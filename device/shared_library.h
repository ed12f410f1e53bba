// Libraries that are opened when they are needed first, so that a program starts, and runs all that
// does not need them, where they are not.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// Stays open until the process ends: what a library has started may outlive any object. Copies
// freely; any thread may use it.
class SharedLibrary {
 public:
  // The first of `names` (file names, which the system looks for in its own places, or paths) that
  // opens. kUnsupported, naming `what` and each name with its reason, if none does.
  static Result<SharedLibrary> open(const std::string& what, const std::vector<std::string>& names);

  // kUnsupported, naming the library, if it has no such symbol. Function: a pointer to one.
  template <typename Function>
  Result<Function> function(const char* symbol) const {
    GW_ASSIGN(void* const address, find(symbol));
    return reinterpret_cast<Function>(address);
  }
  // As it was opened.
  const std::string& name() const { return name_; }

 private:
  SharedLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  Result<void*> find(const char* symbol) const;

  void* handle_;
  std::string name_;
};

}  // namespace gradwire
