// Runs the tests where there is a CUDA device and cuBLAS, and is skipped (77) where one is missing.
#include "tests/gpu/card.h"

int main(int argc, char** argv) {
  return gradwire::gpu::run_where(gradwire::gpu::multiplies, argc, argv);
}
