#include "comm/ucx/ucx_transport.h"
#include "tests/laws/process_backend.h"

namespace gradwire::laws {
namespace {

TransportBackend ucx(std::string name, std::size_t single_copy_bytes) {
  return process_backend(std::move(name), [=](const Rendezvous& rendezvous) {
    return make_ucx_transport(rendezvous, {.heartbeat_seconds = 0.25,
                                           .liveness_seconds = 2,
                                           .single_copy_bytes = single_copy_bytes,
                                           .log = {}});
  });
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportLaws,
                         testing::Values(ucx("shared_memory", SIZE_MAX), ucx("single_copy", 8192)),
                         backend_name);

}  // namespace
}  // namespace gradwire::laws
