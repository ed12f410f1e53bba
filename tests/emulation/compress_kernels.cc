// The kernels of compressors, as they are, compiled for the host.
// clang-format off
#include "tests/emulation/emulated_launch.h"

#include "compress/cast/cast_cuda.cu"
#include "compress/error_feedback/feedback_cuda.cu"
#include "compress/error_feedback/loco_cuda.cu"
#include "compress/fp8/fp8_cuda.cu"
#include "compress/identity/identity_cuda.cu"
#include "compress/mx/mx_cuda.cu"
#include "compress/natural/natural_cuda.cu"
#include "compress/onebit/onebit_cuda.cu"
#include "compress/qsgd/qsgd_cuda.cu"
#include "compress/randomk/randomk_cuda.cu"
#include "compress/signsgd/signs_cuda.cu"
#include "compress/sparse/pairs_cuda.cu"
#include "compress/threshold/threshold_cuda.cu"
#include "compress/topk/topk_cuda.cu"
#include "compress/uniform/uniform_cuda.cu"
