// What DeviceFormat wants of a method with buckets (bucket_grid.h): which kernels its slices take.
#pragma once

#include <vector>

#include "base/text.h"
#include "compress/cuda/bucket_threads.h"
#include "compress/cuda/bucket_warps.h"
#include "compress/cuda/device_format.h"

namespace gradwire::cuda {

template <class Grid>
struct BucketsOnDevice {
  Grid grid;
  static constexpr bool kTakesAnyBytes = false;
  static constexpr bool kTakesFeedback = true;

  std::size_t bytes(std::size_t elems, int) const {
    const auto count = static_cast<std::int64_t>(elems);
    return static_cast<std::size_t>(blocks_for(count, grid.bucket) * Grid::kHeadBytes +
                                    blocks_for(count * grid.bits, 8));
  }
  std::int64_t seam(int) const { return grid.bucket; }
  std::vector<std::size_t> sections(std::size_t elems, int stage) const {
    return {bytes(elems, stage)};
  }
  bool refuses(const Source& source) const { return source.next != nullptr; }

  Status encode(const SliceKey& key, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    const auto first = static_cast<std::uint64_t>(key.slice.first);
    const std::int64_t buckets = blocks_for(source.count, grid.bucket);
    if (grid.bucket <= kWarpBucket && grid.bucket % kSixteen == 0 &&
        (!grid.draws || first % 8 == 0)) {
      const bool packed = starts_at(source.grad, 16) && starts_at(source.residual, 16) &&
                          starts_at(source.next, 16);
      const bool in_words = starts_at(wire, 4) && bucket_bytes(grid) % 4 == 0;
      const BucketWarps<Grid> kernel{source, grid,    draws_of(key), first,
                                     wire,   verdict, packed,        in_words};
      const std::int64_t blocks = blocks_for(buckets, BucketWarps<Grid>::kWarps);
      return launch("encode buckets", kernel, blocks < kMostBlocks ? blocks : kMostBlocks, stream);
    }
    const BucketHeads<Grid> heads{source, grid, wire};
    GW_TRY(launch("encode heads", heads, blocks_for(buckets, BucketHeads<Grid>::kThreads), stream));
    return encode_codes(key, source, wire, verdict, stream);
  }
  // Of buckets whose heads are there.
  Status encode_codes(const SliceKey& key, const Source& source, std::byte* wire,
                      std::uint64_t* verdict, const Stream& stream) const {
    const BucketCodes<Grid> codes{
        source, grid, draws_of(key), static_cast<std::uint64_t>(key.slice.first), wire, verdict};
    return launch("encode codes", codes,
                  blocks_for(EightCodes::groups(grid, source.count), BucketCodes<Grid>::kThreads),
                  stream);
  }
  static RandomStream draws_of(const SliceKey& key) {
    return {key.seed,       RandomUse::kDither, key.slice.tensor,
            key.slice.rank, key.slice.stage,    key.slice.step};
  }

  Status decode(const SliceKey&, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t* verdict, const Stream& stream) const {
    const auto count = static_cast<std::int64_t>(dst.size());
    const BucketValues<Grid> kernel{grid,       wire,  add,    starts_at(dst.data(), 16),
                                    dst.data(), count, verdict};
    return launch("decode buckets", kernel,
                  blocks_for(EightCodes::groups(grid, count), BucketValues<Grid>::kThreads),
                  stream);
  }

  Status refused(Finding finding) const {
    return {Code::kInvalidArgument,
            format("the residual of element %llu of the slice, or of one of the fifteen after it, "
                   "is not finite (expected finite numbers)",
                   static_cast<unsigned long long>(finding.place))};
  }
  Status corrupt(Finding finding) const {
    const auto place = static_cast<unsigned long long>(finding.place);
    switch (finding.kind) {
      case kBucketHead:
        return {
            Code::kCorruptPayload,
            format("the head of bucket %llu stands for no finite values, and not for NaN", place)};
      case kBucketCode:
        return {Code::kCorruptPayload,
                format("the code of element %llu is above the largest that has a meaning", place)};
      default: return {Code::kCorruptPayload, "bits behind a bucket's last code are set"};
    }
  }
};

}  // namespace gradwire::cuda
