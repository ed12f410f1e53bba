// The README's minute of library use; tests/lint/readme_test.py holds the two equal.
#include <atomic>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "gradwire/gradwire.h"

using namespace gradwire;

// One rank: averages its gradient with the others' under a compressor's spec.
Status train_a_step(Communicator& world, std::vector<float>& gradient) {
  AggregatorOptions options;
  options.compressor = "topk:ratio=0.01,ef=ef14";  // "none" for the exact mean
  GW_ASSIGN(const auto aggregator, Aggregator::create(world, Registry::builtin(), options));
  const TensorView view(reinterpret_cast<std::byte*>(gradient.data()), Shape::matrix(512, 256),
                        DType::kF32);
  GW_TRY(aggregator->add("layer.weight", view));

  GW_TRY(aggregator->ready(0));  // as soon as backward has written it
  GW_TRY(aggregator->finish());  // now it holds the mean over ranks
  const AggregateStats stats = aggregator->stats();
  if (world.rank() == 0) {
    std::printf("%llu bytes of gradient, %llu bytes of payload\n",
                static_cast<unsigned long long>(stats.gradient_bytes),
                static_cast<unsigned long long>(stats.payload_bytes));
  }
  return {};
}

// Four ranks as threads; with processes it is make_communicator("auto", rendezvous).
int main() {
  auto ranks = make_inproc_communicators(4);
  if (!ranks.has_value()) return 1;
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (auto& world : ranks.value()) {
    threads.emplace_back([&world, &failures] {
      std::vector<float> gradient(512 * 256);
      std::iota(gradient.begin(), gradient.end(), static_cast<float>(world->rank()));
      const Status status = train_a_step(*world, gradient);
      if (status.ok()) return;
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures == 0 ? 0 : 1;
}
