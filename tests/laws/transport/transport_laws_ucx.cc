#include <cstdint>
#include <cstdlib>

#include "comm/checked/checked_transport.h"
#include "comm/ucx/ucx_transport.h"
#include "tests/laws/transport/process_backend.h"

namespace gradwire::laws {
namespace {

// Every message with its checksum: the laws hold for what wraps a transport, too.
TransportBackend checked() {
  return process_backend("checked", [](const Rendezvous& rendezvous) {
    auto inner = make_ucx_transport(rendezvous,
                                    {.heartbeat_seconds = 0.25, .liveness_seconds = 2, .log = {}});
    if (!inner.has_value()) return inner;
    return Result<std::unique_ptr<Transport>>(with_checksums(std::move(inner).value()));
  });
}

// transports: as in UCX_TLS. Every rank is a process of its own, so its environment is, too.
TransportBackend ucx(std::string name, std::size_t single_copy_bytes,
                     const std::string& transports = "all") {
  return process_backend(std::move(name), [=](const Rendezvous& rendezvous) {
    setenv("UCX_TLS", transports.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    return make_ucx_transport(rendezvous, {.heartbeat_seconds = 0.25,
                                           .liveness_seconds = 2,
                                           .single_copy_bytes = single_copy_bytes,
                                           .log = {}});
  });
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportLaws,
                         testing::Values(ucx("shared_memory", SIZE_MAX), ucx("single_copy", 8192),
                                         ucx("posix_memory", SIZE_MAX, "posix,tcp,self"),
                                         ucx("tcp", SIZE_MAX, "tcp"), checked()),
                         backend_name);

}  // namespace
}  // namespace gradwire::laws
