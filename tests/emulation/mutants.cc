#include "tests/emulation/mutants.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

// GoogleTest's, null in a program without it: the linker looks for neither.
testing::UnitTest* unit_test() __asm__("_ZN7testing8UnitTest11GetInstanceEv") __attribute__((weak));
const testing::TestInfo* test_info(const testing::UnitTest*) __asm__(
    "_ZNK7testing8UnitTest17current_test_infoEv") __attribute__((weak));

namespace gradwire::mutants {
namespace {

int switched() {
  static const int number = [] {
    const char* const text = std::getenv("GRADWIRE_MUTANT");
    const std::string_view digits = text == nullptr ? "" : text;
    int read = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), read);
    return read;
  }();
  return number;
}

std::string test_now() {
  if (unit_test == nullptr) return "";
  const testing::TestInfo* const test = test_info(unit_test());
  if (test == nullptr) return "";
  return std::string(test->test_suite_name()) + "." + test->name();
}

// What was come to in the test that runs.
struct Reached {
  std::mutex mutex;
  std::string test;
  std::set<int> numbers;
};

void note_reached(const char* name, int number) {
  static auto& reached = *new Reached;
  const std::lock_guard lock(reached.mutex);
  const std::string test = test_now();
  if (test != reached.test) {
    reached.test = test;
    reached.numbers.clear();
  }
  if (!reached.numbers.insert(number).second) return;
  // Each line in one call: other processes write there, too.
  std::ofstream(name, std::ios::app) << std::to_string(number) + " " + test + "\n";
}

// Of the thread's device, kept to the end of the process.
cudaStream_t stream_apart() {
  static auto& mutex = *new std::mutex;
  static auto& streams = *new std::map<int, cudaStream_t>;
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  cudaStream_t& stream = streams[device];
  if (stream == nullptr) {
    static_cast<void>(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  return stream;
}

}  // namespace

bool on(int number) {
  static const char* const name = std::getenv("GRADWIRE_MUTANTS_REACHED");
  if (name != nullptr) note_reached(name, number);
  return number == switched();
}

cudaStream_t apart(cudaStream_t) { return stream_apart(); }

Stream apart(const Stream& stream) {
  int before = 0;
  static_cast<void>(cudaGetDevice(&before));
  static_cast<void>(cudaSetDevice(stream.device.ordinal));
  Stream made{stream.device, stream_apart()};
  static_cast<void>(cudaSetDevice(before));
  return made;
}

}  // namespace gradwire::mutants
