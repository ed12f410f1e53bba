// Which kernel a slice is packed by, and what their findings are called.
#include <numeric>

#include "base/text.h"
#include "compress/cuda/device_format.h"
#include "compress/qsgd/qsgd_device.h"
#include "compress/qsgd/qsgd_warp_kernel.h"

namespace gradwire::cuda {
namespace {

struct QsgdOnDevice {
  QsgdGrid grid;
  static constexpr bool kTakesAnyBytes = false;
  static constexpr bool kTakesFeedback = true;

  std::size_t bytes(std::size_t elems, int) const { return qsgd_bytes(grid, elems); }
  std::int64_t seam(int) const {
    return std::lcm(static_cast<std::int64_t>(grid.bucket), std::int64_t{8});
  }
  std::vector<std::size_t> sections(std::size_t elems, int) const {
    const std::size_t norms = qsgd_norm_bytes(grid, elems);
    return {norms, qsgd_bytes(grid, elems) - norms};
  }
  bool refuses(const Source& source) const { return source.next != nullptr; }

  Status encode(const SliceKey& key, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    const auto bucket = static_cast<std::int64_t>(grid.bucket);
    const RandomStream draws(key.seed, RandomUse::kDither, key.slice.tensor, key.slice.rank,
                             key.slice.stage, key.slice.step);
    const auto first = static_cast<std::uint64_t>(key.slice.first);
    std::byte* const codes = wire + qsgd_norm_bytes(grid, static_cast<std::size_t>(source.count));
    const std::int64_t buckets = blocks_for(source.count, bucket);
    if (!grid.l2 && bucket <= 512 && bucket % 16 == 0 && first % 16 == 0) {
      const bool packed = starts_at(source.grad, 16) && starts_at(source.residual, 16) &&
                          starts_at(source.next, 16);
      const QsgdWarps kernel{source, bucket,  grid.levels, grid.bits,          draws, first, wire,
                             codes,  verdict, packed,      starts_at(codes, 4)};
      const std::int64_t blocks = blocks_for(buckets, QsgdWarps::kThreads / 32);
      return launch("qsgd: encode", kernel, blocks < kMostBlocks ? blocks : kMostBlocks, stream);
    }
    GW_TRY(launch("qsgd: norms", QsgdNorms{source, bucket, grid.l2, wire, verdict},
                  blocks_for(buckets, QsgdNorms::kThreads), stream));
    return launch("qsgd: codes",
                  QsgdCodes{source, bucket, grid.levels, grid.bits, draws, first, wire, codes},
                  blocks_for(blocks_for(source.count, 8), QsgdCodes::kThreads), stream);
  }

  Status decode(const SliceKey&, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t* verdict, const Stream& stream) const {
    const auto count = static_cast<std::int64_t>(dst.size());
    const QsgdValues kernel{wire,
                            wire + qsgd_norm_bytes(grid, dst.size()),
                            static_cast<std::int64_t>(grid.bucket),
                            grid.levels,
                            grid.bits,
                            add,
                            starts_at(dst.data(), 16),
                            dst.data(),
                            count,
                            verdict};
    return launch("qsgd: decode", kernel, blocks_for(blocks_for(count, 8), QsgdValues::kThreads),
                  stream);
  }

  Status refused(Finding finding) const {
    return {Code::kInvalidArgument,
            format("the norm of bucket %llu, from element %llu of the slice on, is not finite in "
                   "fp32 (error feedback needs it to be)",
                   static_cast<unsigned long long>(finding.place),
                   static_cast<unsigned long long>(finding.place * grid.bucket))};
  }
  Status corrupt(Finding finding) const {
    const auto place = static_cast<unsigned long long>(finding.place);
    switch (finding.kind) {
      case kQsgdNorm:
        return {Code::kCorruptPayload,
                format("the norm of bucket %llu is neither finite and >= 0 nor 0x7fc00000", place)};
      case kQsgdLevel:
        return {Code::kCorruptPayload,
                format("the level of element %llu is above %d", place, grid.levels)};
      default: return {Code::kCorruptPayload, "bits behind the last code are set (expected 0)"};
    }
  }
};

}  // namespace

Result<std::unique_ptr<WireFormat>> make_qsgd_format(const QsgdGrid& grid,
                                                     const Compressor::Placement& where) {
  return make_device_format("qsgd", QsgdOnDevice{grid}, where);
}

}  // namespace gradwire::cuda
