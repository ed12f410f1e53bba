// The kernels of device/cuda, as they are, compiled for the host.
// clang-format off
#include "tests/emulation/emulated_launch.h"

#include "device/cuda/elementwise.cu"
#include "device/cuda/ordered.cu"
#include "device/cuda/reductions.cu"
