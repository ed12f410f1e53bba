// terngrad:shared=false on a device.
#include "base/text.h"
#include "compress/cuda/bucket_grid.h"
#include "compress/cuda/device_format.h"
#include "compress/cuda/scale_means.h"
#include "compress/shared_scale/level_arithmetic.h"
#include "compress/terngrad/trit_device.h"

namespace gradwire::cuda {
namespace {

enum TritFinding : unsigned { kTritScale = 1, kTritByte = 2, kTritNotFinite = 3 };

constexpr int kTrits = static_cast<int>(kTritsPerByte);

// Digits of 0, 1 and -1 are 0, 1 and 2.
constexpr float trit_value(unsigned digit, float scale) {
  return (digit == 2 ? -1.0f : static_cast<float>(digit)) * scale;
}

// Five elements a thread, a byte, under a scale that is there; and what error feedback keeps.
struct TritCodes {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  Source source;
  RandomStream draws;
  std::uint64_t first;  // element of the tensor
  std::byte* wire;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t byte = block.block() * kThreads + block.thread();
    const std::int64_t begin = kTrits * byte;
    if (begin >= source.count) return;
    const float scale = load_float(wire, 0);
    const bool coded = scale > 0;
    const LevelFactors<float> factors =
        coded ? level_factors<float>(scale, 1.0f) : LevelFactors<float>{0, 0};
    const LevelPlace<float> place{std::bit_cast<float>(0x7f800000u), factors.before, factors.by, 1};
    std::uint64_t e = first + static_cast<std::uint64_t>(begin);
    auto words = draws.block(e / 8);
    unsigned value = 0;
    unsigned unit = 1;
    for (int j = 0; j < kTrits; ++j, ++e, unit *= 3) {
      if (begin + j >= source.count) continue;
      if (j > 0 && e % 8 == 0) words = draws.block(e / 8);
      const float p = source.at(begin + j);
      const unsigned draw = half_word(words, static_cast<unsigned>(e % 8));
      const unsigned digit = coded ? (level_code<float>(place, p, draw) + 2u) % 3 : 0;
      value += digit * unit;
      if (source.next == nullptr) continue;
      const float left = p - (scale == scale ? trit_value(digit, scale) : scale) * source.own_scale;
      source.next[begin + j] = left;
      if (!is_finite(left)) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kTritNotFinite));
      }
    }
    wire[sizeof(float) + byte] = static_cast<std::byte>(value);
  }
};

// Values of a byte a thread.
struct TritValues {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::byte* wire;
  bool add;
  float* dst;
  std::int64_t count;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t byte = block.block() * kThreads + block.thread();
    const std::int64_t begin = kTrits * byte;
    if (begin >= count) return;
    const float scale = load_float(wire, 0);
    const bool nothing = scale != scale;
    if (!nothing && !(scale >= 0 && is_finite(scale))) block.least(verdict, word_of(0, kTritScale));
    auto rest = static_cast<unsigned>(wire[sizeof(float) + byte]);
    for (int j = 0; j < kTrits && begin + j < count; ++j, rest /= 3) {
      const float value = nothing ? scale : trit_value(rest % 3, scale);
      const std::int64_t i = begin + j;
      dst[i] = add ? dst[i] + value : value;
    }
    // What is left is above 3^5, or of elements that are not there.
    if (rest != 0) block.least(verdict, word_of(static_cast<std::uint64_t>(begin), kTritByte));
  }
};

struct TritsOnDevice {
  TritKernel kernel;
  static constexpr bool kTakesAnyBytes = false;
  static constexpr bool kTakesFeedback = true;

  std::size_t bytes(std::size_t elems, int) const { return kernel.bytes(elems, sizeof(float)); }
  std::int64_t seam(int) const { return 0; }
  std::vector<std::size_t> sections(std::size_t elems, int stage) const {
    return {elems == 0 ? 0 : bytes(elems, stage)};
  }
  bool refuses(const Source& source) const { return source.next != nullptr; }

  Status encode(const SliceKey& key, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    const ScaleMeans means{{source.count, source.count},
                           kernel.clip == 0 ? ScaleOf::kLargest : ScaleOf::kClipped,
                           kernel.clip,
                           refuses(source)};
    GW_TRY(put_scales("terngrad: scale", source, means, wire, verdict, stream));
    const RandomStream draws(key.seed, RandomUse::kDither, key.slice.tensor, key.slice.rank,
                             key.slice.stage, key.slice.step);
    const TritCodes codes{source, draws, static_cast<std::uint64_t>(key.slice.first), wire,
                          verdict};
    return launch("terngrad: encode", codes, blocks_of(source.count), stream);
  }
  Status decode(const SliceKey&, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t* verdict, const Stream& stream) const {
    const auto count = static_cast<std::int64_t>(dst.size());
    return launch("terngrad: decode", TritValues{wire, add, dst.data(), count, verdict},
                  blocks_of(count), stream);
  }
  static std::int64_t blocks_of(std::int64_t elems) {
    return blocks_for(elems, kTrits * TritCodes::kThreads);
  }

  Status refused(Finding finding) const {
    return {Code::kInvalidArgument, format("an element of the slice from %llu on, or its residual, "
                                           "is not finite (expected finite numbers)",
                                           static_cast<unsigned long long>(finding.place))};
  }
  Status corrupt(Finding finding) const {
    if (finding.kind == kTritScale) {
      return {Code::kCorruptPayload,
              "the scale is negative or infinite (expected 0 or a positive finite number)"};
    }
    return {Code::kCorruptPayload,
            format("the byte of element %llu is no code of as many trits as there are",
                   static_cast<unsigned long long>(finding.place))};
  }
};

}  // namespace

Result<std::unique_ptr<WireFormat>> make_trit_format(const TritKernel& kernel,
                                                     const Compressor::Placement& where) {
  return make_device_format("terngrad", TritsOnDevice{kernel}, where);
}

}  // namespace gradwire::cuda
