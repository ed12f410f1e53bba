// How long small all-reduces take while large ones are under way, and what they cost these.
//
//   gradwire run -n 2 -- small_beside_large TRANSPORT [SECONDS PERIOD_US LARGE_MIB LARGE
//   SMALL_BYTES]
//
// LARGE all-reduces of LARGE_MIB are always under way: one that has ended is followed by the next.
// Every PERIOD_US the caller starts a small one beside them and waits for it. Slices with and
// without small ones take turns. Rank 0 prints one line of JSON: the small ones' time, and the
// large ones' rate in bytes reduced each second, with and without.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradwire/gradwire.h"

namespace {

using namespace gradwire;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string transport = "auto";
  double seconds = 10;  // of all slices
  int period_us = 2000;
  int large_mib = 64;
  int large = 4;
  int small_bytes = 4096;
};

constexpr int kSlices = 10;  // half of them with small ones

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TensorView view_of(std::vector<float>& data) {
  return {reinterpret_cast<std::byte*>(data.data()),
          Shape::vector(static_cast<std::int64_t>(data.size())), DType::kF32};
}

// At q of the values, sorted.
double quantile(std::vector<double>& values, double q) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[static_cast<std::size_t>(q * double(values.size() - 1))];
}

class Bench {
 public:
  Bench(Communicator& world, const Settings& settings)
      : world_(world),
        settings_(settings),
        small_(static_cast<std::size_t>(settings.small_bytes) / sizeof(float)),
        large_(static_cast<std::size_t>(settings.large),
               std::vector<float>(static_cast<std::size_t>(settings.large_mib) << 18)) {}

  Status run() {
    GW_ASSIGN(const double trial, slice(false, settings_.large * 4));
    std::vector<float> number{static_cast<float>(settings_.seconds / kSlices * trial /
                                                 (settings_.large_mib * double(1 << 20)))};
    GW_ASSIGN(Work work, world_.broadcast(view_of(number), 0));
    GW_TRY(work.wait());
    const int count = std::max(settings_.large * 4, static_cast<int>(number[0]));
    micros_.clear();
    for (int i = 0; i < kSlices; ++i) {
      const bool with_small = i % 2 == 0;
      GW_ASSIGN(const double rate, slice(with_small, count));
      (with_small ? with_ : without_).push_back(rate);
    }
    return {};
  }

  void print() {
    if (world_.rank() != 0) return;
    const double with = quantile(with_, 0.5);
    const double without = quantile(without_, 0.5);
    std::printf(
        "{\"transport\":\"%s\",\"ranks\":%d,\"small_bytes\":%d,\"large_mib\":%d,\"large\":%d,"
        "\"period_us\":%d,\"small_runs\":%zu,\"small_p50_us\":%.1f,\"small_p99_us\":%.1f,"
        "\"large_gb_s_without\":%.3f,\"large_gb_s_with\":%.3f,\"ratio\":%.3f}\n",
        settings_.transport.c_str(), world_.size(), settings_.small_bytes, settings_.large_mib,
        settings_.large, settings_.period_us, micros_.size(), quantile(micros_, 0.5),
        quantile(micros_, 0.99), without * 1e-9, with * 1e-9, with / without);
  }

 private:
  struct UnderWay {
    Work work;
    std::size_t tensor;
  };

  // Runs so many large ones; their rate. The ranks of one with small ones tell each other by these
  // which large ones have ended, so that all start the next ones at the same place.
  Result<double> slice(bool with_small, int count) {
    const Clock::time_point start = Clock::now();
    int to_start = count;
    while (true) {
      while (under_way_.size() < large_.size() && to_start > 0) {
        const auto tensor = static_cast<std::size_t>(to_start--) % large_.size();
        GW_ASSIGN(Work work, world_.all_reduce(view_of(large_[tensor]), ReduceOp::kSum));
        under_way_.push_back({std::move(work), tensor});
      }
      if (under_way_.empty()) break;
      std::this_thread::sleep_for(std::chrono::microseconds(settings_.period_us));
      for (std::size_t i = 0; i < under_way_.size(); ++i) {
        small_[i] = under_way_[i].work.done() ? 1.0f : 0.0f;
      }
      if (with_small) GW_TRY(run_small());
      const auto all = with_small ? static_cast<float>(world_.size()) : 1.0f;
      for (std::size_t i = 0; !under_way_.empty() && small_[i] == all; ++i) {
        GW_TRY(under_way_.front().work.wait());
        under_way_.pop_front();
        if (under_way_.empty()) break;
      }
    }
    return double(count) * settings_.large_mib * (1 << 20) / seconds_since(start);
  }

  Status run_small() {
    const bool beside = under_way_.size() == large_.size() && !under_way_.back().work.done();
    const Clock::time_point start = Clock::now();
    GW_ASSIGN(Work work, world_.all_reduce(view_of(small_), ReduceOp::kSum));
    GW_TRY(work.wait());
    if (beside) micros_.push_back(seconds_since(start) * 1e6);
    return {};
  }

  Communicator& world_;
  Settings settings_;
  std::vector<float> small_;
  std::vector<std::vector<float>> large_;
  std::deque<UnderWay> under_way_;
  std::vector<double> micros_;
  std::vector<double> with_;
  std::vector<double> without_;
};

Status run(const Settings& settings) {
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  const std::string secret = environment("GRADWIRE_SECRET").value_or("");  // of gradwire run
  GW_ASSIGN(const Rendezvous rendezvous, open_rendezvous(launch, secret));
  GW_ASSIGN(const auto world, make_communicator(settings.transport, rendezvous));
  Bench bench(*world, settings);
  GW_TRY(bench.run());
  bench.print();
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  const auto number = [&](int at, auto& into) {
    if (argc > at) into = static_cast<std::remove_reference_t<decltype(into)>>(std::atof(argv[at]));
  };
  if (argc > 1) settings.transport = argv[1];
  number(2, settings.seconds);
  number(3, settings.period_us);
  number(4, settings.large_mib);
  number(5, settings.large);
  number(6, settings.small_bytes);
  if (settings.large < 1 || settings.large_mib < 1 || settings.period_us < 1 ||
      settings.small_bytes < 4 * (settings.large + 1)) {
    std::fprintf(stderr,
                 "small_beside_large: TRANSPORT SECONDS PERIOD_US LARGE_MIB LARGE SMALL_BYTES "
                 "(expected 1 or more of each, and 4 bytes of a small one for each large one)\n");
    return 2;
  }
  const Status status = run(settings);
  if (!status.ok()) {
    std::fprintf(stderr, "small_beside_large: %s\n", std::string(status.message()).c_str());
  }
  return status.ok() ? 0 : 1;
}
