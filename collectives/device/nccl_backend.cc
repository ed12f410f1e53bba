#include "collectives/device/nccl_backend.h"
#include "base/text.h"
#include "comm/nccl/have_nccl.h"

namespace gradwire {
namespace {

constexpr std::string_view kNccl = "nccl";
constexpr std::int64_t kMostDevices = 65536;

}  // namespace

bool is_nccl(std::string_view name) {
  return name == kNccl || (name.starts_with(kNccl) && name[kNccl.size()] == ':');
}

Result<std::optional<int>> nccl_ordinal(std::string_view name) {
  if (name == kNccl) return std::optional<int>();
  const auto ordinal = to_int(name.substr(kNccl.size() + 1));
  if (ordinal && *ordinal >= 0 && *ordinal < kMostDevices) {
    return std::optional<int>(static_cast<int>(*ordinal));
  }
  return Status(Code::kInvalidArgument,
                "'" + std::string(name) + "' (expected nccl or nccl:N, N >= 0)");
}

Status check_have_nccl() {
  if constexpr (kHaveNccl) return {};
  return {Code::kUnsupported,
          "no NCCL in this build (expected CUDA, nccl.h and libnccl.so.2; configure with "
          "-Dnccl=enabled to see which is missing)"};
}

}  // namespace gradwire
