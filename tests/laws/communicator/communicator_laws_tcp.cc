#include "tests/laws/communicator/communicator_process_laws.h"

namespace gradwire {
namespace {

INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorProcessLaws, process_jobs("tcp"), job_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorProcessMessages, process_messages("tcp"), job_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorProcessAhead, process_ahead("tcp"), job_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorProcessLoss, testing::Values(ProcessJob{"tcp", 4}));
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorProcessDescriptors,
                         testing::Values(ProcessJob{"tcp", 32}));
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorProcessForks, testing::Values(ProcessJob{"tcp", 3}));

}  // namespace
}  // namespace gradwire
