#include "comm/tcp/tcp_transport.h"
#include "tests/laws/transport/process_backend.h"

namespace gradwire::laws {
namespace {

TransportBackend loopback() {
  return process_backend("loopback", [](const Rendezvous& rendezvous) {
    return make_tcp_transport(rendezvous, {.heartbeat_seconds = 0.25, .liveness_seconds = 2});
  });
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportLaws, testing::Values(loopback()), backend_name);

}  // namespace
}  // namespace gradwire::laws
