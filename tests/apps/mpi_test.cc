// Which library an MPI program gets, and which launchers are refused.
#include "apps/mpi/mpi.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::mpi_test {
namespace {

using Environment = std::map<std::string, std::string>;

Result<std::string> choose(const Environment& environment, const LinkedMpi& linked,
                           const std::string& wanted = "auto") {
  const EnvLookup env = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
  GW_ASSIGN(const LaunchInfo launch, discover_launch(env));
  return choose_mpi(linked, launch, env, wanted);
}

const LinkedMpi kNone;
const LinkedMpi kOpen{"openmpi", "libmpi.so.40"};
const LinkedMpi kMpich{"mpich", "libmpich.so.12"};
const Environment kByOpen{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
const Environment kByHydra{
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_FD", "6"}, {"MPI_LOCALRANKID", "0"}};
const Environment kSrun{
    {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NNODES", "1"}};

Environment with(Environment first, const Environment& second) {
  first.insert(second.begin(), second.end());
  return first;
}

TEST(ChooseMpi, GoesByTheProgramElseByTheLauncher) {
  EXPECT_EQ(choose(kByOpen, kOpen).value(), "openmpi");
  EXPECT_EQ(choose(kByOpen, kNone).value(), "openmpi");
  EXPECT_EQ(choose(kByHydra, kMpich).value(), "mpich");
  EXPECT_EQ(choose(kByHydra, kNone).value(), "mpich");
  EXPECT_EQ(choose({}, kOpen).value(), "openmpi");
  EXPECT_EQ(choose({}, kNone, "mpich").value(), "mpich");
  EXPECT_EQ(choose(with(kSrun, {{"PMIX_RANK", "0"}}), kOpen).value(), "openmpi");
  EXPECT_EQ(choose(with(kSrun, {{"PMIX_RANK", "0"}}), kNone).value(), "openmpi");
  const Environment pmi2{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_FD", "6"}};
  EXPECT_EQ(choose(with(kSrun, pmi2), kMpich).value(), "mpich");
  EXPECT_EQ(choose(with(kSrun, pmi2), kNone).value(), "mpich");
}

// The whole sentences of this family.
TEST(ChooseMpi, RefusesTheLauncherOfAnotherMpiByName) {
  const auto why = [](const Environment& environment, const LinkedMpi& linked,
                      const std::string& wanted = "auto") {
    const auto chosen = choose(environment, linked, wanted);
    return chosen.has_value() ? chosen.value() : std::string(chosen.error().message());
  };
  EXPECT_EQ(why(kByOpen, kMpich),
            "mpi: a program of MPICH (libmpich.so.12) was started by the launcher of Open "
            "MPI (OMPI_COMM_WORLD_RANK=0 and OMPI_COMM_WORLD_SIZE=2), under which each process is "
            "a job of its own; use mpirun.mpich");
  EXPECT_EQ(why(kByHydra, kOpen),
            "mpi: a program of Open MPI (libmpi.so.40) was started by the launcher of MPICH "
            "(PMI_RANK=0 and PMI_SIZE=2), under which each process is a job of its own; use "
            "mpirun.openmpi");
  EXPECT_EQ(why(kSrun, kOpen),
            "mpi: srun started 2 tasks without MPI (SLURM_STEP_ID=0 and SLURM_NTASKS=2; use srun "
            "--mpi=pmix for Open MPI, --mpi=pmi2 for MPICH)");
  EXPECT_EQ(why({{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "2"}}, kOpen),
            "mpi: torchrun does not start MPI programs (RANK=0 and LOCAL_RANK=0; use "
            "mpirun.openmpi, mpirun.mpich or srun --mpi=...)");
  EXPECT_EQ(why(kByOpen, kOpen, "mpich"),
            "mpi: the program links Open MPI (got libmpi.so.40, expected --mpi openmpi or auto)");
  EXPECT_EQ(why({}, kNone),
            "mpi: neither the program's libraries nor a launcher tell which MPI it uses; use --mpi "
            "openmpi or --mpi mpich");
}

TEST(LinkedMpi, IsKnownByTheNamesOfItsLibraries) {
  const auto name = [](const std::vector<std::string>& libraries) {
    return mpi_among(libraries).value().name;
  };
  EXPECT_EQ(name({}), "");
  EXPECT_EQ(name({"libc.so.6", "libm.so.6", "libmpio.so"}), "");
  EXPECT_EQ(name({"libc.so.6", "libmpi.so.40", "libmpi_mpifh.so.40"}), "openmpi");
  EXPECT_EQ(name({"libmpichfort.so.12", "libmpich.so.12"}), "mpich");
  EXPECT_EQ(name({"libmpi.so.12"}), "mpich");
  const auto both = mpi_among({"libmpi.so.40", "libmpich.so.12"});
  ASSERT_FALSE(both.has_value());
  EXPECT_THAT(both.error(), fails(Code::kInvalidArgument, "libmpi.so.40", "libmpich.so.12"));
}

TEST(LinkedMpi, IsNoneOfScriptsAndOfProgramsWithoutIt) {
  const TemporaryFolder folder;
  const std::string script = folder.path() + "/script";
  std::ofstream(script) << "#!/bin/sh\nexit 0\n";
  EXPECT_EQ(linked_mpi(script).value().name, "");
  const std::string torn = folder.path() + "/torn";
  std::ofstream(torn) << "\177ELF\2\1\1";
  EXPECT_EQ(linked_mpi(torn).value().name, "");
  EXPECT_EQ(linked_mpi("/proc/self/exe").value().name, "");
  EXPECT_EQ(linked_mpi(folder.path() + "/absent").value().name, "");
}

}  // namespace
}  // namespace gradwire::mpi_test
