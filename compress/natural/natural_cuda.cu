// natural's formats on a device: a thread for each eight elements, whose draws are one block where
// the slice begins at one.
#include <type_traits>

#include "base/text.h"
#include "compress/cuda/bucket_grid.h"
#include "compress/cuda/device_format.h"
#include "compress/cuda/eight.h"
#include "compress/natural/natural_arithmetic.h"
#include "compress/natural/natural_device.h"

namespace gradwire::cuda {
namespace {

enum NaturalFinding : unsigned { kNaturalNotFinite = 1, kNaturalFreeBits = 2 };

// Eight codes a thread. `Window`: bits=8, whose codes hold the sign; else signs travel apart.
// Memory: 4 bytes an element in and one and a bit out; with feedback 8 in, and 4 more out.
template <bool Window>
struct NaturalCodes {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  Source source;
  RandomStream draws;
  std::uint64_t first;  // element of the tensor
  std::byte* signs;
  std::byte* codes;
  bool packed;    // all floats begin at 16 bytes
  bool in_words;  // codes begin at 4 bytes
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
    if (begin >= source.count) return;
    const int count = eight_or(begin, source.count);
    float p[kEight];
    Eight::read(source, begin, count, packed, p);
    std::uint64_t all = 0;
    std::uint64_t negative = 0;
    const std::uint64_t e = first + static_cast<std::uint64_t>(begin);
    const auto words = draws.block(e / 8);
    for (int j = 0; j < kEight; ++j) {
      const unsigned draw = e % 8 == 0 ? half_word(words, static_cast<unsigned>(j))
                                       : dither_of(draws, e + static_cast<std::uint64_t>(j));
      const auto bits = std::bit_cast<std::uint32_t>(p[j]);
      const std::uint32_t carry = cpu::natural_carry(draw);
      const unsigned sign = p[j] < 0 ? 1 : 0;
      const unsigned code =
          Window ? cpu::natural_window_code(bits, carry) : cpu::natural_exponent(bits, carry);
      if (j < count) all |= std::uint64_t{code} << (8 * j);
      if (j < count) negative |= std::uint64_t{sign} << j;
      const float own = Window ? cpu::natural_window_value(code) : cpu::natural_value(code, sign);
      p[j] = p[j] - own * source.own_scale;
      if (source.next != nullptr && j < count && !is_finite(p[j])) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kNaturalNotFinite));
      }
    }
    write(begin, count, all, negative, p);
  }

  GW_DEVICE void write(std::int64_t begin, int count, std::uint64_t all, std::uint64_t negative,
                       const float* left) const {
    if (in_words && count == kEight) {
      auto* const to = reinterpret_cast<std::uint32_t*>(codes + begin);
      to[0] = static_cast<std::uint32_t>(all);
      to[1] = static_cast<std::uint32_t>(all >> 32);
    } else {
      store_bytes(codes + begin, all, count);
    }
    if (!Window) store_bytes(signs + begin / 8, negative, 1);
    if (source.next == nullptr) return;
    Eight::write(source.next + begin, count, packed, left);
  }
};

// Eight values a thread.
template <bool Window>
struct NaturalValues {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::byte* signs;
  const std::byte* codes;
  bool add;
  bool packed;
  bool in_words;
  float* dst;
  std::int64_t elems;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
    if (begin >= elems) return;
    const int count = eight_or(begin, elems);
    const bool whole = count == kEight;
    std::uint64_t all = 0;
    if (in_words && whole) {
      const auto* const from = reinterpret_cast<const std::uint32_t*>(codes + begin);
      all = from[0] | std::uint64_t{from[1]} << 32;
    } else {
      all = load_bytes(codes + begin, count);
    }
    const auto negative =
        Window ? 0u : static_cast<std::uint32_t>(load_bytes(signs + begin / 8, 1));
    if (!Window && !whole && negative >> count != 0) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin), kNaturalFreeBits));
    }
    float value[kEight];
    for (int j = 0; j < kEight; ++j) {
      const auto code = static_cast<std::uint32_t>(all >> (8 * j) & 0xffu);
      value[j] =
          Window ? cpu::natural_window_value(code) : cpu::natural_value(code, negative >> j & 1u);
    }
    Eight::put(dst + begin, count, packed, add, value);
  }
};

template <bool Window>
struct NaturalOnDevice {
  static constexpr bool kTakesAnyBytes = Window;
  static constexpr bool kTakesFeedback = true;
  using Kernel = std::conditional_t<Window, NaturalWindowKernel, NaturalKernel>;

  std::size_t sign_bytes(std::size_t elems) const { return Window ? 0 : (elems + 7) / 8; }
  std::size_t bytes(std::size_t elems, int) const { return sign_bytes(elems) + elems; }
  std::int64_t seam(int) const { return Kernel::seam(); }
  std::vector<std::size_t> sections(std::size_t elems, int) const {
    return Window ? std::vector{elems} : std::vector{sign_bytes(elems), elems};
  }
  bool refuses(const Source& source) const { return source.next != nullptr; }

  Status encode(const SliceKey& key, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    const RandomStream draws(key.seed, RandomUse::kDither, key.slice.tensor, key.slice.rank,
                             key.slice.stage, key.slice.step);
    std::byte* const codes = wire + sign_bytes(static_cast<std::size_t>(source.count));
    const bool packed =
        starts_at(source.grad, 16) && starts_at(source.residual, 16) && starts_at(source.next, 16);
    const NaturalCodes<Window> kernel{source,
                                      draws,
                                      static_cast<std::uint64_t>(key.slice.first),
                                      wire,
                                      codes,
                                      packed,
                                      starts_at(codes, 4),
                                      verdict};
    return launch("natural: encode", kernel, blocks_of(source.count), stream);
  }
  Status decode(const SliceKey&, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t* verdict, const Stream& stream) const {
    const std::byte* const codes = wire + sign_bytes(dst.size());
    const auto count = static_cast<std::int64_t>(dst.size());
    const NaturalValues<Window> kernel{
        wire,       codes, add,    starts_at(dst.data(), 16), starts_at(codes, 4),
        dst.data(), count, verdict};
    return launch("natural: decode", kernel, blocks_of(count), stream);
  }
  static std::int64_t blocks_of(std::int64_t elems) {
    return blocks_for(elems, kEight * NaturalCodes<Window>::kThreads);
  }

  Status refused(Finding finding) const {
    return {
        Code::kInvalidArgument,
        format("the residual of element %llu of the slice is not finite (expected finite numbers)",
               static_cast<unsigned long long>(finding.place))};
  }
  Status corrupt(Finding) const {
    return {Code::kCorruptPayload, "unused bits of the last byte of signs are set"};
  }
};

}  // namespace

Result<std::unique_ptr<WireFormat>> make_natural_format(const NaturalKernel&,
                                                        const Compressor::Placement& where) {
  return make_device_format("natural", NaturalOnDevice<false>{}, where);
}
Result<std::unique_ptr<WireFormat>> make_natural_format(const NaturalWindowKernel&,
                                                        const Compressor::Placement& where) {
  return make_device_format("natural", NaturalOnDevice<true>{}, where);
}

}  // namespace gradwire::cuda
