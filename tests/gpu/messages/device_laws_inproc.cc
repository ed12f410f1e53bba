#include "tests/gpu/messages/device_laws.h"

namespace gradwire {
namespace {

INSTANTIATE_TEST_SUITE_P(Inproc, DeviceLaws, device_jobs("inproc"), device_job_name);

}  // namespace
}  // namespace gradwire
