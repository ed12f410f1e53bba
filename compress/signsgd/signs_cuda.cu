// signsgd's formats on a device: which kernels a slice takes, and what their findings are called.
#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "compress/cuda/device_format.h"
#include "compress/cuda/sign_blocks.h"
#include "compress/signsgd/sign_thread_kernels.h"
#include "compress/signsgd/signs_device.h"
#include "compress/signsgd/vote_count.h"

namespace gradwire::cuda {
namespace {

template <class Kernel>
Status launch_each(const char* name, const Kernel& kernel, std::int64_t items,
                   const Stream& stream) {
  return launch(name, kernel, blocks_for(items, Kernel::kThreads), stream);
}

Status sign_refused(Finding finding) {
  return {Code::kInvalidArgument,
          format("an element of the slice from %llu on is not finite (expected finite numbers)",
                 static_cast<unsigned long long>(finding.place))};
}

Status sign_corrupt(Finding finding) {
  const auto place = static_cast<unsigned long long>(finding.place);
  switch (finding.kind) {
    case kSignScale:
      return {Code::kCorruptPayload,
              format("the scale of bucket %llu is not finite and at least 0", place)};
    case kSignVote:
      return {
          Code::kCorruptPayload,
          format("the vote of element %llu is 3 (expected 0 for a tie, 1 for plus or 2 for minus)",
                 place)};
    default: return {Code::kCorruptPayload, "unused bits of the last byte are set"};
  }
}

// Scales in front of all signs (chain_sums.h, sign_blocks.h).
struct SignMeans {
  using Head = float;
  struct Sums {
    double all = 0;
    constexpr void see(float p) {
      all +=
          static_cast<double>(std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) & 0x7fffffffu));
    }
    constexpr void join(const Sums& other) { all += other.all; }
    constexpr void widen(double by) { all *= by; }
  };

  BucketPlaces places;
  std::int64_t scale_bytes;

  static constexpr Sums fold(const Sums (&chains)[kChains]) {
    Sums all = {};
    for (const Sums& chain : chains) all.join(chain);
    return all;
  }
  constexpr Head head_of(const Sums& sums, std::int64_t count) const {
    return static_cast<float>(sums.all / static_cast<double>(count));
  }
  static constexpr bool same(Head a, Head b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  }
  constexpr bool finite(Head scale) const { return is_finite(scale); }
  constexpr void store(Head scale, std::byte* wire, std::int64_t b) const {
    store_float(wire, b, scale);
  }
  constexpr std::byte* signs(std::byte* wire, std::int64_t b) const {
    return wire + scale_bytes + b * places.bucket / 8;
  }
  static constexpr float value(Head scale, bool minus) { return minus ? -scale : scale; }
};

struct SignsOnDevice {
  std::int64_t bucket;  // 0: the slice
  static constexpr bool kTakesAnyBytes = false;
  static constexpr bool kTakesFeedback = true;

  std::int64_t bucket_of(std::int64_t elems) const { return bucket == 0 ? elems : bucket; }
  std::size_t scale_bytes(std::size_t elems) const {
    const auto count = static_cast<std::int64_t>(elems);
    return count == 0 ? 0 : 4 * static_cast<std::size_t>(blocks_for(count, bucket_of(count)));
  }
  std::size_t bytes(std::size_t elems, int) const { return scale_bytes(elems) + (elems + 7) / 8; }
  std::int64_t seam(int) const { return std::lcm(bucket, std::int64_t{8}); }
  std::vector<std::size_t> sections(std::size_t elems, int) const {
    return {scale_bytes(elems), (elems + 7) / 8};
  }
  bool refuses(const Source&) const { return true; }

  Status encode(const SliceKey&, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    const std::int64_t size = bucket_of(source.count);
    const std::int64_t buckets = blocks_for(source.count, size);
    const SignMeans means{
        {source.count, size},
        static_cast<std::int64_t>(scale_bytes(static_cast<std::size_t>(source.count)))};
    std::byte* const bits = means.signs(wire, 0);
    if (size <= kChainChunk && (size % 8 == 0 || buckets == 1)) {
      const bool in_words = starts_at(bits, 4) && (size % 32 == 0 || buckets == 1);
      const SignBlocks<SignMeans> kernel{
          source, means, wire, verdict, ChainChunk::packed(source, means.places), in_words};
      return launch("signsgd: encode", kernel, std::min(buckets, kMostBlocks), stream);
    }
    GW_TRY(put_chain_heads("signsgd: scales", source, means, wire, verdict, stream));
    return launch_each("signsgd: signs", SignBits{source, size, wire, bits, verdict},
                       blocks_for(source.count, 8), stream);
  }
  Status decode(const SliceKey&, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t* verdict, const Stream& stream) const {
    const auto count = static_cast<std::int64_t>(dst.size());
    const SignValues kernel{wire,
                            wire + scale_bytes(dst.size()),
                            bucket_of(count),
                            add,
                            starts_at(dst.data(), 16),
                            dst.data(),
                            count,
                            verdict};
    return launch_each("signsgd: decode", kernel, blocks_for(count, 8), stream);
  }
  Status refused(Finding finding) const { return sign_refused(finding); }
  Status corrupt(Finding finding) const { return sign_corrupt(finding); }
};

struct VotesOnDevice {
  static constexpr bool kTakesAnyBytes = false;
  static constexpr bool kTakesFeedback = false;

  std::size_t bytes(std::size_t elems, int stage) const {
    return stage == 0 ? (elems + 7) / 8 : (elems + 3) / 4;
  }
  std::int64_t seam(int) const { return 8; }
  std::vector<std::size_t> sections(std::size_t elems, int stage) const {
    return {bytes(elems, stage)};
  }
  bool refuses(const Source&) const { return true; }

  Status encode(const SliceKey& key, const Source& source, std::byte* wire, std::uint64_t* verdict,
                const Stream& stream) const {
    if (key.slice.stage != 0) {
      return launch_each("signsgd: votes", VoteBits{source, wire, verdict},
                         blocks_for(source.count, 4), stream);
    }
    return launch_each("signsgd: signs", SignBits{source, source.count, nullptr, wire, verdict},
                       blocks_for(source.count, 8), stream);
  }
  Status decode(const SliceKey& key, const std::byte* wire, bool add, std::span<float> dst,
                std::uint64_t* verdict, const Stream& stream) const {
    const auto count = static_cast<std::int64_t>(dst.size());
    if (key.slice.stage != 0) {
      return launch_each("signsgd: decode votes", VoteValues{wire, add, dst.data(), count, verdict},
                         blocks_for(count, 4), stream);
    }
    const bool packed = starts_at(dst.data(), 16);
    return launch_each("signsgd: decode",
                       SignValues{nullptr, wire, count, add, packed, dst.data(), count, verdict},
                       blocks_for(count, 8), stream);
  }
  Status refused(Finding finding) const { return sign_refused(finding); }
  Status corrupt(Finding finding) const { return sign_corrupt(finding); }
};

class VoteDeviceFormat final : public DeviceFormat<VotesOnDevice, VotingFormat> {
 public:
  using DeviceFormat::DeviceFormat;

  // Payloads lie on the device: count() looks at them.
  Status check_signs(ConstByteSpan, std::int64_t) const override { return {}; }

  Status count(std::span<const ConstByteSpan> payloads, TensorView mean,
               const Stream& stream) override {
    if (mean.empty()) return {};
    const OnDevice here(device());
    GW_TRY(here.status());
    GW_TRY(verdict().clear(stream));
    GW_TRY(count_votes("signsgd: count", payloads, 0, mean, verdict().word(), stream));
    GW_ASSIGN(const Finding finding, verdict().read(stream));
    if (finding.kind == 0) return {};
    return {Code::kCorruptPayload,
            format("signsgd: payload of rank %llu: unused bits of the last byte are set",
                   static_cast<unsigned long long>(finding.place))};
  }
};

}  // namespace

Result<std::unique_ptr<WireFormat>> make_scaled_sign_format(std::int64_t bucket,
                                                            const Compressor::Placement& where) {
  return make_device_format("signsgd", SignsOnDevice{bucket}, where);
}

Result<std::unique_ptr<VotingFormat>> make_vote_format(const Compressor::Placement& where) {
  GW_TRY(check_device_placement("signsgd", where));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<VotingFormat>(
      std::make_unique<VoteDeviceFormat>("signsgd", VotesOnDevice{}, std::move(verdict), where));
}

}  // namespace gradwire::cuda
