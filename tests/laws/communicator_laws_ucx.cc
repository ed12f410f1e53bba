#include "tests/laws/communicator_process_laws.h"

namespace gradwire {
namespace {

INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessLaws, process_jobs("ucx"), job_name);
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessLoss, testing::Values(ProcessJob{"ucx", 4}));
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessDescriptors,
                         testing::Values(ProcessJob{"ucx", 32}));
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorProcessForks,
                         testing::Values(ProcessJob{"ucx", 3, {}, true}));

}  // namespace
}  // namespace gradwire
