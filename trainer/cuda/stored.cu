// Gradients and parameters that are kept in 16 bits.
#include <cmath>

#include "base/small_floats.h"
#include "trainer/cuda/cuda_kernels.h"
#include "trainer/cuda/each.h"
#include "trainer/cuda/value_scans.h"

namespace gradwire::cuda {
namespace {

struct StoredBf16 {
  static constexpr float wide(std::uint16_t stored) { return float_from_bf16(stored); }
  static constexpr std::uint16_t narrow(float value) { return bf16_from_float(value); }
};

struct StoredFp16 {
  static constexpr float wide(std::uint16_t stored) { return float_from_fp16(stored); }
  static constexpr std::uint16_t narrow(float value) { return fp16_from_float(value); }
};

template <class As>
struct AddElements {
  const float* values;
  std::uint16_t* stored;
  GW_DEVICE void operator()(std::int64_t i) const {
    stored[i] = As::narrow(As::wide(As::narrow(values[i])) + As::wide(stored[i]));
  }
};

template <class As>
struct AddWidened {
  const std::uint16_t* stored;
  float* sums;
  GW_DEVICE void operator()(std::int64_t i) const { sums[i] += As::wide(stored[i]); }
};

template <class As>
struct ReadElements {
  float back;
  float factor;
  const std::uint16_t* stored;
  float* values;
  GW_DEVICE void operator()(std::int64_t i) const {
    const float value = As::wide(stored[i]) * back;
    values[i] = value * factor;
  }
};

template <class As>
struct RoundElements {
  float* values;
  GW_DEVICE void operator()(std::int64_t i) const { values[i] = As::wide(As::narrow(values[i])); }
};

template <class As>
struct WideValues {
  const std::uint16_t* stored;
  GW_DEVICE float operator[](std::int64_t i) const { return As::wide(stored[i]); }
};

template <class As>
class CudaStoredKernels final : public StoredKernels {
 public:
  explicit CudaStoredKernels(const Stream& stream) : stream_(stream) {}

  Status add(In values, NarrowOut stored) override {
    return each("add_stored", stored.size(), AddElements<As>{values.data(), stored.data()});
  }
  Status add_to(NarrowIn stored, Out sums) override {
    return each("add_to_sums", sums.size(), AddWidened<As>{stored.data(), sums.data()});
  }
  Status read(NarrowIn stored, float back, float factor, Out values) override {
    return each("read_stored", values.size(),
                ReadElements<As>{back, factor, stored.data(), values.data()});
  }
  Status round(Out values) override {
    return each("round", values.size(), RoundElements<As>{values.data()});
  }
  Status sum_of_squares(NarrowIn stored, std::span<double> sum) override {
    return sum_squares(WideValues<As>{stored.data()}, static_cast<std::int64_t>(stored.size()),
                       sum.data(), stream_);
  }
  Status find_not_finite(NarrowIn stored, std::span<std::uint32_t> bad) override {
    return look_for_not_finite(WideValues<As>{stored.data()},
                               static_cast<std::int64_t>(stored.size()), bad.data(), stream_);
  }

 private:
  template <class Each>
  Status each(const char* name, std::size_t count, const Each& what) const {
    const OnDevice here(stream_.device);
    GW_TRY(here.status());
    return for_each(name, static_cast<std::int64_t>(count), what, stream_);
  }

  Stream stream_;
};

}  // namespace

std::unique_ptr<StoredKernels> make_stored(Precision precision, const Stream& stream) {
  if (precision == Precision::kBF16) {
    return std::make_unique<CudaStoredKernels<StoredBf16>>(stream);
  }
  return std::make_unique<CudaStoredKernels<StoredFp16>>(stream);
}

}  // namespace gradwire::cuda
