#include <algorithm>

#include "compress/dither.h"
#include "compress/natural/natural_kernels.h"
#include "compress/natural/natural_loops.h"
#include "compress/signsgd/signsgd_kernels.h"
#include "compress/simd/line_writer.h"

namespace gradwire {
namespace {

constexpr std::size_t kNaturalChunk = Dither::kMost;
constexpr std::size_t kAhead = 4096;  // bytes: beyond the page where prefetchers stop

void fetch_ahead(const std::uint8_t* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i + kAhead);
}

// values(first, where they are added or null, where they go) for every chunk of dst.
template <typename T, typename Values>
void decode_chunks(bool add, std::span<T> dst, const Values& values) {
  cpu::LineWriter to(reinterpret_cast<std::byte*>(dst.data()), add ? 0 : dst.size_bytes());
  for (std::size_t at = 0; at < dst.size(); at += kNaturalChunk) {
    std::span<T> chunk = dst.subspan(at, std::min(kNaturalChunk, dst.size() - at));
    if (add) {
      values(at, static_cast<const T*>(chunk.data()), chunk);
      continue;
    }
    chunk = {reinterpret_cast<T*>(to.room()), chunk.size()};
    values(at, static_cast<const T*>(nullptr), chunk);
    to.commit(chunk.size_bytes());
  }
  if (!add) to.finish();
}

}  // namespace

template <typename T>
Status NaturalKernel::encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const {
  Dither dither(key);
  auto* const signs = reinterpret_cast<std::uint8_t*>(wire.data());
  const ByteSpan exponents = wire.subspan((x.size() + 7) / 8);
  cpu::LineWriter to(exponents.data(), exponents.size());
  for (std::size_t at = 0; at < x.size(); at += kNaturalChunk) {
    const auto chunk = x.subspan(at, std::min(kNaturalChunk, x.size() - at));
    cpu::NaturalLoops<T>::kExponents(chunk, dither.of(at, chunk.size()), signs + at / 8,
                                     reinterpret_cast<std::uint8_t*>(to.room()));
    to.commit(chunk.size());
  }
  to.finish();
  return {};
}

template <typename T>
Status NaturalKernel::decode(const SliceKey&, ConstByteSpan wire, bool add,
                             std::span<T> dst) const {
  const std::size_t sign_bytes = (dst.size() + 7) / 8;
  if (!cpu::unused_bits_clear(wire[sign_bytes - 1], dst.size(), 1)) {
    return {Code::kCorruptPayload, "natural: unused bits of the last byte of signs are set"};
  }
  const auto* signs = reinterpret_cast<const std::uint8_t*>(wire.data());
  const auto* exponents = signs + sign_bytes;
  decode_chunks(add, dst, [=](std::size_t at, const T* onto, std::span<T> to) {
    fetch_ahead(exponents + at, to.size());
    cpu::NaturalLoops<T>::kValues(signs + at / 8, exponents + at, onto, to);
  });
  return {};
}

template <typename T>
Status NaturalWindowKernel::encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const {
  Dither dither(key);
  cpu::LineWriter to(wire.data(), wire.size());
  for (std::size_t at = 0; at < x.size(); at += kNaturalChunk) {
    const auto chunk = x.subspan(at, std::min(kNaturalChunk, x.size() - at));
    cpu::NaturalLoops<T>::kWindow(chunk, dither.of(at, chunk.size()),
                                  reinterpret_cast<std::uint8_t*>(to.room()));
    to.commit(chunk.size());
  }
  to.finish();
  return {};
}

template <typename T>
Status NaturalWindowKernel::decode(const SliceKey&, ConstByteSpan wire, bool add,
                                   std::span<T> dst) const {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(wire.data());
  decode_chunks(add, dst, [codes](std::size_t at, const T* onto, std::span<T> to) {
    fetch_ahead(codes + at, to.size());
    cpu::NaturalLoops<T>::kWindowValues(codes + at, onto, to);
  });
  return {};
}

#define GW_NATURAL_KERNELS(Kernel, T)                                                     \
  template Status Kernel::encode<T>(const SliceKey&, std::span<const T>, ByteSpan) const; \
  template Status Kernel::decode<T>(const SliceKey&, ConstByteSpan, bool, std::span<T>) const
GW_NATURAL_KERNELS(NaturalKernel, float);
GW_NATURAL_KERNELS(NaturalKernel, double);
GW_NATURAL_KERNELS(NaturalWindowKernel, float);
GW_NATURAL_KERNELS(NaturalWindowKernel, double);
#undef GW_NATURAL_KERNELS

}  // namespace gradwire
