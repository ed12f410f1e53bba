#include "compress/sparse/pairs_of_device.h"

#include "compress/sparse/chosen_count.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {

Result<std::unique_ptr<PairsOfDevice>> make_pairs_of_device(std::int64_t elems, Device device) {
  GW_TRY(check_index_range("pairs of a device", Shape::vector(elems), kMostSparseElems - 1));
  if constexpr (kHaveCuda) {
    return cuda::make_pairs_of_device(elems, device);
  }
  return Status(Code::kUnsupported, "pairs of a CUDA device: this build has no CUDA");
}

}  // namespace gradwire
