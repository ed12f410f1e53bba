// The kernels of compressors, as they are, compiled for the host.
// clang-format off
#include "tests/emulation/emulated_launch.h"

#include "compress/qsgd/qsgd_cuda.cu"
