// The laws of Communicator over processes: the same programs as in process, and how ranks fail when
// one is killed or stopped. A backend gets them all by four lines in a file of its own:
//   INSTANTIATE_TEST_SUITE_P(N, CommunicatorProcessLaws, process_jobs("n"), job_name);
//   INSTANTIATE_TEST_SUITE_P(N, CommunicatorProcessMessages, process_messages("n"), job_name);
//   INSTANTIATE_TEST_SUITE_P(N, CommunicatorProcessAhead, process_ahead("n"), job_name);
//   INSTANTIATE_TEST_SUITE_P(N, CommunicatorProcessLoss, testing::Values(ProcessJob{"n", 4}));
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/short_run.h"

namespace gradwire {

struct ProcessJob {
  std::string backend;
  int ranks = 1;
  std::vector<int> node_of = {};  // none: all on one
  bool silence = false;           // what tells of a death that a forked child hides
};

class CommunicatorProcessLaws : public testing::TestWithParam<ProcessJob> {};
// Of messages between ranks, of which there are two or more.
class CommunicatorProcessMessages : public testing::TestWithParam<ProcessJob> {};
// Of ranks that are far ahead of others, for seconds each.
class CommunicatorProcessAhead : public testing::TestWithParam<ProcessJob> {};
class CommunicatorProcessLoss : public testing::TestWithParam<ProcessJob> {};
// descriptor_laws.cc
class CommunicatorProcessDescriptors : public testing::TestWithParam<ProcessJob> {};
// communicator_fork_laws.cc
class CommunicatorProcessForks : public testing::TestWithParam<ProcessJob> {};

inline auto process_jobs(const std::string& backend) {
  return testing::Values(ProcessJob{backend, 1}, ProcessJob{backend, 2}, ProcessJob{backend, 3},
                         ProcessJob{backend, 4});
}
inline auto process_messages(const std::string& backend) {
  return testing::Values(ProcessJob{backend, 2}, ProcessJob{backend, 3}, ProcessJob{backend, 4});
}
inline auto process_ahead(const std::string& backend) {
  return testing::ValuesIn(sample_of<ProcessJob>({{backend, 4}, {backend, 2}, {backend, 3}}, 3));
}
inline std::string job_name(const testing::TestParamInfo<ProcessJob>& info) {
  std::string name = std::to_string(info.param.ranks) + "_ranks";
  for (const int node : info.param.node_of) name += "_" + std::to_string(node);
  return name;
}

}  // namespace gradwire
