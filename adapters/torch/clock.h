// PyTorch's times as gradwire's.
#pragma once

#include <chrono>

namespace gradwire::torch_backend {

inline double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace gradwire::torch_backend
