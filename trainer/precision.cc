#include "trainer/precision.h"

#include "base/check.h"
#include "base/small_floats.h"
#include "base/text.h"

namespace gradwire {

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::kF32: return "fp32";
    case Precision::kBF16: return "bf16";
    case Precision::kF16: return "fp16";
  }
  return "?";
}

Result<Precision> parse_precision(std::string_view text) {
  for (const Precision each : {Precision::kF32, Precision::kBF16, Precision::kF16}) {
    if (text == to_string(each)) return each;
  }
  return Status(Code::kInvalidArgument, format("precision '%.*s'; fp32, bf16 or fp16 wanted",
                                               static_cast<int>(text.size()), text.data()));
}

void store(Precision precision, std::span<const float> from, std::span<std::uint16_t> to) {
  GW_CHECK(from.size() == to.size() && precision != Precision::kF32);
  if (precision == Precision::kBF16) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = bf16_from_float(from[i]);
  } else {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = fp16_from_float(from[i]);
  }
}

void load(Precision precision, std::span<const std::uint16_t> from, std::span<float> to) {
  GW_CHECK(from.size() == to.size() && precision != Precision::kF32);
  if (precision == Precision::kBF16) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = float_from_bf16(from[i]);
  } else {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = float_from_fp16(from[i]);
  }
}

Result<StoredCopy> StoredCopy::create(Precision precision, std::size_t elems) {
  StoredCopy copy;
  copy.precision_ = precision;
  if (precision == Precision::kF32) return copy;
  GW_ASSIGN(copy.stored_, Buffer::allocate(elems * sizeof(std::uint16_t)));
  GW_ASSIGN(copy.widened_, Buffer::allocate(elems * sizeof(float)));
  return copy;
}

std::span<const float> StoredCopy::refresh(std::span<const float> master) {
  if (precision_ == Precision::kF32) return master;
  const std::span<std::uint16_t> stored(reinterpret_cast<std::uint16_t*>(stored_.bytes().data()),
                                        master.size());
  const std::span<float> widened(reinterpret_cast<float*>(widened_.bytes().data()), master.size());
  store(precision_, master, stored);
  load(precision_, stored, widened);
  return widened;
}

}  // namespace gradwire
