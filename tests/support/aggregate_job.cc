#include "tests/support/aggregate_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "base/elements.h"
#include "base/philox.h"
#include "compress/error_feedback/stored_residual.h"
#include "device/copy_lane.h"
#include "device/ops.h"
#include "gradwire/buffer.h"
#include "gradwire/schedule.h"

namespace gradwire::testing {
namespace {

constexpr double kDeviceSeconds = 30;  // of a copy
using State = std::map<std::string, Flat>;

std::int64_t elems_of(const Job& job) {
  std::int64_t elems = 0;
  for (const JobTensor& tensor : job.tensors) elems += tensor.shape.elems();
  return elems;
}

Saved save(Aggregator& aggregator) {
  Saved saved;
  for (const NamedTensor& entry : aggregator.state()) {
    const auto bytes = entry.tensor.bytes();
    saved.push_back(
        {entry.name, entry.tensor.shape(), entry.tensor.dtype(), {bytes.begin(), bytes.end()}});
  }
  return saved;
}

std::vector<NamedTensor> views(Saved& saved) {
  std::vector<NamedTensor> all;
  for (SavedTensor& entry : saved) {
    all.push_back({entry.name, TensorView(entry.bytes.data(), entry.shape, entry.dtype)});
  }
  return all;
}

State floats(const Saved& saved) {
  State state;
  for (const SavedTensor& entry : saved) {
    if (entry.dtype != DType::kF32) continue;
    Flat& values = state[entry.name];
    values.resize(entry.bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  }
  return state;
}

// One rank of a job.
class JobRank {
 public:
  // A step that ended in an error may have left a copy of memory_ on the stream.
  ~JobRank() {
    if (lane_ != nullptr) (void)lane_->finish(kDeviceSeconds);
  }
  JobRank(const JobRank&) = delete;
  JobRank& operator=(const JobRank&) = delete;
  JobRank(const Job& job, Communicator& communicator)
      : job_(job), communicator_(communicator), rank_(communicator.rank()) {
    for (const JobTensor& tensor : job.tensors) {
      offsets_.push_back(memory_.size());
      memory_.resize(memory_.size() + static_cast<std::size_t>(tensor.shape.elems()) +
                     (job.contiguous ? 0 : 3));
    }
    sum_of_own.assign(static_cast<std::size_t>(elems_of(job)), 0.0);
  }

  Status run() {
    GW_TRY(place());
    GW_TRY(build());
    if (!job_.start.empty() || !job_.start_saved.empty()) GW_TRY(load_start());
    for (int step = 0; step < job_.steps; ++step) {
      if (step > 0 && step == job_.restart_after) GW_TRY(restart());
      before_last = aggregator_->stats();
      GW_TRY(one_step(step));
    }
    stats = aggregator_->stats();
    warnings = aggregator_->warnings();
    saved = save(*aggregator_);
    state = floats(saved);
    return {};
  }

  // The aggregator goes before the communicator that it was made from.
  void end() { aggregator_.reset(); }

  std::vector<Flat> means;
  std::vector<double> sum_of_own;
  State state;
  Saved saved;
  AggregateStats stats, before_last;
  std::vector<std::string> warnings;

 private:
  bool on_device() const { return job_.device.space == MemorySpace::kCuda; }
  ByteSpan bytes() { return std::as_writable_bytes(std::span(memory_)); }
  TensorView view(std::size_t i) {
    std::byte* const first = on_device() ? there_.bytes().data() : bytes().data();
    return {first + offsets_[i] * sizeof(float), job_.tensors[i].shape, DType::kF32, job_.device};
  }
  Stream stream() const { return on_device() ? lane_->to_device() : Stream{}; }

  Status place() {
    if (!on_device()) return {};
    GW_ASSIGN(there_, Buffer::allocate(bytes().size(), job_.device));
    GW_ASSIGN(lane_, CopyLane::create(job_.device));
    return {};
  }
  // Enqueued: memory_ is not written before the aggregator has ended the step.
  Status send() {
    if (!on_device()) return {};
    return copy_bytes(bytes(), {}, there_.bytes(), job_.device, stream());
  }
  Status fetch() {
    if (!on_device()) return {};
    GW_TRY(copy_bytes(there_.bytes(), job_.device, bytes(), {}, stream()));
    return lane_->finish(kDeviceSeconds);
  }

  Status build() {
    AggregatorOptions options;
    options.compressor = job_.compressor;
    options.bucket_bytes = job_.bucket_bytes;
    options.seed = job_.seed;
    options.algorithm = job_.algorithm;
    options.allow_unsafe = job_.allow_unsafe;
    options.threads = job_.threads;
    options.form = job_.form;
    const Registry registry = job_.registry ? job_.registry(rank_) : Registry::builtin();
    GW_ASSIGN(aggregator_, Aggregator::create(communicator_, registry, options));
    for (std::size_t i = 0; i < job_.tensors.size(); ++i) {
      GW_TRY(aggregator_->add(job_.tensors[i].name, view(i)));
    }
    return {};
  }

  // What a checkpoint does; every rank keeps its own part here.
  Status restart() {
    Saved saved = save(*aggregator_);
    aggregator_.reset();
    GW_TRY(build());
    std::vector<std::vector<NamedTensor>> by_rank(static_cast<std::size_t>(job_.ranks),
                                                  views(saved));
    return aggregator_->load_state(by_rank);
  }

  Status load_start() {
    std::vector<Saved> saved = job_.start_saved;
    for (const auto& old : job_.start) {
      saved.emplace_back();
      for (const auto& [name, values] : old) {
        const auto bytes = std::as_bytes(std::span(values));
        saved.back().push_back({name,
                                Shape::vector(static_cast<std::int64_t>(values.size())),
                                DType::kF32,
                                {bytes.begin(), bytes.end()}});
      }
      const std::int64_t step = 0;
      const auto bytes = std::as_bytes(std::span(&step, 1));
      saved.back().push_back(
          {"aggregator.step", Shape::vector(1), DType::kI64, {bytes.begin(), bytes.end()}});
      saved.back().push_back({"aggregator.scales", Shape::vector(2), DType::kF64,
                              std::vector<std::byte>(2 * sizeof(double))});
    }
    std::vector<std::vector<NamedTensor>> by_rank;
    for (Saved& old : saved) by_rank.push_back(views(old));
    return aggregator_->load_state(by_rank);
  }

  void fill(int step) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < job_.tensors.size(); ++i) {
      const std::string& name = job_.tensors[i].name;
      const std::int64_t elems = job_.tensors[i].shape.elems();
      const std::span<float> out(memory_.data() + offsets_[i], static_cast<std::size_t>(elems));
      if (job_.gradient) {
        for (std::int64_t e = 0; e < elems; ++e) {
          out[static_cast<std::size_t>(e)] = job_.gradient(name, rank_, step, e);
        }
      } else {
        default_gradients(name, rank_, step, out);
      }
      for (const float value : out) sum_of_own[at++] += static_cast<double>(value);
    }
  }

  Status one_step(int step) {
    if (job_.learning_rate) GW_TRY(aggregator_->set_learning_rate(job_.learning_rate(step)));
    if (job_.loss_scale) GW_TRY(aggregator_->set_loss_scale(job_.loss_scale(step)));
    if (job_.overflow) {
      GW_ASSIGN(const bool left_out, aggregator_->skip_step(job_.overflow(rank_, step)));
      if (left_out) return {};
    }
    fill(step);
    GW_TRY(send());
    std::vector<int> order(job_.tensors.size());
    std::iota(order.rbegin(), order.rend(), 0);
    if (job_.permute) {
      const RandomStream random(3, RandomUse::kTest, 0, rank_, 0, static_cast<std::uint64_t>(step));
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[random.word(i) % i]);
      }
    }
    for (const int index : order) GW_TRY(aggregator_->ready(index, stream()));
    GW_TRY(aggregator_->finish());
    GW_TRY(fetch());
    means.emplace_back();
    for (std::size_t i = 0; i < job_.tensors.size(); ++i) {
      const float* begin = memory_.data() + offsets_[i];
      means.back().insert(means.back().end(), begin, begin + job_.tensors[i].shape.elems());
    }
    return {};
  }

  const Job& job_;
  Communicator& communicator_;
  int rank_;
  std::vector<float> memory_;
  std::vector<std::size_t> offsets_;
  Buffer there_;  // memory_ on the device
  std::unique_ptr<CopyLane> lane_;
  std::unique_ptr<Aggregator> aggregator_;
};

bool same_bytes(const Flat& a, const Flat& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The entry's values, decoded where they are stored in fewer bytes; empty without the entry.
std::vector<double> values_of(Saved& saved, const std::string& name) {
  std::vector<double> values;
  const std::vector<NamedTensor> entries = views(saved);
  for (const NamedTensor& entry : entries) {
    if (entry.name != name) continue;
    ConstTensorView scales = entry.tensor;
    for (const NamedTensor& other : entries) {
      if (other.name == name + ".scale") scales = other.tensor;
    }
    for (std::int64_t e = 0; e < entry.tensor.elems(); ++e) {
      values.push_back(stored_value(entry.tensor, scales, static_cast<std::size_t>(e)));
    }
  }
  return values;
}

// Times the number of ranks, by which the caller divides.
void add_outer(Saved& saved, const std::string& prefix, int ranks, std::vector<double>& sum) {
  for (const SavedTensor& entry : saved) {
    if (entry.name != prefix + "range") continue;
    std::array<std::int64_t, 4> place{};  // begin, end, nodes, node
    std::memcpy(place.data(), entry.bytes.data(), sizeof place);
    const double share = static_cast<double>(ranks) / static_cast<double>(place[2]);
    const std::vector<double> error = values_of(saved, prefix + "error");
    const auto begin = static_cast<std::size_t>(place[0]);
    for (std::size_t e = 0; e < error.size(); ++e) sum[begin + e] += error[e] * share;
    const auto part = static_cast<std::size_t>(
        piece(place[1] - place[0], static_cast<int>(place[2]), static_cast<int>(place[3])).begin);
    const std::vector<double> error2 = values_of(saved, prefix + "error2");
    for (std::size_t e = 0; e < error2.size(); ++e) sum[begin + part + e] += error2[e] * share;
  }
}

AggregateStats difference(const AggregateStats& a, const AggregateStats& b) {
  AggregateStats d;
  d.gradient_bytes = a.gradient_bytes - b.gradient_bytes;
  d.dense_ring_bytes = a.dense_ring_bytes - b.dense_ring_bytes;
  d.payload_bytes = a.payload_bytes - b.payload_bytes;
  d.wire_bytes = a.wire_bytes - b.wire_bytes;
  return d;
}

// Of every element, flat, the rank whose shard it is in.
std::vector<std::size_t> owners(const Job& job) {
  std::vector<std::size_t> all;
  for (const JobTensor& tensor : job.tensors) {
    for (int r = 0; r < job.ranks; ++r) {
      const auto count = piece(tensor.shape.elems(), job.ranks, r).size();
      all.insert(all.end(), static_cast<std::size_t>(count), static_cast<std::size_t>(r));
    }
  }
  return all;
}

void collect(const Job& job, std::vector<std::unique_ptr<JobRank>>& ranks, JobOutcome& outcome) {
  const std::vector<std::size_t> owner_of = owners(job);
  if (job.form == AggregateForm::kReduceScatter) {
    for (std::size_t step = 0; step < ranks[0]->means.size(); ++step) {
      for (std::size_t e = 0; e < owner_of.size(); ++e) {
        const float mean = ranks[owner_of[e]]->means[step][e];
        for (auto& rank : ranks) rank->means[step][e] = mean;
      }
    }
  }
  outcome.means = std::move(ranks[0]->means);
  outcome.warnings = ranks[0]->warnings;
  const auto elems = static_cast<std::size_t>(elems_of(job));
  outcome.sum_of_means.assign(elems, 0.0);
  outcome.sum_of_averages.assign(elems, 0.0);
  for (std::size_t step = 0; step < outcome.means.size(); ++step) {
    for (std::size_t e = 0; e < elems; ++e) outcome.sum_of_means[e] += outcome.means[step][e];
    for (std::size_t r = 1; r < ranks.size() && outcome.first_difference < 0; ++r) {
      if (!same_bytes(ranks[r]->means[step], outcome.means[step])) {
        outcome.first_difference = static_cast<int>(step);
      }
    }
  }
  for (const auto& rank : ranks) {
    for (std::size_t e = 0; e < elems; ++e) {
      const bool owned = rank == ranks[owner_of[e]];
      outcome.sum_of_averages[e] += job.form != AggregateForm::kAllGather
                                        ? rank->sum_of_own[e] / job.ranks
                                    : owned ? rank->sum_of_own[e]
                                            : 0;
    }
    outcome.state.push_back(rank->state);
    outcome.saved.push_back(rank->saved);
    outcome.stats.push_back(rank->stats);
    outcome.stats_of_last_step.push_back(difference(rank->stats, rank->before_last));
  }
}

}  // namespace

namespace {

template <typename Communicators, typename Body>
std::vector<Status> on_threads_of(Result<Communicators> communicators, const Body& body) {
  if (!communicators.has_value()) return {communicators.error()};
  std::vector<Status> outcomes(communicators.value().size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    threads.emplace_back([&, r] { outcomes[r] = body(communicators.value()[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

}  // namespace

std::vector<Status> on_ranks(int size, const RankBody& body, const CommunicatorOptions& options) {
  return on_threads_of(make_inproc_communicators(size, options), body);
}

JobOutcome run_job(const Job& job) {
  JobOutcome outcome;
  std::vector<std::unique_ptr<JobRank>> ranks(static_cast<std::size_t>(job.ranks));
  const auto body = [&](std::unique_ptr<GroupCommunicator>& communicator) -> Status {
    auto& rank = ranks[static_cast<std::size_t>(communicator->rank())];
    if (job.join) GW_TRY(job.join(*communicator));
    rank = std::make_unique<JobRank>(job, *communicator);
    const Status status = rank->run();
    rank->end();
    return status;
  };
  outcome.statuses = on_threads_of(
      make_inproc_groups(job.ranks,
                         {.deadline_seconds = job.deadline_seconds, .node_of = job.node_of}),
      body);
  for (const Status& status : outcome.statuses) {
    if (outcome.status.ok()) outcome.status = status;
  }
  if (outcome.status.ok()) collect(job, ranks, outcome);
  ranks.clear();
  return outcome;
}

Result<std::vector<Flat>> run_rank(const Job& job, Communicator& communicator) {
  JobRank rank(job, communicator);
  const Status status = rank.run();
  rank.end();
  if (!status.ok()) return status;
  return std::move(rank.means);
}

std::vector<double> average_residual(const Job& job, const JobOutcome& outcome) {
  std::vector<double> all;
  for (const JobTensor& tensor : job.tensors) {
    std::vector<double> sum(static_cast<std::size_t>(tensor.shape.elems()), 0.0);
    for (int r = 0; r < job.ranks; ++r) {
      Saved saved = outcome.saved[static_cast<std::size_t>(r)];
      const std::vector<double> error = values_of(saved, tensor.name + ".error");
      for (std::size_t e = 0; e < error.size(); ++e) sum[e] += error[e];
      const std::vector<double> error2 = values_of(saved, tensor.name + ".error2");
      const auto begin = static_cast<std::size_t>(piece(tensor.shape.elems(), job.ranks, r).begin);
      for (std::size_t e = 0; e < error2.size(); ++e) sum[begin + e] += error2[e];
      add_outer(saved, tensor.name + ".outer.", job.ranks, sum);
      const std::vector<double> shard = values_of(saved, tensor.name + ".shard_error");
      for (std::size_t e = 0; e < shard.size(); ++e) sum[begin + e] += shard[e] * job.ranks;
    }
    for (const double value : sum) all.push_back(value / job.ranks);
  }
  return all;
}

}  // namespace gradwire::testing
