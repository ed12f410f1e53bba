#include "compress/cuda/verdict.h"

#include <cstring>

#include "device/cuda/capture.h"
#include "device/ops.h"

namespace gradwire::cuda {

Result<Verdict> Verdict::open(Device device) {
  GW_ASSIGN(Buffer there, Buffer::allocate(sizeof(std::uint64_t), device));
  GW_ASSIGN(Buffer here,
            Buffer::allocate(2 * sizeof(std::uint64_t), {MemorySpace::kPinnedHost, 0}));
  std::memset(here.bytes().data() + sizeof(std::uint64_t), 0xff, sizeof(std::uint64_t));
  return Verdict(std::move(there), std::move(here));
}

Status Verdict::clear(const Stream& stream) {
  GW_TRY(refuse_capture("coding that reports to its caller", {there_.device(), stream.native}));
  return copy_bytes(here_.bytes().subspan(sizeof(std::uint64_t)), here_.device(), there_.bytes(),
                    there_.device(), stream);
}

Result<Finding> Verdict::read(const Stream& stream) {
  GW_TRY(copy_bytes(there_.bytes(), there_.device(), here_.bytes().first(sizeof(std::uint64_t)),
                    here_.device(), stream));
  GW_TRY(synchronize({there_.device(), stream.native}));
  std::uint64_t word = 0;
  std::memcpy(&word, here_.bytes().data(), sizeof(word));
  return finding_of(word);
}

}  // namespace gradwire::cuda
