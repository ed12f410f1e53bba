// Every kind of versions x 2 to 4 ranks x replicas x stage of ZeRO x model x optimizer without a
// flush against its serial replay, bit for bit: 288 runs on threads. By hand; tests run a part of
// them (stream_training_test.cc):
//
//   ninja -C build tests/adapters/pipeline/streams_matrix
//   build/tests/adapters/pipeline/streams_matrix [--done FILE]
//
// FILE gets a line for each run that was equal; another start of the same build with the same FILE
// goes on behind them. Ends with 1 where a run differs.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "base/text.h"
#include "tests/adapters/pipeline/stream_cases.h"

namespace gradwire::testing {
namespace {

int failures() {
  return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().total_part_count();
}

class StreamsMatrix {
 public:
  explicit StreamsMatrix(const char* done_file) {
    if (done_file == nullptr) return;
    std::ifstream before(done_file);
    for (std::string line; std::getline(before, line);) done_.insert(line);
    file_.open(done_file, std::ios::app);
  }

  void compare(const Trainee& one, const std::string& optimizer, int replicas, int zero,
               const StreamRule& rule) {
    const std::string name = format("%s %s dp=%d zero=%d %s", one.name.c_str(), optimizer.c_str(),
                                    replicas, zero, name_of(rule).c_str());
    if (done_.contains(name)) {
      ++equal_;
      return;
    }
    MeshTraining plain = training_of(one, optimizer, replicas, rule);
    plain.training.zero = zero;
    const int failed = failures();
    expect_replayed(plain, rule, name);
    const bool is_equal = failures() == failed;
    ++(is_equal ? equal_ : differ_);
    if (is_equal && file_.is_open()) file_ << name << std::endl;
    std::printf("%-60s %s\n", name.c_str(), is_equal ? "equal" : "DIFFERS");
    std::fflush(stdout);
  }

  int end() const {
    std::printf("%d runs equal, %d differ\n", equal_, differ_);
    return differ_ == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }

 private:
  std::set<std::string> done_;
  std::ofstream file_;
  int equal_ = 0;
  int differ_ = 0;
};

void compare_all(StreamsMatrix& matrix) {
  for (const Trainee& one : trainees()) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      for (const int replicas : {1, 2}) {
        for (const int zero : {0, 1}) {
          for (const int ranks : {2, 3, 4}) {
            for (const StreamRule& rule : rules(ranks)) {
              matrix.compare(one, optimizer, replicas, zero, rule);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const bool has_file = argc == 3 && std::strcmp(argv[1], "--done") == 0;
  if (argc != 1 && !has_file) {
    std::fprintf(stderr, "streams_matrix: unknown arguments (expected none, or --done FILE)\n");
    return 2;
  }
  gradwire::testing::StreamsMatrix matrix(has_file ? argv[2] : nullptr);
  gradwire::testing::compare_all(matrix);
  return matrix.end();
}
