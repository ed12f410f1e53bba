// One element after the other, each by itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/launch.h"

namespace gradwire::cuda {

// As many elements as one memory instruction moves of the wider type: 16 bytes.
template <typename T, std::size_t Count>
struct alignas(sizeof(T) * Count) Pack {
  T at[Count];
};

// to[i] = each(to[i], from[i]). With `packed` both begin at 16 bytes, and a thread moves as many at
// a time. `from` may be `to`.
template <typename To, typename From, class Each>
struct MapKernel {
  static constexpr unsigned kThreads = 256;
  static constexpr std::size_t kWider = sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From);
  static constexpr std::int64_t kPack = static_cast<std::int64_t>(16 / kWider);
  using Shared = NothingShared;

  To* to;
  const From* from;
  std::int64_t count;
  bool packed;
  Each each;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t first = block.block() * kThreads + block.thread();
    const std::int64_t stride = block.blocks() * kThreads;
    const std::int64_t packs = packed ? count / kPack : 0;
    for (std::int64_t p = first; p < packs; p += stride) {
      auto into = reinterpret_cast<Pack<To, kPack>*>(to)[p];
      const auto some = reinterpret_cast<const Pack<From, kPack>*>(from)[p];
      for (std::int64_t j = 0; j < kPack; ++j) into.at[j] = each(into.at[j], some.at[j]);
      reinterpret_cast<Pack<To, kPack>*>(to)[p] = into;
    }
    for (std::int64_t i = packs * kPack + first; i < count; i += stride) {
      to[i] = each(to[i], from[i]);
    }
  }
};

inline bool starts_at(const void* address, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

template <typename To, typename From, class Each>
Status map(const char* name, const std::byte* from, std::byte* to, std::int64_t count,
           const Each& each, const Stream& stream) {
  using Kernel = MapKernel<To, From, Each>;
  const bool packed = starts_at(from, 16) && starts_at(to, 16);
  const Kernel kernel{reinterpret_cast<To*>(to), reinterpret_cast<const From*>(from), count, packed,
                      each};
  const std::int64_t items = packed ? count / Kernel::kPack + Kernel::kPack : count;
  const std::int64_t blocks = count == 0 ? 0 : blocks_for(items, Kernel::kThreads);
  return launch(name, kernel, blocks < kMostBlocks ? blocks : kMostBlocks, stream);
}

}  // namespace gradwire::cuda
