// minmax and absmax as grids for the kernels of buckets.
#include "compress/cuda/bucket_format.h"
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

template <bool Symmetric>
struct UniformBuckets {
  using Extent = std::conditional_t<Symmetric, Magnitude, Range>;
  struct Head {
    float base;
    float scale;
  };
  using Coding = cpu::UniformPlace<float>;
  using Meaning = UniformMeaning<float>;
  static constexpr int kHeadBytes = Symmetric ? 4 : 8;
  static constexpr bool kGuards = true;

  UniformGrid grid;
  std::int64_t bucket;
  int bits;
  bool draws;
  bool guard;

  constexpr Head head_of(const Extent& of) const {
    UniformHead<float> head;
    set_grid(grid, value_range(of), head);
    return {head.base, head.scale};
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
  constexpr bool surely(const Meaning& by, std::int64_t count, double squares) const {
    return surely_better_than_zeros(by, static_cast<std::size_t>(count), squares);
  }
};

template <bool Symmetric>
Result<std::unique_ptr<WireFormat>> make_uniform_buckets(const std::string& name,
                                                         const UniformGrid& grid,
                                                         const Compressor::Placement& where) {
  using Buckets = UniformBuckets<Symmetric>;
  const Buckets buckets{grid, static_cast<std::int64_t>(grid.bucket), grid.bits, grid.stochastic,
                        grid.guard};
  return make_device_format(name, BucketsOnDevice<Buckets>{buckets}, where);
}

}  // namespace

Result<std::unique_ptr<WireFormat>> make_uniform_format(const std::string& name,
                                                        const UniformGrid& grid,
                                                        const Compressor::Placement& where) {
  return grid.symmetric ? make_uniform_buckets<true>(name, grid, where)
                        : make_uniform_buckets<false>(name, grid, where);
}

}  // namespace gradwire::cuda
