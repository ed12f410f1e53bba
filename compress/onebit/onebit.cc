#include "compress/onebit/onebit.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "compress/kernel_compressor.h"
#include "compress/onebit/onebit_device.h"
#include "compress/onebit/onebit_kernels.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kDefaultBucket = 4096;
constexpr std::int64_t kWholeSlice = 0;
constexpr std::int64_t kRow = -1;

Result<std::int64_t> read_bucket(const SpecReader& reader) {
  const auto word = reader.choice("bucket", "", {"row", "tensor"});
  if (word.has_value() && word.value() == "row") return kRow;
  if (word.has_value() && word.value() == "tensor") return kWholeSlice;
  const auto bucket =
      reader.integer("bucket", kDefaultBucket, 1, std::numeric_limits<std::int32_t>::max());
  if (bucket.has_value()) return bucket.value();
  return Status(Code::kInvalidArgument, std::string(bucket.error().message()) + ", row or tensor");
}

Result<std::unique_ptr<Compressor>> make_onebit(const Spec& spec) {
  GW_ASSIGN(const std::int64_t bucket, read_bucket(SpecReader(spec)));
  const auto group_of = [bucket](const Shape& shape) {
    return bucket == kRow ? row_or(shape, kDefaultBucket) : bucket;
  };
  std::string text = "onebit";
  if (bucket == kRow) {
    text += ":bucket=row";
  } else if (bucket == kWholeSlice) {
    text += ":bucket=tensor";
  } else if (bucket != kDefaultBucket) {
    text += format(":bucket=%lld", static_cast<long long>(bucket));
  }
  KernelClaims claims{
      "onebit",
      text,
      {.elementwise = true, .bitwise_on_all_devices = true},
      [group_of](const Shape& shape) {
        const std::int64_t elems = std::max<std::int64_t>(1, shape.elems());
        const std::int64_t group = group_of(shape);
        const std::int64_t n = group == kWholeSlice ? elems : std::min(group, elems);
        return ErrorBound{ErrorBound::Kind::kContraction, 1.0 / static_cast<double>(n)};
      }};
  KernelCompressor<OnebitKernel>::OnDevice on_device = nullptr;
  if constexpr (kHaveCuda) on_device = cuda::make_onebit_format;
  return make_kernel_compressor<OnebitKernel>(
      std::move(claims),
      [group_of](const Shape& shape) {
        return OnebitKernel{static_cast<std::size_t>(group_of(shape))};
      },
      on_device);
}

}  // namespace

Registry::Method onebit_method() {
  return {"onebit",
          "one bit per element, and each group's means at or above and below zero (1-bit SGD)",
          "",
          {{"bucket", "4096", "elements that share two means, 1 to 2^31-1, or row, or tensor"}},
          make_onebit};
}

}  // namespace gradwire
