// onebit on a device: its groups as buckets of one-bit codes, and as means that signs stand for.
#include <algorithm>

#include "base/text.h"
#include "compress/cuda/bucket_format.h"
#include "compress/cuda/sign_blocks.h"
#include "compress/onebit/onebit_device.h"

namespace gradwire::cuda {
namespace {

struct SideMeans {
  float plus = 0;
  float minus = 0;
};

// A group for the kernels of bucket_threads.h.
struct OnebitBuckets {
  using Head = SideMeans;
  using Coding = SideMeans;
  using Meaning = SideMeans;
  static constexpr int kHeadBytes = 8;

  std::int64_t bucket;
  static constexpr int bits = 1;
  static constexpr bool draws = false;

  constexpr void store(const Head& head, std::byte* to) const {
    store_float(to, 0, head.plus);
    store_float(to, 1, head.minus);
  }
  constexpr Head load(const std::byte* from) const {
    return {load_float(from, 0), load_float(from, 1)};
  }
  constexpr bool coded(const Head&) const { return true; }
  constexpr Coding coding_of(const Head& head) const { return head; }
  constexpr unsigned code(const Coding&, float x, unsigned) const { return x < 0 ? 1 : 0; }
  constexpr Meaning meaning_of(const Head& head) const { return head; }
  constexpr float value(const Meaning& means, unsigned code) const {
    return code != 0 ? -means.minus : means.plus;
  }
  constexpr bool sound(const Head& head) const {  // finite, and no sign
    return std::bit_cast<std::uint32_t>(head.plus) < 0x7f800000u &&
           std::bit_cast<std::uint32_t>(head.minus) < 0x7f800000u;
  }
  constexpr bool sound(const Meaning&, unsigned) const { return true; }
};

// The same for chain_sums.h and sign_blocks.h.
struct OnebitMeans {
  using Head = SideMeans;
  struct Sums {
    double plus = 0;   // of elements at or above zero, and of NaN
    double minus = 0;  // of magnitudes of those below
    std::uint32_t below = 0;
    std::uint32_t unused = 0;
    constexpr void see(float p) {
      const bool negative = p < 0;
      plus += negative ? 0.0 : static_cast<double>(p);
      minus += negative ? -static_cast<double>(p) : 0.0;
      below += negative ? 1 : 0;
    }
    constexpr void join(const Sums& other) {
      plus += other.plus;
      minus += other.minus;
      below += other.below;
    }
    constexpr void widen(double by) {
      plus *= by;
      minus *= by;
    }
  };

  BucketPlaces places;

  static constexpr Sums fold(const Sums (&chains)[kChains]) {
    Sums all = {};
    for (const Sums& chain : chains) all.join(chain);
    return all;
  }
  static constexpr float mean_of(double sum, std::int64_t count) {
    return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count)) + 0.0f;
  }
  constexpr Head head_of(const Sums& sums, std::int64_t count) const {
    return {mean_of(sums.plus, count - sums.below), mean_of(sums.minus, sums.below)};
  }
  static constexpr bool same(const Head& a, const Head& b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  }
  constexpr bool finite(const Head& head) const {
    return is_finite(head.plus) && is_finite(head.minus);
  }
  constexpr std::byte* group(std::byte* wire, std::int64_t b) const {
    return wire + b * bucket_bytes(OnebitBuckets{places.bucket});
  }
  constexpr void store(const Head& head, std::byte* wire, std::int64_t b) const {
    OnebitBuckets{places.bucket}.store(head, group(wire, b));
  }
  constexpr std::byte* signs(std::byte* wire, std::int64_t b) const {
    return group(wire, b) + OnebitBuckets::kHeadBytes;
  }
  static constexpr float value(const Head& head, bool minus) {
    return minus ? -head.minus : head.plus;
  }
};

struct OnebitOnDevice {
  OnebitKernel kernel;
  static constexpr bool kTakesAnyBytes = false;
  static constexpr bool kTakesFeedback = true;

  std::size_t bytes(std::size_t elems, int) const {
    return elems == 0 ? 0 : kernel.bytes(elems, sizeof(float));
  }
  std::int64_t seam(int) const { return kernel.seam(); }
  std::vector<std::size_t> sections(std::size_t elems, int stage) const {
    return {bytes(elems, stage)};
  }
  bool refuses(const Source&) const { return true; }

  BucketsOnDevice<OnebitBuckets> buckets(std::int64_t elems) const {
    return {{static_cast<std::int64_t>(kernel.group_of(static_cast<std::size_t>(elems)))}};
  }
  Status encode(const SliceKey& key, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    const auto groups = buckets(source.count);
    const OnebitMeans means{{source.count, groups.grid.bucket}};
    if (groups.grid.bucket <= kChainChunk) {
      const std::int64_t count = means.places.number();
      const bool in_words =
          starts_at(wire, 4) && (count == 1 || bucket_bytes(groups.grid) % 4 == 0);
      const SignBlocks<OnebitMeans> blocks{
          source, means, wire, verdict, ChainChunk::packed(source, means.places), in_words};
      return launch("onebit: encode", blocks, std::min(count, kMostBlocks), stream);
    }
    GW_TRY(put_chain_heads("onebit: means", source, means, wire, verdict, stream));
    return groups.encode_codes(key, source, wire, verdict, stream);
  }
  Status decode(const SliceKey& key, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t* verdict, const Stream& stream) const {
    const auto groups = buckets(static_cast<std::int64_t>(dst.size()));
    return groups.decode(key, wire, add, dst, verdict, stream);
  }
  Status refused(Finding finding) const {
    return {Code::kInvalidArgument,
            format("an element of the group at %llu is not finite, or their magnitudes add up to "
                   "more than a mean holds (expected finite numbers)",
                   static_cast<unsigned long long>(finding.place))};
  }
  Status corrupt(Finding finding) const { return buckets(1).corrupt(finding); }
};

}  // namespace

Result<std::unique_ptr<WireFormat>> make_onebit_format(const OnebitKernel& kernel,
                                                       const Compressor::Placement& where) {
  return make_device_format("onebit", OnebitOnDevice{kernel}, where);
}

}  // namespace gradwire::cuda
