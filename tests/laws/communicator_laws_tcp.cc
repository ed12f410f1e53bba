#include "tests/laws/communicator_process_laws.h"

namespace gradwire {
namespace {

INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorProcessLaws, process_jobs("tcp"), job_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorProcessLoss, testing::Values(ProcessJob{"tcp", 4}));

}  // namespace
}  // namespace gradwire
