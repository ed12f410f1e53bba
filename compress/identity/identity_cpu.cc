#include "base/elements.h"
#include "compress/identity/identity_kernels.h"
#include "compress/little_endian.h"

namespace gradwire::cpu {
namespace {

template <typename T>
void add(const std::byte* wire, std::span<T> acc) {
  T* to = acc.data();
  const std::size_t count = acc.size();
  for (std::size_t i = 0; i < count; ++i) to[i] += load_le<T>(wire, i);
}

}  // namespace

void add_elements(ConstByteSpan wire, TensorView acc) {
  if (acc.empty()) return;
  if (acc.dtype() == DType::kF64) {
    add(wire.data(), elements<double>(acc));
  } else {
    add(wire.data(), elements<float>(acc));
  }
}

}  // namespace gradwire::cpu
