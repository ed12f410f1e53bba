// Environments as launchers leave them (recorded from Open MPI 4.1.4, MPICH 4.0.2, Slurm 22.05 and
// torchrun 2.6; PALS and Kubernetes from their documents), and what a rank makes of them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/config.h"
#include "tests/support/names.h"

namespace gradwire::launch_test {
namespace {

using Environment = std::map<std::string, std::string>;

Result<LaunchInfo> discover(const Environment& environment) {
  return discover_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
}

Environment merged(Environment first, const Environment& second) {
  for (const auto& [name, value] : second) first[name] = value;
  return first;
}

const Environment kTorchrun{{"RANK", "3"},
                            {"LOCAL_RANK", "1"},
                            {"GROUP_RANK", "1"},
                            {"ROLE_RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "10.0.0.7"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                            {"OMP_NUM_THREADS", "1"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "0"},
                           {"OMPI_UNIVERSE_SIZE", "4"},
                           {"PMIX_RANK", "2"},
                           {"PMIX_NAMESPACE", "2424832001"}};
const Environment kHydra{{"PMI_RANK", "1"},
                         {"PMI_SIZE", "2"},
                         {"PMI_FD", "6"},
                         {"MPI_LOCALRANKID", "1"},
                         {"MPI_LOCALNRANKS", "2"}};
const Environment kSrun{{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "4"},
                        {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"},
                        {"SLURM_NNODES", "2"},  {"SLURM_JOB_ID", "812"},
                        {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "rack[03-07,11]-ib,other"}};

struct Found {
  const char* name;
  Environment environment;
  LaunchInfo wanted;
};

class Launchers : public ::testing::TestWithParam<Found> {};

TEST_P(Launchers, AreUnderstood) {
  const LaunchInfo& wanted = GetParam().wanted;
  const auto found = discover(GetParam().environment);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found.value().source, wanted.source);
  EXPECT_EQ(found.value().rank, wanted.rank);
  EXPECT_EQ(found.value().size, wanted.size);
  EXPECT_EQ(found.value().local_rank, wanted.local_rank);
  EXPECT_EQ(found.value().rendezvous, wanted.rendezvous);
  EXPECT_EQ(found.value().job, wanted.job);
  EXPECT_EQ(found.value().local_size, wanted.local_size);
  EXPECT_NE(found.value().reason, "");
}

INSTANTIATE_TEST_SUITE_P(
    Direct, Launchers,
    ::testing::Values(
        Found{"nothing", {}, {0, 1, 0, "alone", "", "job"}},
        Found{"gradwire_run",
              {{"GRADWIRE_RANK", "2"},
               {"GRADWIRE_WORLD_SIZE", "4"},
               {"GRADWIRE_LOCAL_RANK", "2"},
               {"GRADWIRE_RENDEZVOUS", "127.0.0.1:4000"},
               {"GRADWIRE_JOB", "j1"}},
              {2, 4, 2, "GRADWIRE_*", "127.0.0.1:4000", "j1"}},
        Found{"gradwire_one_rank",
              {{"GRADWIRE_RANK", "0"}, {"GRADWIRE_WORLD_SIZE", "1"}},
              {0, 1, 0, "GRADWIRE_*", "", "job"}},
        // The agent serves MASTER_PORT itself: the ranks meet through its store.
        Found{"torchrun", kTorchrun, {3, 4, 1, "torchrun", "torch://10.0.0.7:29500", "none.2", 2}},
        Found{"torchrun_with_a_static_rendezvous",
              merged(kTorchrun,
                     {{"TORCHELASTIC_USE_AGENT_STORE", "False"}, {"MASTER_ADDR", "fe80::1"}}),
              {3, 4, 1, "torchrun", "[fe80::1]:29500", "none.2", 2}},
        Found{"open_mpi", kOpenMpi, {2, 4, 0, "Open MPI", "pmix://", "2424832001", 2}},
        Found{"open_mpi_with_an_address",
              merged(kOpenMpi,
                     {{"GRADWIRE_RENDEZVOUS", "file:///scratch/r"}, {"GRADWIRE_JOB", "mine"}}),
              {2, 4, 0, "Open MPI", "file:///scratch/r", "mine", 2}},
        Found{"hydra", kHydra, {1, 2, 1, "PMI", "pmi://6", "job", 2}},
        Found{"pals",
              {{"PALS_RANKID", "5"}, {"PALS_SIZE", "8"}, {"PALS_LOCAL_RANKID", "1"}},
              {5, 8, 1, "PALS", "", "job"}},
        Found{"kubernetes",
              {{"RANK", "1"},
               {"WORLD_SIZE", "2"},
               {"MASTER_ADDR", "job-master-0"},
               {"MASTER_PORT", "23456"}},
              {1, 2, 1, "RANK/WORLD_SIZE", "job-master-0:23456", "job"}}),
    [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(
    WhatLingers, Launchers,
    ::testing::Values(
        // Under `srun torchrun` Slurm's numbers are those of the node.
        Found{"srun_torchrun",
              merged(kSrun, merged(kTorchrun, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}})),
              {3, 4, 1, "torchrun", "torch://10.0.0.7:29500", "none.2", 2}},
        Found{"sbatch_script",
              {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "812"}},
              {0, 1, 0, "alone", "", "job"}},
        Found{"salloc_shell", {{"SLURM_NTASKS", "4"}}, {0, 1, 0, "alone", "", "job"}},
        // Newer Slurm starts salloc's shell as a step of its own, number 0xfffffffa.
        Found{"interactive_step",
              merged(kSrun, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_PROCID", "0"}}),
              {0, 1, 0, "alone", "", "job"}},
        Found{"srun_of_one_task",
              merged(kSrun, {{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}}),
              {0, 1, 0, "alone", "", "job"}},
        // mpirun.mpich inside an allocation: Slurm says rank 0 to everybody.
        Found{"hydra_in_salloc",
              merged(merged(kSrun, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}), kHydra),
              {1, 2, 1, "PMI", "pmi://6", "job", 2}},
        Found{"srun_pmi2",
              merged(kSrun, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_JOBID", "812.0"}}),
              {3, 4, 1, "PMI", "", "812.0"}},
        Found{"srun_pmi2_on_one_node",
              merged(kSrun, {{"PMI_RANK", "3"},
                             {"PMI_SIZE", "4"},
                             {"PMI_FD", "17"},
                             {"PMI_JOBID", "812.0"},
                             {"SLURM_LOCALID", "3"},
                             {"SLURM_STEP_NUM_NODES", "1"}}),
              {3, 4, 3, "PMI", "pmi://17", "812.0", 4}},
        Found{"open_mpi_in_kubernetes",
              merged(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              {2, 4, 0, "Open MPI", "pmix://", "2424832001", 2}},
        Found{"gradwire_before_all",
              merged(merged(kTorchrun, kOpenMpi), {{"GRADWIRE_RANK", "0"},
                                                   {"GRADWIRE_WORLD_SIZE", "2"},
                                                   {"GRADWIRE_RENDEZVOUS", "h:1"}}),
              {0, 2, 0, "GRADWIRE_*", "h:1", "job"}}),
    [](const auto& param) { return param.param.name; });

// What it meets at, as (host, first port).
std::pair<std::string, int> slurm_place(const Environment& environment) {
  const auto found = discover(environment);
  EXPECT_TRUE(found.has_value()) << found.error().message();
  std::string text = found.has_value() ? found.value().rendezvous : "slurm://:0";
  EXPECT_TRUE(text.starts_with("slurm://")) << text;
  text = text.substr(8);
  return {text.substr(0, text.find(':')), std::stoi(text.substr(text.find(':') + 1))};
}

TEST(Slurm, MeetsOnTheStepsFirstHostAtAPortOfTheStep) {
  const int port = slurm_place(kSrun).second;
  EXPECT_GE(port, 16384);
  EXPECT_LT(port + 64, 32768);
  EXPECT_EQ(slurm_place(merged(kSrun, {{"SLURM_PROCID", "0"}})).second, port);
  EXPECT_NE(slurm_place(merged(kSrun, {{"SLURM_STEP_ID", "1"}})).second, port);
  EXPECT_EQ(discover(kSrun).value().job, "812.0");
  const auto host_of = [](const std::string& list) {
    return slurm_place(merged(kSrun, {{"SLURM_STEP_NODELIST", list}})).first;
  };
  EXPECT_EQ(host_of("rack[03-07,11]-ib,other"), "rack03-ib");
  EXPECT_EQ(host_of("n1"), "n1");
  EXPECT_EQ(host_of("n1,n2"), "n1");
  EXPECT_EQ(host_of("n[7,9]"), "n7");
  EXPECT_EQ(host_of("login,n[7-9]"), "login");
  EXPECT_EQ(host_of("r[2-3]n[01,05]x"), "r2n01x");
}

TEST(Slurm, MeetsOnLoopbackWhereTheStepHasOneNode) {
  const auto alone = merged(kSrun, {{"SLURM_NNODES", "1"}, {"SLURM_STEP_NODELIST", "n1"}});
  EXPECT_EQ(slurm_place(alone).first, "127.0.0.1");
  EXPECT_EQ(discover(alone).value().local_size, 4);
  // An allocation of two nodes, and a step on one of them.
  EXPECT_EQ(slurm_place(merged(kSrun, {{"SLURM_STEP_NUM_NODES", "1"}})).first, "127.0.0.1");
}

TEST(Slurm, UnderPmixIsSlurm) {
  const auto found =
      discover(merged(kSrun, {{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "slurm.pmix"}}));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found.value().source, "Slurm");
  EXPECT_EQ(found.value().size, 4);
}

TEST(Reasons, NameWhatWasSeenAndWhatWasLeftAside) {
  const auto reason = [](const Environment& environment) {
    const auto found = discover(environment);
    return found.has_value() ? found.value().reason : std::string(found.error().message());
  };
  EXPECT_EQ(reason({}).find('='), std::string::npos);  // no variable
  EXPECT_THAT(reason(kHydra), tells("PMI_RANK=1", "PMI_SIZE=2"));
  EXPECT_THAT(reason(merged(kSrun, kHydra)), tells("PMI_RANK=1", "PMI_SIZE=2", "aside", "Slurm",
                                                   "SLURM_STEP_ID=0", "SLURM_NTASKS=4"));
  EXPECT_THAT(reason(merged(kTorchrun, {{"SLURM_NTASKS", "2"}})),
              tells("RANK=3", "LOCAL_RANK=1", "aside", "Slurm", "SLURM_NTASKS=2"));
  EXPECT_THAT(reason({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}),
              tells("SLURM_NTASKS=4", "SLURM_STEP_ID"));
}

TEST(Arguments, ComeBeforeTheEnvironment) {
  const auto none = [](const std::string&) { return std::optional<std::string>(); };
  const auto torchrun = [](const std::string& name) -> std::optional<std::string> {
    const auto found = kTorchrun.find(name);
    if (found == kTorchrun.end()) return std::nullopt;
    return found->second;
  };
  const LaunchArguments said{
      .rank = 1, .size = 3, .local_rank = 0, .rendezvous = "h:9", .job = "j"};
  for (const EnvLookup& env : {EnvLookup(none), EnvLookup(torchrun)}) {
    const auto found = discover_launch(env, said);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found.value().source, "arguments");
    EXPECT_EQ(found.value().rank, 1);
    EXPECT_EQ(found.value().size, 3);
    EXPECT_EQ(found.value().local_rank, 0);
    EXPECT_EQ(found.value().rendezvous, "h:9");
    EXPECT_EQ(found.value().job, "j");
  }
  const auto refused = [&](const LaunchArguments& arguments) {
    return discover_launch(none, arguments).error();
  };
  EXPECT_THAT(refused({.rank = 1}), fails(Code::kInvalidArgument, "size", "rank"));
  EXPECT_THAT(refused({.rank = 3, .size = 3}),
              fails(Code::kInvalidArgument, "rank", "'3'", "0 to 2"));
  EXPECT_THAT(refused({.rank = 0, .size = 0}),
              fails(Code::kInvalidArgument, "size", "'0'", "1 to 65536"));
}

struct Refused {
  const char* name;
  Environment environment;
  // The first is what is to be changed: the message begins with it.
  std::vector<std::string> named;
};

class BadEnvironments : public ::testing::TestWithParam<Refused> {};

TEST_P(BadEnvironments, AreRefusedByName) {
  const auto found = discover(GetParam().environment);
  ASSERT_FALSE(found.has_value());
  EXPECT_TRUE(found.error().message().starts_with(GetParam().named[0])) << found.error().message();
  for (const std::string& name : GetParam().named) {
    EXPECT_THAT(found.error(), fails(Code::kInvalidArgument, name));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BadEnvironments,
    ::testing::Values(
        Refused{"no_size", {{"GRADWIRE_RANK", "1"}}, {"GRADWIRE_WORLD_SIZE", "GRADWIRE_RANK"}},
        Refused{
            "no_rank", {{"GRADWIRE_WORLD_SIZE", "1"}}, {"GRADWIRE_RANK", "GRADWIRE_WORLD_SIZE"}},
        Refused{"no_rendezvous",
                {{"GRADWIRE_RANK", "1"}, {"GRADWIRE_WORLD_SIZE", "2"}},
                {"GRADWIRE_RENDEZVOUS", "GRADWIRE_RANK", "host:port", "file://DIR"}},
        Refused{"rank_too_large",
                {{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}},
                {"OMPI_COMM_WORLD_RANK", "'4'", "0 to 3"}},
        Refused{"size_is_text",
                {{"PMI_RANK", "0"}, {"PMI_SIZE", "two"}},
                {"PMI_SIZE", "'two'", "1 to 65536"}},
        Refused{"size_is_empty",
                {{"PALS_RANKID", "0"}, {"PALS_SIZE", ""}},
                {"PALS_SIZE", "''", "1 to 65536"}},
        Refused{"rank_alone", {{"RANK", "0"}}, {"WORLD_SIZE", "RANK"}},
        Refused{
            "torchrun_without_size", {{"RANK", "0"}, {"LOCAL_RANK", "0"}}, {"WORLD_SIZE", "RANK"}},
        Refused{"half_an_address",
                merged(kTorchrun, {{"MASTER_PORT", "http"}}),
                {"MASTER_PORT", "'http'", "1 to 65535"}},
        Refused{"address_without_port",
                {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}},
                {"MASTER_PORT", "MASTER_ADDR"}},
        Refused{"local_rank_alone", {{"LOCAL_RANK", "0"}}, {"RANK", "LOCAL_RANK"}},
        Refused{
            "pmi_fd", merged(kHydra, {{"PMI_FD", "six"}}), {"PMI_FD", "'six'", "0 to 2147483647"}},
        Refused{"more_ranks_here_than_there_are",
                merged(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}}),
                {"LOCAL_WORLD_SIZE", "'5'", "1 to 4"}},
        Refused{"slurm_without_nodes",
                merged(kSrun, {{"SLURM_STEP_NODELIST", "n[7"}}),
                {"SLURM_STEP_NODELIST", "'n[7'", "unmatched"}},
        Refused{"slurm_without_rank",
                {{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}},
                {"SLURM_PROCID", "SLURM_NTASKS"}},
        Refused{"slurm_tasks",
                merged(kSrun, {{"SLURM_NTASKS", "-4"}}),
                {"SLURM_NTASKS", "'-4'", "1 to 2147483647"}}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace gradwire::launch_test
