#include "bench/exact_data.h"

#include <algorithm>
#include <cstring>

#include "base/philox.h"
#include "base/small_floats.h"

namespace gradwire::bench {
namespace {

// Elements repeat after so many: a prime, so that data which went astray do not fit.
constexpr std::int64_t kPeriod = 8191;

// Whole numbers up to this are exact, and as large as data need be.
std::int64_t exact_limit(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return 256;
    case DType::kF16: return 2048;
    case DType::kF32: return std::int64_t{1} << 24;
    default: return std::int64_t{1} << 53;
  }
}

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void store(DType dtype, double value, std::byte* at) {
  const auto whole = static_cast<std::int64_t>(value);
  switch (dtype) {
    case DType::kF64: return put(at, value);
    case DType::kF32: return put(at, static_cast<float>(value));
    case DType::kF16: return put(at, fp16_from_float(static_cast<float>(value)));
    case DType::kBF16: return put(at, bf16_from_float(static_cast<float>(value)));
    case DType::kI64: return put(at, whole);
    case DType::kI32: return put(at, static_cast<std::int32_t>(whole));
    case DType::kI8: return put(at, static_cast<std::int8_t>(whole));
    case DType::kU8: return put(at, static_cast<std::uint8_t>(whole));
  }
}

// Calls visit(offset in the tensor, offset in the period, length) for every run of `bytes`
// bytes that lies in one period.
template <typename Visit>
void for_each_stretch(std::size_t bytes, std::size_t width, std::int64_t first,
                      const Visit& visit) {
  const std::size_t period = static_cast<std::size_t>(kPeriod) * width;
  std::size_t at = static_cast<std::size_t>(first % kPeriod) * width;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t length = std::min(bytes - done, period - at);
    visit(done, at, length);
    done += length;
    at = 0;
  }
}

std::int64_t count_different(ConstTensorView tensor, const std::vector<std::byte>& period,
                             std::int64_t first) {
  const std::size_t width = size_of(tensor.dtype());
  const std::byte* data = tensor.data();
  std::int64_t wrong = 0;
  for_each_stretch(tensor.bytes().size(), width, first,
                   [&](std::size_t done, std::size_t at, std::size_t length) {
                     if (std::memcmp(data + done, period.data() + at, length) == 0) return;
                     for (std::size_t i = 0; i < length; i += width) {
                       wrong += std::memcmp(data + done + i, period.data() + at + i, width) != 0;
                     }
                   });
  return wrong;
}

}  // namespace

ExactData::ExactData(DType dtype, ReduceOp op, int ranks)
    : dtype_(dtype),
      op_(op),
      ranks_(ranks),
      most_(std::clamp<std::int64_t>(exact_limit(dtype) / (2 * ranks), 1, 100)),
      reduced_(static_cast<std::size_t>(kPeriod) * size_of(dtype)) {
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    store(dtype, reduction(i), reduced_.data() + static_cast<std::size_t>(i) * size_of(dtype));
  }
}

double ExactData::factor(int rank) const {
  return op_ == ReduceOp::kPreMulSum && rank % 2 == 1 ? 2 : 1;
}

double ExactData::number(int rank, std::int64_t i) const {
  const std::uint64_t draw =
      mix64(static_cast<std::uint64_t>(i) * 65537 + static_cast<std::uint64_t>(rank));
  if (op_ == ReduceOp::kProduct) return rank < 4 && draw % 4 == 0 ? 2 : 1;
  // Of very many ranks only the first few count, or bf16 could not hold the sum.
  if (2 * rank >= exact_limit(dtype_)) return 0;
  return static_cast<double>(draw % static_cast<std::uint64_t>(most_ + 1));
}

double ExactData::reduction(std::int64_t i) const {
  double result = factor(0) * number(0, i);
  for (int r = 1; r < ranks_; ++r) {
    const double value = factor(r) * number(r, i);
    switch (op_) {
      case ReduceOp::kProduct: result *= value; break;
      case ReduceOp::kMax: result = std::max(result, value); break;
      case ReduceOp::kMin: result = std::min(result, value); break;
      default: result += value; break;
    }
  }
  if (op_ != ReduceOp::kMean) return result;
  if (dtype_ == DType::kF64) return result * (1.0 / ranks_);
  return static_cast<float>(result) * static_cast<float>(1.0 / ranks_);
}

ExactData::Bytes ExactData::period_of(int rank) const {
  Bytes period(static_cast<std::size_t>(kPeriod) * size_of(dtype_));
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    store(dtype_, number(rank, i), period.data() + static_cast<std::size_t>(i) * size_of(dtype_));
  }
  return period;
}

void ExactData::fill(TensorView tensor, int rank, std::int64_t first) const {
  const Bytes period = period_of(rank);
  for_each_stretch(tensor.bytes().size(), size_of(dtype_), first,
                   [&](std::size_t done, std::size_t at, std::size_t length) {
                     std::memcpy(tensor.data() + done, period.data() + at, length);
                   });
}

std::int64_t ExactData::count_wrong(ConstTensorView tensor, int rank, std::int64_t first) const {
  return count_different(tensor, period_of(rank), first);
}

std::int64_t ExactData::count_wrong_reduction(ConstTensorView tensor, std::int64_t first) const {
  return count_different(tensor, reduced_, first);
}

}  // namespace gradwire::bench
