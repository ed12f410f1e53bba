// The kernels of the trainer, as they are, compiled for the host.
// clang-format off
#include "tests/emulation/emulated_launch.h"

#include "trainer/cuda/attention.cu"
#include "trainer/cuda/class_parts.cu"
#include "trainer/cuda/convolution.cu"
#include "trainer/cuda/elementwise_layers.cu"
#include "trainer/cuda/embeddings.cu"
#include "trainer/cuda/losses.cu"
#include "trainer/cuda/norms.cu"
#include "trainer/cuda/pools.cu"
#include "trainer/cuda/steps.cu"
#include "trainer/cuda/stored.cu"
