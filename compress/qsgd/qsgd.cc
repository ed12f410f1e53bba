#include "compress/qsgd/qsgd.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/qsgd/qsgd_device.h"
#include "compress/qsgd/qsgd_kernels.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostLevels = 127;  // sign and level in one byte
constexpr std::int64_t kQsgdBucket = 512;
constexpr std::int64_t kMostBucket = 1 << 20;  // the whole tensor under one norm loses everything

int bits_for(int levels) {
  return 1 + static_cast<int>(std::bit_width(static_cast<unsigned>(levels)));
}

class QsgdFormat final : public WireFormat {
 public:
  QsgdFormat(const QsgdGrid& grid, const Compressor::Placement& where)
      : grid_(grid), dtype_(where.dtype), seed_(where.seed) {}

  std::size_t bytes(std::int64_t elems, int) const override {
    return qsgd_bytes(grid_, static_cast<std::size_t>(elems));
  }
  std::int64_t seam(int) const override {
    return std::lcm(static_cast<std::int64_t>(grid_.bucket), std::int64_t{8});
  }
  std::vector<std::size_t> sections(std::int64_t elems, int) const override {
    const auto count = static_cast<std::size_t>(elems);
    const std::size_t norms = sizeof(float) * ((count + grid_.bucket - 1) / grid_.bucket);
    return {norms, qsgd_bytes(grid_, count) - norms};
  }
  Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                           const Stream&) override {
    GW_TRY(check_tensor("qsgd: src", src, src.elems(), dtype_));
    return dtype_ == DType::kF64 ? encode<double>(src, nullptr, slice, wire)
                                 : encode<float>(src, nullptr, slice, wire);
  }
  bool takes_feedback() const override { return true; }
  Result<std::size_t> pack_with_feedback(ConstTensorView src, const Feedback& feedback,
                                         const Slice& slice, ByteSpan wire,
                                         const Stream&) override {
    GW_TRY(check_feedback("qsgd", src, feedback, dtype_));
    return dtype_ == DType::kF64 ? encode<double>(src, &feedback, slice, wire)
                                 : encode<float>(src, &feedback, slice, wire);
  }
  bool folds() const override { return true; }
  Result<std::size_t> fold(std::span<const Addend> addends, std::int64_t elems, const Slice& sum,
                           ByteSpan wire, const Stream&) override {
    return dtype_ == DType::kF64 ? fold_typed<double>(addends, elems, sum, wire)
                                 : fold_typed<float>(addends, elems, sum, wire);
  }
  Status unpack(ConstByteSpan wire, const Slice&, TensorView dst, const Stream&) override {
    return decode(wire, false, dst);
  }
  Status unpack_add(ConstByteSpan wire, const Slice&, TensorView acc, const Stream&) override {
    return decode(wire, true, acc);
  }

 private:
  template <typename T>
  Result<std::size_t> encode(ConstTensorView src, const Feedback* feedback, const Slice& slice,
                             ByteSpan wire) const {
    const std::size_t count = bytes(src.elems(), slice.stage);
    GW_TRY(check_room("qsgd: payload", wire.size(), count));
    if (src.empty()) return count;
    const RandomStream draws = draws_of(slice);
    const Corrected<T> p(elements<T>(src),
                         feedback == nullptr ? nullptr : elements<T>(feedback->residual).data());
    GW_TRY(cpu::qsgd_encode<T>(grid_, draws, static_cast<std::uint64_t>(slice.first), p,
                               feedback == nullptr ? nullptr : elements<T>(feedback->next).data(),
                               static_cast<T>(feedback == nullptr ? 1.0 : feedback->scale),
                               wire.first(count)));
    return count;
  }
  template <typename T>
  Result<std::size_t> fold_typed(std::span<const Addend> addends, std::int64_t elems,
                                 const Slice& sum, ByteSpan wire) const {
    const std::size_t count = bytes(elems, sum.stage);
    GW_TRY(check_room("qsgd: payload", wire.size(), count));
    if (elems == 0) return count;
    if (addends.empty()) return Status(Code::kInvalidArgument, "qsgd: no addends");
    std::vector<QsgdAddend<T>> parts;
    for (const Addend& addend : addends) {
      if (addend.values.empty()) {
        GW_TRY(check_length("qsgd", addend.wire.size(), count));
        parts.push_back({nullptr, addend.wire});
      } else {
        GW_TRY(check_tensor("qsgd: addend", addend.values, elems, dtype_));
        parts.push_back({elements<T>(addend.values).data(), {}});
      }
    }
    GW_TRY(cpu::qsgd_fold<T>(grid_, draws_of(sum), static_cast<std::uint64_t>(sum.first), parts,
                             static_cast<std::size_t>(elems), wire.first(count)));
    return count;
  }
  RandomStream draws_of(const Slice& slice) const {
    return {seed_, RandomUse::kDither, slice.tensor, slice.rank, slice.stage, slice.step};
  }
  Status decode(ConstByteSpan wire, bool add, TensorView dst) const {
    GW_TRY(check_tensor("qsgd: dst", dst, dst.elems(), dtype_));
    GW_TRY(check_length("qsgd", wire.size(), bytes(dst.elems(), 0)));
    if (dst.empty()) return {};
    return dtype_ == DType::kF64 ? cpu::qsgd_decode<double>(grid_, wire, add, elements<double>(dst))
                                 : cpu::qsgd_decode<float>(grid_, wire, add, elements<float>(dst));
  }

  QsgdGrid grid_;
  DType dtype_;
  std::uint64_t seed_;
};

class Qsgd final : public Compressor {
 public:
  Qsgd(const QsgdGrid& grid, bool by_levels) : grid_(grid), by_levels_(by_levels) {}

  std::string spec() const override {
    std::string text =
        by_levels_ ? format("qsgd:levels=%d", grid_.levels) : format("qsgd:bits=%d", grid_.bits);
    if (grid_.l2) text += ",norm=l2";
    if (grid_.bucket != kQsgdBucket) text += format(",bucket=%zu", grid_.bucket);
    return text;
  }
  Traits traits() const override {
    return {.elementwise = true,
            .unbiased = true,
            .needs_error_feedback = false,
            .bitwise_on_all_devices = true};
  }
  // Alistarh et al. 2017, lemma 3.1, for L2; sqrt(n)/(2s) for L-infinity.
  ErrorBound bound(const Shape& shape) const override {
    const double n =
        std::min(static_cast<double>(grid_.bucket), static_cast<double>(shape.elems()));
    const double s = grid_.levels;
    const double omega =
        grid_.l2 ? std::min(n / (s * s), std::sqrt(n) / s) : std::sqrt(n) / (2 * s);
    return {ErrorBound::Kind::kVariance, omega};
  }
  std::size_t max_payload_bytes(const Shape& shape, DType, int, int) const override {
    return qsgd_bytes(grid_, static_cast<std::size_t>(shape.elems()));
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_ASSIGN(auto slices, open_slices(shape, where));
    return make_slice_coder(std::move(slices), shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) return cuda::make_qsgd_format(grid_, where);
    }
    GW_TRY(check_placement("qsgd", where));
    return std::unique_ptr<WireFormat>(std::make_unique<QsgdFormat>(grid_, where));
  }

 private:
  QsgdGrid grid_;
  bool by_levels_;
};

Result<std::unique_ptr<Compressor>> make_qsgd(const Spec& spec) {
  const SpecReader reader(spec);
  if (reader.has("bits") == reader.has("levels")) {
    return Status(Code::kInvalidArgument,
                  "compressor 'qsgd': exactly one of the keys 'bits' and 'levels' must be given");
  }
  GW_ASSIGN(const std::int64_t bits, reader.integer("bits", 8, 2, 8));
  GW_ASSIGN(const std::int64_t levels,
            reader.integer("levels", (1 << (bits - 1)) - 1, 1, kMostLevels));
  const Result<std::string> norm = reader.choice("norm", "linf", {"linf", "l2"});
  if (!norm.has_value()) return norm.error();
  GW_ASSIGN(const std::int64_t bucket, reader.integer("bucket", kQsgdBucket, 1, kMostBucket));
  const QsgdGrid grid{static_cast<int>(levels), bits_for(static_cast<int>(levels)),
                      static_cast<std::size_t>(bucket), norm.value() == "l2"};
  return std::unique_ptr<Compressor>(std::make_unique<Qsgd>(grid, reader.has("levels")));
}

}  // namespace

Registry::Method qsgd_method() {
  return {"qsgd",
          "sign and level of every element, rounded stochastically, one norm per bucket",
          "bits",
          {{"bits", "", "bits per element, 2 to 8: 2^(bits-1) - 1 levels"},
           {"levels", "", "levels instead of bits, 1 to 127"},
           {"norm", "linf", "norm of a bucket: linf or l2 (much larger error)"},
           {"bucket", "512", "elements that share a norm, 1 to 1048576"}},
          make_qsgd};
}

}  // namespace gradwire
