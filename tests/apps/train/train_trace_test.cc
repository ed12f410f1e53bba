// `gradwire train --trace`: a Chrome trace of all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/sim/sim.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_trace_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using Json = nlohmann::json;

using ::testing::UnorderedElementsAre;

class TrainTrace : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  // The events of a run of `steps` steps on two ranks, with more flags.
  std::vector<Json> events(int steps, const Words& more) const {
    Words words{"--batch", "48", "--steps", std::to_string(steps), "--trace", file("trace.json")};
    if (std::ranges::find(more, "--inproc") == more.end()) {
      words.insert(words.end(), {"--inproc", "2"});
    }
    if (std::ranges::find(more, "--hidden") == more.end()) {
      words.insert(words.end(), {"--hidden", "16"});
    }
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(train(words), "ok");
    const Json trace = Json::parse(contents(file("trace.json")), nullptr, false);
    if (!trace.contains("traceEvents")) {
      ADD_FAILURE() << "no JSON, or none of a trace";
      return {};
    }
    return trace["traceEvents"].get<std::vector<Json>>();
  }

  TemporaryFolder folder_;
};

TEST_F(TrainTrace, HasEveryLayerBucketAndOptimizerOfEveryRankAndStep) {
  std::map<std::pair<int, std::string>, std::set<std::string>> names;  // by rank and category
  std::map<int, std::set<int>> steps;
  std::set<std::string> processes;
  std::map<int, int> counts;  // of bytes, by rank
  for (const Json& event : events(3, {"--bucket-bytes", "1"})) {
    const int rank = event["pid"];
    if (event["ph"] == "M") {
      if (event["name"] == "process_name") processes.insert(event["args"]["name"]);
      continue;
    }
    if (event["ph"] == "C") {
      EXPECT_EQ(event["name"], "bytes sent in a step");
      EXPECT_GT(event["args"]["gradients"].get<int>(), 0);
      ++counts[rank];
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
    names[{rank, event["cat"]}].insert(event["name"]);
    if (event["cat"] != "evaluate") steps[rank].insert(event["args"]["step"].get<int>());
  }
  EXPECT_THAT(processes, UnorderedElementsAre("rank 0", "rank 1"));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(steps[rank], UnorderedElementsAre(0, 1, 2));
    EXPECT_EQ(counts[rank], 3);
    EXPECT_THAT((names[{rank, "backward weights"}]), UnorderedElementsAre("fc1", "fc2"));
    EXPECT_THAT((names[{rank, "forward"}]), ::testing::IsSupersetOf({"fc1", "fc2", "loss"}));
    EXPECT_THAT((names[{rank, "wire"}]),
                UnorderedElementsAre("bucket 0", "bucket 1", "bucket 2", "bucket 3"));
    EXPECT_EQ((names[{rank, "encode"}]), (names[{rank, "wire"}]));
    EXPECT_EQ((names[{rank, "decode"}]), (names[{rank, "wire"}]));
    EXPECT_THAT((names[{rank, "optimizer"}]), UnorderedElementsAre("optimizer"));
    EXPECT_THAT((names[{rank, "exposed"}]), UnorderedElementsAre("wait for gradients"));
  }
}

TEST_F(TrainTrace, ShowsTheFirstStepsOfARunThatGoesOn) {
  const Words kept{"--checkpoint", file("run"), "--trace-steps", "2"};
  for (const auto& [steps, more, wanted] :
       {std::tuple<int, Words, std::set<int>>{4, {}, {0, 1}}, {8, {"--resume"}, {4, 5}}}) {
    Words words = kept;
    words.insert(words.end(), more.begin(), more.end());
    std::set<int> seen;
    for (const Json& event : events(steps, words)) {
      if (event["ph"] == "X" && event["cat"] != "evaluate") {
        seen.insert(event["args"]["step"].get<int>());
      }
    }
    EXPECT_EQ(seen, wanted);
  }
}

TEST_F(TrainTrace, ShardedTrainingHasGatheredParametersToo) {
  std::set<std::string> streams;
  for (const Json& event : events(2, {"--zero", "2"})) {
    if (event["name"] == "thread_name") streams.insert(event["args"]["name"]);
  }
  EXPECT_THAT(streams, ::testing::IsSupersetOf({"training", "gradients: coder", "parameters: coder",
                                                "gradients: wire 0", "parameters: wire 0"}));
}

// Processes in their order, and names by process and row; rows of messages are one.
struct PipelineTrace {
  std::vector<std::string> processes;
  std::map<std::pair<std::string, std::string>, std::multiset<std::string>> names;
  friend bool operator==(const PipelineTrace&, const PipelineTrace&) = default;
};

PipelineTrace pipeline_trace_of(const std::vector<Json>& events) {
  PipelineTrace trace;
  std::map<int, std::string> process;
  std::map<std::pair<int, int>, std::string> row;
  for (const Json& event : events) {
    if (event["ph"] != "M") continue;
    const std::string name = event["args"]["name"];
    if (event["name"] == "process_name") trace.processes.push_back(process[event["pid"]] = name);
    if (event["name"] == "thread_name") row[{event["pid"], event["tid"]}] = name;
  }
  for (const Json& event : events) {
    if (event["ph"] != "X") continue;
    const std::string thread = row[{event["pid"], event["tid"]}];
    const std::string kind = thread.substr(0, std::string("messages sent").size());
    if (kind != "operations" && kind != "messages sent") continue;
    trace.names[{process[event["pid"]], kind}].insert(event["name"]);
  }
  return trace;
}

// So that both open side by side.
TEST_F(TrainTrace, OperationsAndMessagesOfStagesAreNamedAsInTheSimulatedTrace) {
  for (const char* schedule :
       {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "breadth-first", "chimera"}) {
    ::testing::internal::CaptureStdout();
    const auto simulated = sim_command({"pipeline", "--schedules", schedule, "--ranks", "2",
                                        "--micro-batches", "4", "--trace", file("simulated.json")});
    ::testing::internal::GetCapturedStdout();
    ASSERT_TRUE(simulated.has_value()) << simulated.error().message();
    const Json trace = Json::parse(contents(file("simulated.json")));
    const PipelineTrace ran =
        pipeline_trace_of(events(1, {"--hidden", "16,16,16", "--accumulate", "4", "--parallel",
                                     std::string("pp=2/") + schedule}));
    EXPECT_THAT(ran.processes, ::testing::ElementsAre("rank 0", "rank 1")) << schedule;
    EXPECT_EQ(ran.names.size(), 4u) << schedule;
    EXPECT_TRUE(ran == pipeline_trace_of(trace["traceEvents"])) << schedule;
  }
}

// The name of an operation, modulo what is under way: of so many micro-batches and versions.
std::string stream_name(int stage, char kind, int micro, int window, int version, int versions) {
  const int number = version % versions;
  return std::to_string(stage) + kind + std::to_string(micro % window) +
         (number == 0 ? "" : "#" + std::to_string(number));
}

// Of micro-batch i since the last drain: forward and backward, and the weights that both read.
TEST_F(TrainTrace, PP8_PP9_VersionsOfAStreamAreNamed) {
  constexpr int kRanks = 3;
  constexpr int kMicroBatches = 12;  // of which 6 are behind a drain
  for (const std::string schedule : {"pipedream", "pipedream[vertical_sync=on]", "2bw"}) {
    const bool delayed = schedule == "2bw";
    const int m = delayed ? 3 : 1;
    const std::string steps = std::to_string(6 / m);
    const std::vector<Json> all =
        events(kMicroBatches / m, {"--hidden", "16,16,16", "--accumulate", std::to_string(m),
                                   "--parallel", "dp=1,pp=3/" + schedule, "--eval-every", steps,
                                   "--inproc", std::to_string(kRanks)});
    std::map<std::string, std::vector<std::pair<double, std::string>>> seen;
    for (const Json& event : all) {
      const std::string name = event["name"];
      if (event["ph"] != "X" || name.size() < 3 || (name[1] != 'F' && name[1] != 'B')) continue;
      if (name.find(' ') == std::string::npos) {
        seen[name.substr(0, 2)].emplace_back(event["ts"].get<double>(), name);
      }
    }
    const int window = (kRanks / m + 1) * m;
    for (int stage = 0; stage < kRanks; ++stage) {
      for (const char kind : {'F', 'B'}) {
        auto& own = seen[std::to_string(stage) + kind];
        std::ranges::sort(own);
        std::vector<std::string> names;
        for (const auto& [at, name] : own) names.push_back(name);
        std::vector<std::string> wanted;
        for (int i = 0; i < kMicroBatches; ++i) {
          const int since = i % 6;
          const int version = delayed                   ? std::max(0, since / m - 1)
                              : schedule == "pipedream" ? std::max(0, since - (kRanks - 1 - stage))
                                                        : std::max(0, since - (kRanks - 1));
          wanted.push_back(stream_name(stage, kind, since, window, version, delayed ? 2 : kRanks));
        }
        EXPECT_EQ(names, wanted) << schedule;
      }
    }
  }
}

// Rows of a trace nest: a message that begins before the one before it has ended has another row.
TEST_F(TrainTrace, MessagesThatOverlapHaveRowsOfTheirOwn) {
  std::map<std::pair<int, int>, std::string> row;
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> spans;
  const std::vector<Json> all =
      events(3, {"--hidden", "16,16,16", "--accumulate", "8", "--parallel", "pp=2/gpipe"});
  for (const Json& event : all) {
    const std::pair<int, int> at{event["pid"], event["tid"]};
    if (event["name"] == "thread_name") row[at] = event["args"]["name"];
    if (event["ph"] == "X") spans[at].emplace_back(event["ts"], event["dur"]);
  }
  int messages = 0;
  for (auto& [at, own] : spans) {
    if (!row[at].starts_with("messages sent")) continue;
    std::ranges::sort(own);
    messages += static_cast<int>(own.size());
    for (std::size_t i = 1; i < own.size(); ++i) {
      EXPECT_GE(own[i].first, own[i - 1].first + own[i - 1].second - 0.002) << row[at];
    }
  }
  EXPECT_EQ(messages, 3 * 8 * 2);
}

struct TracedSpan {
  double begin = 0;
  double end = 0;
  bool holds(const TracedSpan& other) const {
    const double digit = 0.002;  // the last one of a time in the file, twice
    return begin <= other.begin + digit && other.end <= end + digit;
  }
};

// The spans of each rank and step that have this row and name.
std::map<std::pair<int, int>, std::vector<TracedSpan>> spans_of(const std::vector<Json>& events,
                                                                const std::string& row,
                                                                const std::string& name) {
  std::map<std::pair<int, int>, std::string> rows;
  for (const Json& event : events) {
    if (event["name"] == "thread_name") rows[{event["pid"], event["tid"]}] = event["args"]["name"];
  }
  std::map<std::pair<int, int>, std::vector<TracedSpan>> spans;
  for (const Json& event : events) {
    if (event["ph"] != "X" || event["name"] != name) continue;
    if (rows[{event["pid"], event["tid"]}] != row) continue;
    const double begin = event["ts"];
    spans[{event["pid"], event["args"]["step"]}].push_back(
        {begin, begin + event["dur"].get<double>()});
  }
  return spans;
}

// fc3 is the one layer of four whose derivative is added up on the way back: fc2 and fc4 add up
// their outputs, and below fc1 are the data.
TEST_F(TrainTrace, TheSumOfADerivativeTravelsBesideTheProductOfTheSameLayersWeights) {
  const int steps = 3;
  const auto all =
      events(steps, {"--hidden", "16,16,16", "--accumulate", "2", "--parallel", "tp=2"});
  const auto layers = spans_of(all, "training", "fc3");
  const auto products = spans_of(all, "training", "weights");
  auto sums = spans_of(all, "tensor peers", "sum");
  int beside = 0;
  for (const auto& [place, own] : products) {
    for (const TracedSpan& product : own) {
      const auto in_it = [&](const TracedSpan& span) { return span.holds(product); };
      EXPECT_EQ(std::ranges::count_if(layers.at(place), in_it), 1);
      ++beside;
      EXPECT_EQ(std::ranges::count_if(sums[place], in_it), 1);
    }
  }
  EXPECT_EQ(beside, 2 * steps * 2);
  // With those of the outputs of fc2 and fc4. Behind the last step the model is evaluated.
  const auto evaluations = spans_of(all, "training", "evaluate");
  for (const auto& [place, own] : sums) {
    const auto evaluated = evaluations.find(place);
    const auto in_step = std::ranges::count_if(own, [&](const TracedSpan& sum) {
      return evaluated == evaluations.end() || !evaluated->second.front().holds(sum);
    });
    EXPECT_EQ(in_step, 2 * 3) << "step " << place.second;
  }
}

// An evaluation judges what a step left: it, and what ranks exchange in it, are of that step, also
// of the last one whose spans are kept.
TEST_F(TrainTrace, AnEvaluationAndItsExchangesAreOfTheStepThatItJudges) {
  const int kept = 3;
  const auto all = events(5, {"--hidden", "16,16,16", "--parallel", "tp=2", "--eval-every", "2",
                              "--trace-steps", std::to_string(kept)});
  const auto evaluations = spans_of(all, "training", "evaluate");
  const auto steps = spans_of(all, "training", "step");
  auto sums = spans_of(all, "tensor peers", "sum");
  ASSERT_EQ(evaluations.size(), 2);  // behind the second step, on two ranks
  for (const auto& [place, own] : evaluations) {
    EXPECT_EQ(place.second, 1);
    ASSERT_EQ(own.size(), 1);
    EXPECT_GE(own.front().begin, steps.at(place).front().end - 0.002);
    const auto inside = std::ranges::count_if(
        sums[place], [&](const TracedSpan& sum) { return own.front().holds(sum); });
    EXPECT_GT(inside, 0);
    EXPECT_EQ(sums[place].size(), static_cast<std::size_t>(inside + 3));
    EXPECT_EQ((sums[{place.first, place.second + 1}].size()), 3);
  }
}

TEST_F(TrainTrace, TracingChangesNoBit) {
  const Words run{"--inproc", "2", "--steps", "5", "--hidden", "16", "--save-params"};
  Words traced = run;
  traced.insert(traced.end(), {file("traced"), "--trace", file("trace.json")});
  Words plain = run;
  plain.push_back(file("plain"));
  ASSERT_EQ(train(traced), "ok");
  ASSERT_EQ(train(plain), "ok");
  EXPECT_TRUE(contents(file("traced")) == contents(file("plain")));
}

TEST_F(TrainTrace, WhatCannotBeIsSaidBeforeTraining) {
  EXPECT_THAT(refusal({"--steps", "2", "--trace", file("no/folder/trace.json")}),
              fails(kInvalid, file("no/folder/trace.json"), "No such file or directory"));
  EXPECT_THAT(refusal({"--steps", "2", "--trace", folder_.path()}),
              fails(kInvalid, folder_.path(), "Is a directory"));
  EXPECT_THAT(refusal({"--steps", "2", "--trace", "/dev/full"}),
              fails(kInvalid, "/dev/full", "No space left on device"));
  EXPECT_THAT(refusal({"--trace-steps", "2"}), fails(kInvalid, "--trace-steps", "--trace FILE"));
  EXPECT_THAT(refusal({"--mode", "fedavg", "--trace", file("t")}),
              fails(kInvalid, "--trace", "--mode sync", "fedavg"));
}

}  // namespace
}  // namespace gradwire::train_trace_test
