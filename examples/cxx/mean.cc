// Each rank has a number; all of them learn the mean.
//   gradwire run -n 4 -- build/mean        or mpirun, srun, torchrun --no-python, ...
#include <cstdio>
#include <cstdlib>

#include "gradwire/gradwire.h"

namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

gradwire::Status run() {
  GW_ASSIGN(const gradwire::LaunchInfo launch, gradwire::discover_launch(environment));
  const std::string secret = environment("GRADWIRE_SECRET").value_or("");  // of gradwire run
  GW_ASSIGN(const gradwire::Rendezvous rendezvous, gradwire::open_rendezvous(launch, secret));
  GW_ASSIGN(const auto communicator, gradwire::make_communicator("tcp", rendezvous));
  double number = communicator->rank();
  const gradwire::TensorView mean(reinterpret_cast<std::byte*>(&number), gradwire::Shape::vector(1),
                                  gradwire::DType::kF64);
  GW_ASSIGN(gradwire::Work work, communicator->all_reduce(mean, gradwire::ReduceOp::kMean));
  GW_TRY(work.wait());
  if (communicator->rank() == 0)
    std::printf("mean of %d ranks: %g\n", communicator->size(), number);
  return {};
}

}  // namespace

int main() {
  const gradwire::Status status = run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "mean: %s\n", std::string(status.message()).c_str());
  return 1;
}
