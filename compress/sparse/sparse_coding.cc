#include "compress/sparse/sparse_coding.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/elements.h"
#include "compress/contract.h"

namespace gradwire {
namespace {

constexpr IndexCoding kCodings[] = {IndexCoding::kU32, IndexCoding::kBitmap, IndexCoding::kGaps,
                                    IndexCoding::kAuto};

}  // namespace

SpecKey index_key() {
  return {"index", "u32", "encoding of indices: u32, bitmap, gaps or auto (the shortest)"};
}

Result<IndexCoding> read_index_key(const SpecReader& reader) {
  const Result<std::string> text = reader.choice("index", "u32", {"u32", "bitmap", "gaps", "auto"});
  if (!text.has_value()) return text.error();
  for (const IndexCoding coding : kCodings) {
    if (to_string(coding) == text.value()) return coding;
  }
  return IndexCoding::kU32;
}

std::string spec_end(const SparseOptions& options) {
  std::string text;
  if (options.index != IndexCoding::kU32) text += ",index=" + std::string(to_string(options.index));
  if (options.values != nullptr) text += "|" + options.values->spec();
  return text;
}

std::size_t sparse_value_bytes(const SparseOptions& options, std::size_t k, DType dtype) {
  if (options.values == nullptr) return k * size_of(dtype);
  const auto elems = static_cast<std::int64_t>(k);
  const auto format = options.values->open_slices(Shape::vector(elems), {.dtype = dtype});
  GW_CHECK(format.has_value());  // Registry::make() lets elementwise second stages pass alone
  return format.value()->bytes(elems, 0);
}

std::size_t most_pair_bytes(const SparseOptions& options, std::size_t k, std::size_t n,
                            DType dtype) {
  return most_index_bytes(options.index, k, n) + sparse_value_bytes(options, k, dtype);
}

std::size_t most_pair_bytes_up_to(const SparseOptions& options, std::size_t most, std::size_t n,
                                  DType dtype) {
  return most_index_bytes_up_to(options.index, most, n) + sparse_value_bytes(options, most, dtype);
}

ErrorBound bound_with_values(const ErrorBound& first, const SparseOptions& options, std::size_t k) {
  using Kind = ErrorBound::Kind;
  if (options.values == nullptr || k == 0) return first;
  const ErrorBound second = options.values->bound(Shape::vector(static_cast<std::int64_t>(k)));
  if (first.kind == Kind::kVariance && second.kind == Kind::kVariance) {
    return {Kind::kVariance, (1 + first.value) * (1 + second.value) - 1};
  }
  if (options.values->traits().lossless) return first;
  if (first.kind != Kind::kContraction) return {};
  switch (second.kind) {
    case Kind::kContraction: return {Kind::kContraction, first.value * second.value, second.scale};
    case Kind::kVariance:
      if (second.value < 1) return {Kind::kContraction, first.value * (1 - second.value)};
      return {Kind::kContraction, first.value / (1 + second.value), 1 / (1 + second.value)};
    case Kind::kNone: break;
  }
  return {};
}

template <typename T>
Result<SparseCoding<T>> SparseCoding<T>::open(const SparseOptions& options, std::size_t most,
                                              std::int64_t elems,
                                              const Compressor::Placement& where) {
  std::unique_ptr<WireFormat> format;
  if (options.values != nullptr) {
    const Shape shape = Shape::vector(static_cast<std::int64_t>(most));
    GW_ASSIGN(format, options.values->open_slices(shape, where));
  }
  return SparseCoding(options.index, static_cast<std::size_t>(elems), std::move(format), where);
}

template <typename T>
Result<std::size_t> SparseCoding<T>::encode(std::span<const std::uint32_t> index,
                                            std::span<const T> value, std::uint64_t step,
                                            ByteSpan payload) {
  const auto k = static_cast<std::int64_t>(value.size());
  const std::size_t bytes = format_ ? format_->bytes(k, 0) : value.size_bytes();
  GW_TRY(check_room("pairs: payload", payload.size(),
                    most_index_bytes(coding_, index.size(), elems_) + bytes));
  if (index.empty()) return std::size_t{0};
  const std::size_t begin = encode_indices(coding_, index, elems_, payload);
  if (format_ == nullptr) {
    std::memcpy(payload.data() + begin, value.data(), bytes);
    return begin + bytes;
  }
  GW_ASSIGN(const std::size_t wrote, format_->pack(const_view_of(value), slice(where_.rank, step),
                                                   payload.subspan(begin, bytes), {}));
  return begin + wrote;
}

template <typename T>
Status SparseCoding<T>::decode(ConstByteSpan payload, std::size_t k, int rank, std::uint64_t step,
                               Pairs& pairs) {
  pairs.index.resize(k);
  pairs.value.resize(k);
  GW_ASSIGN(const std::size_t begin, decode_indices(coding_, payload, elems_, pairs.index));
  const ConstByteSpan values = payload.subspan(begin);
  if (format_ != nullptr && k > 0) {
    return format_->unpack(values, slice(rank, step), view_of(std::span<T>(pairs.value)), {});
  }
  GW_TRY(check_length("values", values.size(), k * sizeof(T)));
  if (k > 0) std::memcpy(pairs.value.data(), values.data(), values.size());
  return {};
}

template class SparseCoding<float>;
template class SparseCoding<double>;

}  // namespace gradwire
