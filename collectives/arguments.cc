#include "collectives/arguments.h"

#include <string>

#include "base/text.h"

namespace gradwire {
namespace {

Status refuse(std::string_view name, const std::string& why) {
  return {Code::kInvalidArgument, std::string(name) + ": " + why};
}
long long wide(std::int64_t value) { return static_cast<long long>(value); }

}  // namespace

Status check_host(std::string_view name, Device device) {
  if (device.space != MemorySpace::kCuda) return {};
  return {Code::kUnsupported, std::string(name) + ": a tensor in CUDA memory (host memory wanted)"};
}

Status check_reduction(std::string_view name, DType dtype, ReduceOp op) {
  const bool integer =
      dtype == DType::kI64 || dtype == DType::kI32 || dtype == DType::kI8 || dtype == DType::kU8;
  if (op != ReduceOp::kMean || !integer) return {};
  return refuse(name, "a mean of " + std::string(to_string(dtype)) + " (a floating type wanted)");
}

Status check_shapes(std::string_view name, ConstTensorView in, std::int64_t in_factor,
                    ConstTensorView out, std::int64_t out_factor) {
  if (in.dtype() != out.dtype()) {
    return refuse(name, std::string(to_string(in.dtype())) + " into " +
                            std::string(to_string(out.dtype())) + " (one type wanted)");
  }
  if (in_factor * in.elems() == out_factor * out.elems()) return {};
  return refuse(name, format("%lld elements in, %lld out (%lld wanted)", wide(in.elems()),
                             wide(out.elems()), wide(in_factor * in.elems() / out_factor)));
}

Status check_lengths(std::string_view name, std::string_view which,
                     std::span<const std::int64_t> lengths, int size, std::size_t bytes) {
  if (lengths.size() != static_cast<std::size_t>(size)) {
    return refuse(name, format("%zu lengths of %s (%d wanted)", lengths.size(),
                               std::string(which).c_str(), size));
  }
  std::int64_t sum = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0) return refuse(name, format("a length of %lld bytes", wide(length)));
    sum += length;
  }
  if (static_cast<std::size_t>(sum) == bytes) return {};
  return refuse(name, format("%s has %zu bytes (%lld wanted by the lengths)",
                             std::string(which).c_str(), bytes, wide(sum)));
}

Status check_rank(std::string_view name, std::string_view which, int rank, int size) {
  if (rank >= 0 && rank < size) return {};
  return refuse(name, format("%s %d (0 to %d wanted)", std::string(which).c_str(), rank, size - 1));
}

}  // namespace gradwire
