#include "comm/nccl/nccl_calls.h"

#include "base/text.h"
#include "device/shared_library.h"

namespace gradwire::nccl {
namespace {

Code code_of(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError: return Code::kPeerLost;
    case ncclInvalidArgument:
    case ncclInvalidUsage: return Code::kInvalidArgument;
    default: return Code::kInternal;
  }
}

template <typename Function>
Status find(const SharedLibrary& library, const char* name, Function& function) {
  GW_ASSIGN(function, library.function<Function>(name));
  return {};
}

// Of one library.
Result<std::shared_ptr<const Calls>> calls_of(const SharedLibrary& library) {
  auto calls = std::make_shared<Calls>();
  calls->library = library.name();
  GW_TRY(find(library, "ncclGetVersion", calls->get_version));
  GW_TRY(find(library, "ncclGetErrorString", calls->error_string));
  if (const ncclResult_t asked = calls->get_version(&calls->version); asked != ncclSuccess) {
    return Status(Code::kUnsupported, calls->library + " does not report its version: " +
                                          calls->error_string(asked) + " from ncclGetVersion");
  }
  if (calls->version < kOldestVersion) {
    return Status(Code::kUnsupported, calls->library + " is version " +
                                          version_text(calls->version) +
                                          " (expected 2.19 or newer)");
  }
#define GW_NCCL_FIND(member, name) GW_TRY(find(library, #name, calls->member));
  GW_NCCL_CALLS(GW_NCCL_FIND)
#undef GW_NCCL_FIND
  return std::shared_ptr<const Calls>(std::move(calls));
}

}  // namespace

Result<std::shared_ptr<const Calls>> open_calls(const std::vector<std::string>& names) {
  std::string tried;
  for (const std::string& name : names) {
    const auto library = SharedLibrary::open("", {name});
    auto calls = library.has_value() ? calls_of(library.value()) : library.error();
    if (calls.has_value()) return calls;
    std::string_view reason = calls.error().message();
    constexpr std::string_view kUnopened = " cannot be opened; ";
    if (reason.starts_with(kUnopened)) reason.remove_prefix(kUnopened.size());
    tried += "; " + std::string(reason);
  }
  return Status(Code::kUnsupported,
                "NCCL cannot be used" + (names.empty() ? "; no place to look for it" : tried));
}

std::string version_text(int version) {
  return format("%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

Status status_of(const Calls& calls, ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return {};
  std::string text = format("%s from %s", calls.error_string(result), call);
  const char* const more = calls.last_error(comm);
  if (more != nullptr && *more != '\0') text += format(" (%s)", more);
  return {code_of(result), std::move(text)};
}

ncclDataType_t data_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return ncclFloat64;
    case DType::kF32: return ncclFloat32;
    case DType::kF16: return ncclFloat16;
    case DType::kBF16: return ncclBfloat16;
    case DType::kI64: return ncclInt64;
    case DType::kI32: return ncclInt32;
    case DType::kI8: return ncclInt8;
    case DType::kU8: return ncclUint8;
  }
  return ncclNumTypes;
}

ncclRedOp_t op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kPreMulSum: return ncclSum;
    case ReduceOp::kMean: return ncclAvg;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kMin: return ncclMin;
    case ReduceOp::kProduct: return ncclProd;
  }
  return ncclNumOps;
}

}  // namespace gradwire::nccl
