// A program of several files of tests, of which a run takes some.
#pragma once

namespace gradwire::testing {

// Removes every `--file=NAME` from the arguments, and runs the tests of these NAME.cc alone. False,
// after a message, if one has none. To be called after InitGoogleTest().
bool keep_files(int* argc, char** argv);

}  // namespace gradwire::testing
