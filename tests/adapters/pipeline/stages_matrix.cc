// Every schedule x number of ranks x number of micro-batches x model x optimizer against one rank
// with the same micro-batches, bit for bit: 1,280 runs on threads. By hand; tests run a part of
// them:
//
//   ninja -C build tests/adapters/pipeline/stages_matrix
//   build/tests/adapters/pipeline/stages_matrix [--done FILE]
//
// FILE gets a line for each run that was equal; another start of the same build with the same FILE
// goes on behind them. Ends with 1 where a run differs.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/adapters/pipeline/stage_models.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire::testing {
namespace {

struct Trainee {
  std::string name;
  const Model<float>* model;
  const DataSet* data;
};

// One run alone, and the runs of stages that it is compared with.
struct Reference {
  Trainee trainee;
  std::string optimizer;
  int micro_batches;
};

std::vector<Reference> references() {
  const std::vector<Trainee> trainees{{"mlp", &deep_mlp(), &digits_data()},
                                      {"resnet8", &small_resnet(), &digits_data()},
                                      {"gpt", &small_gpt(), &grammar_text()},
                                      {"gpt-tied", &tied_gpt(), &grammar_text()}};
  std::vector<Reference> all;
  for (const Trainee& trainee : trainees) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      for (const int m : {1, 4, 6, 8, 12}) all.push_back({trainee, optimizer, m});
    }
  }
  return all;
}

constexpr int kRanks = 4;

class Matrix {
 public:
  explicit Matrix(const char* done_file) {
    if (done_file == nullptr) return;
    std::ifstream before(done_file);
    for (std::string line; std::getline(before, line);) done_.insert(line);
    file_.open(done_file, std::ios::app);
  }

  void compare(const Reference& reference) {
    std::optional<Trained> alone;
    for (const PipelineSpec& spec : every_spec()) {
      for (int ranks = 1; ranks <= kRanks; ++ranks) compare(reference, spec, ranks, alone);
    }
  }

  int end() const {
    std::printf("%d runs equal, %d of them before; %d differ; %d not defined\n", equal_, before_,
                differ_, undefined_);
    // resnet8 has 6 layers with parameters: 4 ranks of two chunks each have no 8 stages of it.
    constexpr int kUndefined = 50;
    if (undefined_ != kUndefined) std::printf("expected %d not defined\n", kUndefined);
    return differ_ == 0 && undefined_ == kUndefined ? EXIT_SUCCESS : EXIT_FAILURE;
  }

 private:
  // More stages than there are layers with parameters.
  static bool is_defined(const PipelineRun& run) {
    const auto schedule = generate_pipeline(run.spec, run.ranks, run.options.accumulate);
    return schedule.has_value() && plan_stages(*run.model, schedule.value(), 0, {}).has_value();
  }

  void compare(const Reference& reference, const PipelineSpec& spec, int ranks,
               std::optional<Trained>& alone) {
    const auto& [trainee, optimizer, micro_batches] = reference;
    const std::string name = format("%s %s %s p=%d m=%d", trainee.name.c_str(), optimizer.c_str(),
                                    spec.text().c_str(), ranks, micro_batches);
    PipelineRun run = run_of(*trainee.model, *trainee.data, micro_batches, optimizer);
    run.spec = spec;
    run.ranks = ranks;
    ++seen_;
    if (!is_defined(run)) {
      ++undefined_;
      return;
    }
    if (done_.contains(name)) {
      ++equal_;
      ++before_;
      return;
    }
    if (!alone) {
      PipelineRun one = run;
      one.ranks = 1;
      alone = train_on_one_rank(one);
    }
    const auto failures = [] {
      return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().total_part_count();
    };
    const int failed = failures();
    expect_same(train_pipeline(run), *alone, name);
    tell(name, failures() == failed);
  }

  void tell(const std::string& name, bool is_equal) {
    ++(is_equal ? equal_ : differ_);
    ++made_;
    if (is_equal && file_.is_open()) file_ << name << std::endl;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    const int left = static_cast<int>(references().size() * every_spec().size()) * kRanks - seen_;
    std::printf("%-44s %-6s ETA %4.0f s\n", name.c_str(), is_equal ? "equal" : "DIFFERS",
                seconds / made_ * left);
    std::fflush(stdout);
  }

  std::set<std::string> done_;
  std::ofstream file_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  int seen_ = 0;
  int made_ = 0;
  int equal_ = 0;
  int before_ = 0;
  int differ_ = 0;
  int undefined_ = 0;
};

}  // namespace
}  // namespace gradwire::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const bool has_file = argc == 3 && std::strcmp(argv[1], "--done") == 0;
  if (argc != 1 && !has_file) {
    std::fprintf(stderr, "stages_matrix: unknown arguments (expected none, or --done FILE)\n");
    return 2;
  }
  gradwire::testing::Matrix matrix(has_file ? argv[2] : nullptr);
  for (const auto& reference : gradwire::testing::references()) matrix.compare(reference);
  return matrix.end();
}
