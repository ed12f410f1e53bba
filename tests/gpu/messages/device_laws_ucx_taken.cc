#include "tests/gpu/messages/device_laws.h"

namespace gradwire {
namespace {

INSTANTIATE_TEST_SUITE_P(UcxTaken, DeviceLaws, device_jobs("ucx", true), device_job_name);

}  // namespace
}  // namespace gradwire
