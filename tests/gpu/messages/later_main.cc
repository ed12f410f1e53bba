// Runs tests on the device that the host plays, which runs what it is given when it comes to it.
#include <gtest/gtest.h>

#include "tests/emulation/emulated_device.h"
#include "tests/support/chosen_files.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  gradwire::emulation::run_later();
  return gradwire::testing::keep_files(&argc, argv) ? RUN_ALL_TESTS() : 1;
}
