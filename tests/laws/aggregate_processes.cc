// Over processes the aggregator computes, bit for bit, what it computes over threads: by messages
// of UCX and TCP and in shared memory, on one host and on several, one level and two. Hosts are the
// nodes that the ranks are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/hash.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"

namespace gradwire::testing {
namespace {

struct Layout {
  std::string backend;
  int ranks = 3;
  std::vector<int> node_of = {};  // none: all on one
};

// Ranks that share memory add up in rank order, which threads call canonical.
bool in_memory(const Layout& layout) { return layout.backend == "auto"; }

Job job_of(const Layout& layout, const std::string& compressor) {
  Job job;
  job.compressor = compressor;
  job.tensors = {{"a.weight", Shape::matrix(60, 70)},
                 {"a.bias", Shape::vector(60)},
                 {"b.weight", Shape::matrix(70, 90)},
                 {"b.bias", Shape::vector(90)}};
  job.ranks = layout.ranks;
  job.node_of = layout.node_of;
  job.steps = 5;
  job.bucket_bytes = 20'000;
  job.algorithm = in_memory(layout) ? "auto" : "ring";
  return job;
}

std::vector<std::string> specs_of(const Layout& layout) {
  const std::string all = ",min_elems=0,dense_1d=false";
  std::vector<std::string> specs{"topk:ratio=0.05,combine=oktopk,ef=ef14" + all,
                                 "topk:ratio=0.7,combine=oktopk" + all,
                                 "threshold:tau=0.9,combine=oktopk,ef=ef14" + all};
  const bool one_host = layout.node_of.empty();
  for (const std::string spec :
       {"topk:ratio=0.05,intra_node=none,ef=ef14",
        "topk:ratio=0.05,combine=oktopk,intra_node=none,ef=ef14",
        "qsgd:bits=4,bucket=64,intra_node=none,ef=ef14", "qsgd:bits=4,intra_node=cast:bf16",
        "signsgd:bucket=tensor,combine=sra,intra_node=none,ef=ef21",
        "powersgd:rank=2,intra_node=none,ef=ef14", "thc:intra_node=none,ef=ef14"}) {
    if (!one_host) specs.push_back(spec + all);
  }
  // Sums over several hosts' memory are sums of sums, which threads do not round so.
  if (in_memory(layout) && !one_host) return specs;
  specs.insert(specs.end(),
               {"none", "qsgd:bits=4,ef=ef14", "topk:ratio=0.01,ef=ef14",
                "signsgd:vote=majority,combine=sra", "powersgd:rank=2,ef=ef14", "cast:bf16"});
  return specs;
}

std::string line_of(const std::string& spec, const Result<std::vector<Flat>>& means) {
  std::ostringstream line;
  line << spec << ": ";
  if (!means.has_value()) {
    line << means.error().message() << "\n";
    return line.str();
  }
  std::uint64_t hash = 0;
  for (const Flat& mean : means.value()) hash = hash_bytes(std::as_bytes(std::span(mean)), hash);
  line << means.value().size() << " steps, " << hash << "\n";
  return line.str();
}

class AggregateProcesses : public ::testing::TestWithParam<Layout> {};

TEST_P(AggregateProcesses, EqualThreadsBitForBit) {
  const Layout layout = GetParam();
  const auto outcomes = on_processes(
      layout.ranks, {.deadline_seconds = 60, .node_of = layout.node_of}, 200,
      [&layout](std::unique_ptr<Communicator> world) {
        std::string text;
        for (const std::string& spec : specs_of(layout)) {
          text += line_of(spec, run_rank(job_of(layout, spec), *world));
        }
        return text;
      },
      {}, layout.backend);
  std::string wanted;  // after the forks: a process with threads must not fork
  for (const std::string& spec : specs_of(layout)) {
    Job job = job_of(layout, spec);
    if (in_memory(layout)) job.algorithm = "canonical";
    const JobOutcome threads = run_job(job);
    ASSERT_TRUE(threads.status.ok()) << spec << ": " << threads.status.message();
    EXPECT_EQ(threads.first_difference, -1) << spec;
    wanted += line_of(spec, threads.means);
  }
  EXPECT_THAT(outcomes, ended_saying(layout.ranks, wanted));
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  std::vector<std::string> backends{"tcp", "auto"};
#ifdef GW_WITH_UCX
  backends.insert(backends.begin(), "ucx");
#endif
  for (const std::string& backend : backends) {
    all.push_back({backend, 3});
    all.push_back({backend, 4, {0, 0, 1, 1}});
    all.push_back({backend, 5, {0, 1, 0, 0, 1}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Layouts, AggregateProcesses, ::testing::ValuesIn(layouts()),
                         [](const auto& info) {
                           std::string name =
                               info.param.backend + "_" + std::to_string(info.param.ranks);
                           for (const int node : info.param.node_of) {
                             name += "_" + std::to_string(node);
                           }
                           return name;
                         });

}  // namespace
}  // namespace gradwire::testing
