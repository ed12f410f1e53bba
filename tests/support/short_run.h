// Which of many cases a test takes: all of them where GRADWIRE_TEST_FULL is set, as by
// `./check --full`; else, in a short run, a sample that takes turns through the values of each
// list.
#pragma once

#include <cstdlib>
#include <utility>
#include <vector>

namespace gradwire {

inline bool is_short_run() { return std::getenv("GRADWIRE_TEST_FULL") == nullptr; }

// Asked about one case after another: in a short run it takes every `stride`-th, of which the first
// is number `first` modulo `stride`. A stride that is prime to the lengths of the lists meets every
// value of each.
class ShortRun {
 public:
  explicit ShortRun(int stride, int first = 0)
      : stride_(is_short_run() ? stride : 1), count_(stride - first % stride) {}
  bool takes() { return count_++ % stride_ == 0; }

 private:
  int stride_;
  int count_;
};

// The cases of a list that a run takes.
template <typename Case>
std::vector<Case> sample_of(std::vector<Case> all, int stride, int first = 0) {
  ShortRun run(stride, first);
  std::vector<Case> sample;
  for (Case& one : all) {
    if (run.takes()) sample.push_back(std::move(one));
  }
  return sample;
}

}  // namespace gradwire
