#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <utility>

#include "comm/ucx/ucx_transport.h"
#include "tests/laws/communicator/communicator_process_laws.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/laws/transport/process_backend.h"

namespace gradwire {
namespace {

INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessLaws, process_jobs("ucx"), job_name);
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessMessages, process_messages("ucx"), job_name);
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessAhead, process_ahead("ucx"), job_name);
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessLoss, testing::Values(ProcessJob{"ucx", 4}));
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessDescriptors,
                         testing::Values(ProcessJob{"ucx", 32}));
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessForks,
                         testing::Values(ProcessJob{"ucx", 3, {}, true}));

// As between hosts: no rank reads another's memory, so what runs ahead has to be announced.
struct Apart {
  const char* transports;  // as in UCX_TLS
  int ranks;
};
std::ostream& operator<<(std::ostream& out, const Apart& apart) {
  return out << apart.transports << " " << apart.ranks;
}

class CommunicatorApart : public testing::TestWithParam<Apart> {
 protected:
  static void run(std::string (*program)(Communicator& world)) {
    const auto backend = laws::process_backend("apart", [](const Rendezvous& rendezvous) {
      setenv("UCX_TLS", GetParam().transports, 1);  // NOLINT(concurrency-mt-unsafe)
      return make_ucx_transport(rendezvous, {.single_copy_bytes = SIZE_MAX, .log = {}});
    });
    const auto body = [program](std::unique_ptr<Transport> transport) {
      auto world = make_communicator(std::move(transport));
      ASSERT_TRUE(world.has_value()) << world.error().message();
      EXPECT_EQ(program(*world.value()), "");
    };
    backend.run(GetParam().ranks, body, {}, 120);
  }
};

TEST_P(CommunicatorApart, ManyMessages) { run(send_many_large); }
TEST_P(CommunicatorApart, RunAhead) { run(run_ahead); }
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorApart, testing::Values(Apart{"tcp", 2}, Apart{"all", 4}),
                         [](const auto& info) {
                           return info.param.transports + ("_" + std::to_string(info.param.ranks));
                         });

}  // namespace
}  // namespace gradwire
