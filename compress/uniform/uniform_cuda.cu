// minmax and absmax as grids for the kernels of buckets.
#include "compress/cuda/bucket_format.h"
#include "compress/cuda/hadamard_kernels.h"
#include "compress/cuda/rest_of_own.h"
#include "compress/uniform/aside_kernels.h"
#include "compress/uniform/uniform_arithmetic.h"
#include "compress/uniform/uniform_device.h"

namespace gradwire::cuda {
namespace {

constexpr ValueRange<float> value_range(const Magnitude& of) {
  const auto most = std::bit_cast<float>(of.most);
  return {most, most, is_number(most)};
}
constexpr ValueRange<float> value_range(const Range& of) {
  const auto low = std::bit_cast<float>(order_of<float>(of.low));
  const auto high = std::bit_cast<float>(order_of<float>(of.high));
  return {low, high, is_number(low) && is_number(high)};
}

template <bool Symmetric, bool Spikes = false>
struct UniformBuckets {
  using Extent = std::conditional_t<Symmetric, Magnitude, Range>;
  struct Head {
    float base;
    float scale;
  };
  using Coding = cpu::UniformPlace<float>;
  using Meaning = UniformMeaning<float>;
  static constexpr bool kSpikes = Spikes;
  static constexpr int kHeadBytes =
      (Symmetric ? 4 : 8) + (Spikes ? static_cast<int>(kSpikeBytes) : 0);
  static constexpr bool kGuards = true;

  UniformGrid grid;
  std::int64_t bucket;
  int bits;
  bool draws;
  bool guard;

  constexpr Head head_of(const Extent& of) const { return head_in(of); }
  template <class AnyExtent>
  constexpr Head head_in(const AnyExtent& of) const {
    UniformHead<float> head;
    set_grid(grid, value_range(of), head);
    return {head.base, head.scale};
  }
  static constexpr bool finite(const Range& of) { return value_range(of).finite; }
  static constexpr bool is_nan(const Head& head) {
    return std::bit_cast<std::uint32_t>(head.scale) == kNaNScaleBits;
  }
  constexpr void store(const Head& head, std::byte* to) const {
    if (!Symmetric) store_float(to, 0, head.base);
    store_float(to, Symmetric ? 0 : 1, head.scale);
  }
  constexpr Head load(const std::byte* from) const {
    return {Symmetric ? 0.0f : load_float(from, 0), load_float(from, Symmetric ? 0 : 1)};
  }
  constexpr bool coded(const Head& head) const { return head.scale > 0; }
  constexpr Meaning meaning_of(const Head& head) const {
    return gradwire::meaning_of<float>(grid, head.base, head.scale);
  }
  constexpr Coding coding_of(const Head& head) const {
    return place_on(grid, meaning_of(head), head.scale);
  }
  constexpr unsigned code(const Coding& at, float x, unsigned draw) const {
    return draws ? cpu::plain::stochastic_code<float>(at, x, static_cast<std::int32_t>(draw))
                 : cpu::plain::nearest_code<float>(at, x);
  }
  constexpr float value(const Meaning& by, unsigned code) const {
    return by.value(static_cast<std::int32_t>(code));
  }
  constexpr bool sound(const Head& head) const {
    const auto scale = std::bit_cast<std::uint32_t>(head.scale);
    if (scale == kNaNScaleBits) {
      return Symmetric || std::bit_cast<std::uint32_t>(head.base) == kNaNScaleBits;
    }
    return scale < 0x7f800000u && is_number(head.base) &&
           is_number(value(meaning_of(head), static_cast<unsigned>(grid.levels())));
  }
  constexpr bool sound(const Meaning&, unsigned code) const {
    return static_cast<int>(code) <= grid.levels();
  }

  constexpr double excess(const Meaning& by, float x, unsigned code) const {
    return excess_of(by, x, static_cast<std::int32_t>(code));
  }
  // 1 / scale; 0, which shows nothing, where that is not a float like others.
  constexpr float unit(const Meaning& by) const {
    return by.scale > 0x1p-100f && by.scale < 0x1p100f ? 1.0f / by.scale : 0.0f;
  }
  constexpr bool plainly(const Meaning& by, std::int64_t count, float squares) const {
    return plainly_better_than_zeros(by, static_cast<std::size_t>(count), squares);
  }
  constexpr bool surely(const Meaning& by, std::int64_t count, double squares) const {
    return surely_better_than_zeros(by, static_cast<std::size_t>(count), squares);
  }
};

// Of grids with spikes or a transform: a copy of the elements is changed, and coded as it is.
template <class Buckets>
struct AsideOnDevice {
  BucketsOnDevice<Buckets> buckets;
  static constexpr bool kTakesAnyBytes = false;
  static constexpr bool kTakesFeedback = true;

  std::size_t bytes(std::size_t elems, int stage) const { return buckets.bytes(elems, stage); }
  std::int64_t seam(int stage) const { return buckets.seam(stage); }
  std::vector<std::size_t> sections(std::size_t elems, int stage) const {
    return buckets.sections(elems, stage);
  }
  bool refuses(const Source& source) const { return buckets.refuses(source); }
  const Buckets& grid() const { return buckets.grid; }

  Status encode(const SliceKey& key, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    const std::int64_t count = source.count;
    GW_ASSIGN(const Scratch scratch, room_of(count, stream));
    auto* const copy = scratch.as<float>();
    const bool packed =
        starts_at(source.grad, 16) && starts_at(source.residual, 16) && starts_at(source.next, 16);
    if (grid().grid.hadamard) {
      GW_TRY(put_hadamard("encode: transform", source, copy, transform(key, count), false,
                          AllCoded{}, stream));
    } else {
      GW_TRY(launch("encode: copy", AsideCopy{source, packed, copy}, eights(count), stream));
    }
    const AsideHeads<Buckets> heads{copy, count, grid(), wire,
                                    source.next == nullptr ? nullptr : verdict};
    const std::int64_t number = blocks_for(count, grid().bucket);
    GW_TRY(launch("encode: heads", heads, blocks_for(number, AsideHeads<Buckets>::kWarps), stream));
    GW_TRY(buckets.encode_codes(key, {.grad = copy, .count = count}, wire, verdict, stream));
    if constexpr (Buckets::kSpikes) {
      GW_TRY(launch("encode: spikes", SpikeCodes<Buckets>{count, grid(), wire},
                    blocks_for(number, SpikeCodes<Buckets>::kThreads), stream));
    }
    if (source.next == nullptr) return {};
    GW_TRY(put(key, wire, {copy, static_cast<std::size_t>(count)}, verdict, stream));
    return launch("encode: rest", RestOfOwn{source, copy, packed, kBucketNotFinite, verdict},
                  eights(count), stream);
  }

  Status decode(const SliceKey& key, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t* verdict, const Stream& stream) const {
    if (!add) return put(key, wire, dst, verdict, stream);
    const auto count = static_cast<std::int64_t>(dst.size());
    GW_ASSIGN(const Scratch scratch, room_of(count, stream));
    auto* const aside = scratch.as<float>();
    GW_TRY(put(key, wire, {aside, dst.size()}, verdict, stream));
    return launch("decode: add", AsideAdd{aside, count, starts_at(dst.data(), 16), dst.data()},
                  eights(count), stream);
  }

  Status refused(Finding finding) const { return buckets.refused(finding); }
  Status corrupt(Finding finding) const { return buckets.corrupt(finding); }

  static Result<Scratch> room_of(std::int64_t count, const Stream& stream) {
    return Scratch::allocate(static_cast<std::size_t>(count) * sizeof(float), stream);
  }
  static std::int64_t eights(std::int64_t count) {
    return blocks_for(count, kEight * AsideCopy::kThreads);
  }
  HadamardPlaces transform(const SliceKey& key, std::int64_t count) const {
    const Slice& slice = key.slice;
    return HadamardPlaces::of(count, grid().bucket, key.seed, slice.tensor, slice.stage, slice.step,
                              static_cast<std::uint64_t>(slice.first));
  }

  // dst = what a payload says.
  Status put(const SliceKey& key, const std::byte* wire, std::span<float> dst,
             std::uint64_t* verdict, const Stream& stream) const {
    const auto count = static_cast<std::int64_t>(dst.size());
    GW_TRY(buckets.decode(key, wire, false, dst, verdict, stream));
    if constexpr (Buckets::kSpikes) {
      const SpikeValues<Buckets> spikes{wire, count, grid(), dst.data(), verdict};
      GW_TRY(launch("decode: spikes", spikes,
                    blocks_for(blocks_for(count, grid().bucket), SpikeValues<Buckets>::kThreads),
                    stream));
    }
    if (!grid().grid.hadamard) return {};
    return put_hadamard("decode: transform", {.grad = dst.data(), .count = count}, dst.data(),
                        transform(key, count), true, AllCoded{}, stream);
  }
};

template <bool Symmetric, bool Spikes>
Result<std::unique_ptr<WireFormat>> make_uniform_buckets(const std::string& name,
                                                         const UniformGrid& grid,
                                                         const Compressor::Placement& where) {
  using Buckets = UniformBuckets<Symmetric, Spikes>;
  const Buckets buckets{grid, static_cast<std::int64_t>(grid.bucket), grid.bits, grid.stochastic,
                        grid.guard};
  if constexpr (!Spikes) {
    if (!grid.hadamard) return make_device_format(name, BucketsOnDevice<Buckets>{buckets}, where);
  }
  return make_device_format(name, AsideOnDevice<Buckets>{{buckets}}, where);
}

}  // namespace

Result<std::unique_ptr<WireFormat>> make_uniform_format(const std::string& name,
                                                        const UniformGrid& grid,
                                                        const Compressor::Placement& where) {
  if (grid.spikes) {
    return grid.symmetric ? make_uniform_buckets<true, true>(name, grid, where)
                          : make_uniform_buckets<false, true>(name, grid, where);
  }
  return grid.symmetric ? make_uniform_buckets<true, false>(name, grid, where)
                        : make_uniform_buckets<false, false>(name, grid, where);
}

}  // namespace gradwire::cuda
