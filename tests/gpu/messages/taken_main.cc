// Runs the tests where there is a CUDA device whose memory UCX takes, and is skipped (77), with
// what UCX says, where there is none.
#include "comm/ucx/inspection.h"
#include "tests/gpu/card.h"

namespace {

gradwire::Status is_taken() {
  GW_TRY(gradwire::gpu::has_card());
  GW_ASSIGN(const gradwire::ucx::Inspection found, gradwire::ucx::inspect(""));
  if (found.cuda_direct) return {};
  return {gradwire::Code::kUnsupported, found.cuda_why};
}

}  // namespace

int main(int argc, char** argv) { return gradwire::gpu::run_where(is_taken, argc, argv); }
