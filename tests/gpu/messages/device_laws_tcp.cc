#include "tests/gpu/messages/device_laws.h"

namespace gradwire {
namespace {

INSTANTIATE_TEST_SUITE_P(Tcp, DeviceLaws, device_jobs("tcp"), device_job_name);

}  // namespace
}  // namespace gradwire
