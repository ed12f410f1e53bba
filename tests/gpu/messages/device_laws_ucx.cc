#include "tests/gpu/messages/device_laws.h"

namespace gradwire {
namespace {

INSTANTIATE_TEST_SUITE_P(Ucx, DeviceLaws, device_jobs("ucx"), device_job_name);

}  // namespace
}  // namespace gradwire
