// Averages a gradient over all ranks, of which each sends its largest hundredth.
//   gradwire run -n 4 -- build/compressed_mean        or mpirun, srun, torchrun --no-python, ...
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gradwire/gradwire.h"

using namespace gradwire;

Status run() {
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  const std::string secret = environment("GRADWIRE_SECRET").value_or("");  // of gradwire run
  GW_ASSIGN(const Rendezvous rendezvous, open_rendezvous(launch, secret));
  GW_ASSIGN(const auto world, make_communicator("auto", rendezvous));

  AggregatorOptions options;
  options.compressor = "topk:ratio=0.01,ef=ef14";  // "none" for the exact mean
  GW_ASSIGN(const auto aggregator, Aggregator::create(*world, Registry::builtin(), options));
  std::vector<float> gradient(512 * 256, 1.0F);
  const TensorView view(reinterpret_cast<std::byte*>(gradient.data()), Shape::matrix(512, 256),
                        DType::kF32);
  GW_TRY(aggregator->add("layer.weight", view));

  for (int step = 0; step < 10; ++step) {
    GW_TRY(aggregator->ready(0));  // as soon as backward has written the gradient
    GW_TRY(aggregator->finish());  // waits; gradient now holds the mean over ranks
  }
  const AggregateStats stats = aggregator->stats();
  if (world->rank() == 0)
    std::printf("%d ranks: %llu bytes of gradients, %llu bytes of payload\n", world->size(),
                static_cast<unsigned long long>(stats.gradient_bytes),
                static_cast<unsigned long long>(stats.payload_bytes));
  return {};
}

int main() {
  const Status status = run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
