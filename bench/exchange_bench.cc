#include "bench/exchange_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "bench/codec_bench.h"
#include "bench/collective_bench.h"
#include "gradwire/aggregator.h"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;
using What = ExchangeRow::What;

constexpr int kFirstRounds = 3;  // not counted: memory is taken, and connections are made
constexpr int kTensors = 32;
constexpr int kBuckets = 8;
constexpr std::int64_t kFew = 16;  // elements of each of several tensors, and of a message

double exchange_seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Computation on memory of its own, larger than what a core's own caches hold.
class OtherWork {
 public:
  explicit OtherWork(double seconds) : seconds_(seconds) {}

  void run() {
    const Clock::time_point begin = Clock::now();
    while (exchange_seconds(begin) < seconds_) {
      constexpr std::size_t kAtOnce = 4096;
      for (std::size_t i = 0; i < kAtOnce; ++i) values_[at_ + i] = 0.5F * values_[at_ + i] + 1.0F;
      at_ = (at_ + kAtOnce) % values_.size();
    }
  }

 private:
  double seconds_;
  std::size_t at_ = 0;
  std::vector<float> values_ = std::vector<float>(std::size_t{1} << 18, 1.0F);
};

// Gradients of one shape and their aggregator.
class Step {
 public:
  static Result<std::unique_ptr<Step>> create(Communicator& communicator, const Registry& registry,
                                              const ExchangeRow& row) {
    auto step = std::make_unique<Step>();
    AggregatorOptions options;
    options.compressor = "none";
    if (row.compressor != "none") {
      GW_ASSIGN(options.compressor, bare_spec(row.compressor));
    }
    if (row.what == What::kBuckets) {
      options.bucket_bytes = row.elements * static_cast<std::int64_t>(sizeof(float));
    }
    GW_ASSIGN(step->aggregator_, Aggregator::create(communicator, registry, options));
    const RandomStream draw(1, RandomUse::kTest, 0, communicator.rank(), 0, 0);
    step->written_.resize(static_cast<std::size_t>(row.elements));
    for (std::size_t i = 0; i < step->written_.size(); ++i) {
      step->written_[i] = draw.uniform(i) - 0.5F;
    }
    step->gradients_.assign(static_cast<std::size_t>(row.count), step->written_);
    for (int i = 0; i < row.count; ++i) {
      auto& gradient = step->gradients_[static_cast<std::size_t>(i)];
      const TensorView view(reinterpret_cast<std::byte*>(gradient.data()), matrix_of(row.elements),
                            DType::kF32);
      GW_TRY(step->aggregator_->add("gradient" + std::to_string(i), view));
    }
    return step;
  }

  // As backward does.
  void write() {
    for (auto& gradient : gradients_) std::ranges::copy(written_, gradient.begin());
  }
  Status exchange() {
    for (std::size_t i = gradients_.size(); i-- > 0;) {
      GW_TRY(aggregator_->ready(static_cast<int>(i)));
    }
    return aggregator_->finish();
  }

 private:
  std::vector<float> written_;
  std::vector<std::vector<float>> gradients_;
  std::unique_ptr<Aggregator> aggregator_;
};

double median_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

Status exchange_all(Communicator& communicator, std::span<double> values, ReduceOp op) {
  GW_ASSIGN(Work work, communicator.all_reduce(view_of(values), op));
  return work.wait();
}

Status time_exchange(Communicator& communicator, const Registry& registry,
                     const ExchangeBenchOptions& options, OtherWork& other, ExchangeRow& row) {
  GW_ASSIGN(const auto step, Step::create(communicator, registry, row));
  std::vector<double> seconds;
  for (int round = -kFirstRounds; round < options.rounds; ++round) {
    other.run();
    step->write();
    const Clock::time_point begin = Clock::now();
    GW_TRY(step->exchange());
    if (round >= 0) seconds.push_back(exchange_seconds(begin));
  }
  // The rank that began first waited for the other one.
  GW_TRY(exchange_all(communicator, seconds, ReduceOp::kMin));
  row.seconds = median_of(std::move(seconds));
  return {};
}

Status pass_message(Communicator& communicator, std::span<float> values, bool sends) {
  GW_ASSIGN(Work work, sends ? communicator.send(view_of(values), 1 - communicator.rank())
                             : communicator.recv(view_of(values), 1 - communicator.rank()));
  return work.wait();
}

Status time_message(Communicator& communicator, const ExchangeBenchOptions& options,
                    OtherWork& other, ExchangeRow& row) {
  const bool first = communicator.rank() == 0;
  std::vector<float> values(static_cast<std::size_t>(row.elements), 1.0F);
  std::vector<double> seconds;
  for (int round = -kFirstRounds; round < options.rounds; ++round) {
    if (first) other.run();
    const Clock::time_point begin = Clock::now();
    GW_TRY(pass_message(communicator, values, first));
    const double sent = exchange_seconds(begin);
    GW_TRY(pass_message(communicator, values, !first));
    const double half = exchange_seconds(begin) / 2;
    if (round >= 0) seconds.push_back(!first ? 0 : row.what == What::kSend ? sent : half);
  }
  GW_TRY(exchange_all(communicator, seconds, ReduceOp::kMax));
  row.seconds = median_of(std::move(seconds));
  return {};
}

Status check_exchanges(const ExchangeBenchOptions& options, int ranks) {
  const auto refuse = [](const std::string& why) {
    return Status(Code::kInvalidArgument, "bench exchange: " + why);
  };
  if (ranks != 2) return refuse(format("got %d ranks, expected 2", ranks));
  if (options.rounds < 1) return refuse(format("rounds=%d (expected 1 or more)", options.rounds));
  for (const std::int64_t elements : options.elements) {
    if (elements >= 1) continue;
    return refuse(format("elements=%lld (expected 1 or more)", static_cast<long long>(elements)));
  }
  return {};
}

}  // namespace

std::string to_string(ExchangeRow::What what) {
  switch (what) {
    case What::kExchange: return "exchange";
    case What::kTensors: return "tensors";
    case What::kBuckets: return "buckets";
    case What::kMessage: return "message";
    case What::kSend: return "send";
  }
  return "";
}

Status bench_exchanges(Communicator& communicator, const Registry& registry,
                       const ExchangeBenchOptions& options,
                       const std::function<Status(const ExchangeRow&)>& on_row) {
  GW_TRY(check_exchanges(options, communicator.size()));
  std::vector<ExchangeRow> rows;
  for (const std::string& compressor : options.compressors) {
    for (const std::int64_t elements : options.elements) {
      rows.push_back({What::kExchange, compressor, elements, 1, 0});
    }
  }
  rows.push_back({What::kTensors, "none", kFew, kTensors, 0});
  rows.push_back({What::kBuckets, "none", kFew, 1, 0});
  rows.push_back({What::kBuckets, "none", kFew, kBuckets, 0});
  rows.push_back({What::kMessage, "", kFew, 1, 0});
  rows.push_back({What::kSend, "", kFew, 1, 0});
  OtherWork other(options.pause_seconds);
  for (ExchangeRow& row : rows) {
    if (row.what == What::kMessage || row.what == What::kSend) {
      GW_TRY(time_message(communicator, options, other, row));
    } else {
      GW_TRY(time_exchange(communicator, registry, options, other, row));
    }
    if (communicator.rank() == 0) GW_TRY(on_row(row));
  }
  return {};
}

}  // namespace gradwire::bench
