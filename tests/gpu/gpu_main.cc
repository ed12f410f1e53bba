// Runs the tests where there is a CUDA device, and is skipped (77) where there is none.
#include "tests/gpu/card.h"

int main(int argc, char** argv) {
  return gradwire::gpu::run_where(gradwire::gpu::has_card, argc, argv);
}
