#include "tests/gpu/messages/device_laws.h"

#include <memory>
#include <vector>

#include "device/cuda/stream.h"
#include "tests/gpu/nccl/staged_communicator.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"
#include "tests/support/short_run.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

constexpr Device kDevice{MemorySpace::kCuda, 0};

using Program = std::string (*)(Communicator& world);

// On one rank: the programs, one after another, and that what they did went through the host, but
// where a transport says that it need not.
std::string play(std::unique_ptr<Communicator> world, const DeviceJob& job,
                 const std::vector<Program>& programs) {
  const std::string said = world->describe();
  const bool direct = said.find("CUDA memory as it is") != std::string::npos;
  auto stream = cuda::OwnedStream::create(kDevice);
  if (!stream.has_value()) return std::string(stream.error().message());
  gpu::StagedCommunicator staged(std::move(world), kDevice, gpu::Serves::kEverything,
                                 stream.value().stream().native);
  for (const Program program : programs) {
    if (std::string fault = program(staged); !fault.empty()) return fault;
  }
  if (job.direct && !direct) return "the transport does not take the device's memory: " + said;
  const bool through_host = staged.transport_stats().bytes_staged > 0;
  return through_host || direct || job.ranks == 1 ? "" : "nothing was staged";
}

void run(const DeviceJob& job, const std::vector<Program>& programs) {
  if (job.backend != "inproc") {
    EXPECT_THAT(on_processes(
                    job.ranks, {.deadline_seconds = 60}, 240,
                    [&](std::unique_ptr<Communicator> world) {
                      return play(std::move(world), job, programs);
                    },
                    {}, job.backend),
                ended_cleanly(job.ranks));
    return;
  }
  auto made = make_inproc_communicators(job.ranks);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const auto faults = on_threads<std::string>(job.ranks, [&](int rank) {
    return play(std::move(made.value()[static_cast<std::size_t>(rank)]), job, programs);
  });
  for (std::size_t r = 0; r < faults.size(); ++r) EXPECT_EQ(faults[r], "") << "rank " << r;
}

std::string sample_the_product(Communicator& world) {
  const Sizes sizes{.elems = {1, world.size() + 1, 997, 65537},
                    .stride = is_short_run() ? 29 : 13,
                    .first = 7 * world.size()};
  if (std::string fault = reduce_exactly(world, sizes); !fault.empty()) return fault;
  return move_exactly(world, sizes);
}

TEST_P(DeviceLaws, Reductions) { run(GetParam(), {reduce_everything, reduce_large}); }
TEST_P(DeviceLaws, Movements) { run(GetParam(), {move_everything, move_large}); }
TEST_P(DeviceLaws, Product) { run(GetParam(), {sample_the_product}); }
TEST_P(DeviceLaws, Forms) {
  run(GetParam(),
      {keep_nans, work_in_place_and_apart, run_again_and_again, run_batches, reduce_fused});
}
TEST_P(DeviceLaws, Groups) { run(GetParam(), {split_and_split_again, many_outstanding}); }

}  // namespace
}  // namespace gradwire
