// A program of tests: all of them, or with --file=NAME those of NAME.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/chosen_files.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  return gradwire::testing::keep_files(&argc, argv) ? RUN_ALL_TESTS() : 1;
}
