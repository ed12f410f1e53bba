#include "compress/contract.h"

#include <string>

#include "base/text.h"

namespace gradwire {

Status check_placement(std::string_view method, const Compressor::Placement& where) {
  if (where.device.space != MemorySpace::kHost) {
    return {Code::kUnsupported, std::string(method) + ": this build compresses host memory only"};
  }
  if (where.dtype != DType::kF32 && where.dtype != DType::kF64) {
    return {Code::kUnsupported, std::string(method) + ": elements of " +
                                    std::string(to_string(where.dtype)) + " (expected f32 or f64)"};
  }
  if (where.rank < 0 || where.rank >= where.size) {
    return {Code::kInvalidArgument,
            format("%s: rank %d of %d", std::string(method).c_str(), where.rank, where.size)};
  }
  return {};
}

Status check_tensor(std::string_view what, ConstTensorView tensor, std::int64_t elems,
                    DType dtype) {
  if (tensor.device().space != MemorySpace::kHost) {
    return {Code::kUnsupported, std::string(what) + ": this build compresses host memory only"};
  }
  // An empty view has no dtype worth comparing.
  if (tensor.elems() == elems && (elems == 0 || tensor.dtype() == dtype)) return {};
  return {Code::kInvalidArgument,
          std::string(what) + format(": %lld elements of %s (expected %lld of %s)",
                                     static_cast<long long>(tensor.elems()),
                                     std::string(to_string(tensor.dtype())).c_str(),
                                     static_cast<long long>(elems),
                                     std::string(to_string(dtype)).c_str())};
}

Status check_feedback(std::string_view method, ConstTensorView src, const Feedback& feedback,
                      DType dtype) {
  const std::string name(method);
  GW_TRY(check_tensor(name + ": src", src, src.elems(), dtype));
  GW_TRY(check_tensor(name + ": residual", feedback.residual, src.elems(), dtype));
  return check_tensor(name + ": next", feedback.next, src.elems(), dtype);
}

Status check_room(std::string_view what, std::size_t room, std::size_t wanted) {
  if (room >= wanted) return {};
  return {Code::kInvalidArgument,
          std::string(what) + format(": room for %zu bytes (expected %zu)", room, wanted)};
}

Status check_length(std::string_view what, std::size_t seen, std::size_t wanted) {
  if (seen == wanted) return {};
  return {Code::kCorruptPayload,
          std::string(what) + format(": a payload of %zu bytes (expected %zu)", seen, wanted)};
}

Status check_round(std::string_view method, int round, int rounds) {
  if (round >= 0 && round < rounds) return {};
  return {Code::kInvalidArgument,
          std::string(method) + format(": round %d (of %d)", round, rounds)};
}

}  // namespace gradwire
