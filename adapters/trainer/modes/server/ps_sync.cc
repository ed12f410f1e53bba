#include "adapters/trainer/modes/server/ps_sync.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapters/trainer/divergence.h"
#include "adapters/trainer/modes/block_coder.h"
#include "adapters/trainer/modes/losses.h"
#include "adapters/trainer/modes/mode_state.h"
#include "base/check.h"
#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "device/ops.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

using Bytes = std::vector<std::byte>;

Status run_all(Communicator& world, const std::vector<OpCall>& calls) {
  GW_ASSIGN(Work work, world.start_all(calls));
  return work.wait();
}

TensorView view_of_bytes(Bytes& bytes) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size())), DType::kU8};
}

// Encoded messages of any length: first all lengths, then all contents.
Status send_to_all(Communicator& world, std::vector<Bytes>& messages,
                   const std::vector<int>& peers) {
  std::vector<std::int64_t> lengths;
  for (const Bytes& message : messages) {
    lengths.push_back(static_cast<std::int64_t>(message.size()));
  }
  std::vector<OpCall> heads;
  std::vector<OpCall> bodies;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    // One message may be for all.
    const std::size_t m = messages.size() == 1 ? 0 : i;
    heads.push_back(OpCall::send(view_of(std::span(lengths).subspan(m, 1)), peers[i]));
    if (lengths[m] > 0) bodies.push_back(OpCall::send(view_of_bytes(messages[m]), peers[i]));
  }
  GW_TRY(run_all(world, heads));
  return bodies.empty() ? Status() : run_all(world, bodies);
}

Status recv_from_all(Communicator& world, std::vector<Bytes>& messages,
                     const std::vector<int>& peers, std::size_t most_bytes) {
  std::vector<std::int64_t> lengths(peers.size());
  std::vector<OpCall> heads;
  std::vector<OpCall> bodies;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    heads.push_back(OpCall::recv(view_of(std::span(lengths).subspan(i, 1)), peers[i]));
  }
  GW_TRY(run_all(world, heads));
  messages.resize(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > static_cast<std::int64_t>(most_bytes)) {
      return {
          Code::kCorruptPayload,
          format("parameter server: a message of %lld bytes from rank %d (expected at most %zu)",
                 static_cast<long long>(lengths[i]), peers[i], most_bytes)};
    }
    messages[i].resize(static_cast<std::size_t>(lengths[i]));
    if (lengths[i] > 0) bodies.push_back(OpCall::recv(view_of_bytes(messages[i]), peers[i]));
  }
  return bodies.empty() ? Status() : run_all(world, bodies);
}

// What both kinds of ranks know.
struct PsSyncJob {
  Communicator& world;
  const Registry& registry;
  const ModeOptions& options;
  const SyncServerOptions& sync;
  const ServerLayout& layout;

  BlockCoding push(int worker) const {
    const ServerOptions& o = sync.server;
    return {o.push, o.allow_unsafe, mix64(o.seed + static_cast<std::uint64_t>(worker))};
  }
  BlockCoding pull() const {
    return {sync.server.pull, sync.server.allow_unsafe, sync.server.seed};
  }
  // By the spec alone, so that all ranks agree: blocks may still travel exactly inside a message.
  bool codes_push() const { return sync.server.push != "none"; }
  bool codes_pull() const { return sync.server.pull != "none"; }
};

void add(std::span<float> values, std::span<const float> more) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += more[i];
}

class PsSyncServer {
 public:
  PsSyncServer(const PsSyncJob& job, std::span<float> model)
      : job_(job), model_(model), sum_(model.size()), theirs_(model.size()) {
    for (int w = 0; w < job.layout.workers(); ++w) peers_.push_back(job.layout.servers() + w);
  }

  Status open(const ParameterTable& table) {
    OptimizerOptions options = job_.sync.server.optimizer;
    options.momentum = job_.sync.momentum_at_worker ? 0 : job_.options.momentum;
    GW_ASSIGN(optimizer_,
              optimizer_within(table, job_.layout.range(job_.layout.number()), options));
    const auto blocks = job_.layout.blocks(job_.layout.number());
    using End = BlockCoder::End;
    GW_ASSIGN(pull_, MessageCoder::open(job_.registry, job_.pull(), blocks, End::kSender, false));
    for (int w = 0; w < job_.layout.workers(); ++w) {
      GW_ASSIGN(MessageCoder coder,
                MessageCoder::open(job_.registry, job_.push(w), blocks, End::kReceiver, true));
      push_.push_back(std::move(coder));
    }
    gathered_.resize(job_.codes_push() ? 0 : push_.size() * model_.size());
    if (job_.codes_pull()) copy_.assign(model_.begin(), model_.end());
    return {};
  }

  Status step(std::int64_t t) {
    GW_TRY(send_model(t));
    GW_TRY(job_.codes_push() ? gather_coded(t) : gather_exact());
    GW_TRY(scale(view_of(std::span(sum_)), 1.0 / job_.layout.workers(), {}));
    GW_TRY(optimizer_->step(model_, sum_, job_.options.rate(t)));
    optimizer_steps_ = optimizer_->steps();
    return {};
  }

  // Of the model this server's part, what the optimizer keeps of it, and what coders keep.
  ModeParts parts(const ParameterTable& table) {
    const int rank = job_.world.rank();
    const FlatRange range = job_.layout.range(job_.layout.number());
    ModeParts parts;
    add_model(parts, table, model_, true, range.first);
    add_own(parts, rank, "optimizer.steps", std::span(&optimizer_steps_, 1));
    add_own(parts, rank, "optimizer/", optimizer_->state());
    add_own(parts, rank, "copy", copy_);
    add_own(parts, rank, "pull/", pull_->state());
    for (std::size_t w = 0; w < push_.size(); ++w) {
      add_own(parts, rank, "push-" + std::to_string(w) + "/", push_[w].state());
    }
    return parts;
  }
  void adopt() { optimizer_->set_steps(optimizer_steps_); }

 private:
  Status send_model(std::int64_t t) {
    if (!job_.codes_pull()) {
      std::vector<OpCall> calls;
      for (const int peer : peers_) calls.push_back(OpCall::send(view_of(model_), peer));
      return run_all(job_.world, calls);
    }
    for (std::size_t i = 0; i < model_.size(); ++i) sum_[i] = model_[i] - copy_[i];
    std::vector<Bytes> one(1);
    GW_TRY(pull_->encode(sum_, static_cast<std::uint64_t>(t), one[0], theirs_));
    add(copy_, theirs_);
    return send_to_all(job_.world, one, peers_);
  }

  Status gather_exact() {
    std::vector<OpCall> calls;
    const auto from = [&](std::size_t w) {
      return std::span(gathered_).subspan(w * model_.size(), model_.size());
    };
    for (std::size_t w = 0; w < peers_.size(); ++w) {
      calls.push_back(OpCall::recv(view_of(from(w)), peers_[w]));
    }
    GW_TRY(run_all(job_.world, calls));
    std::ranges::copy(from(0), sum_.begin());
    for (std::size_t w = 1; w < peers_.size(); ++w) add(sum_, from(w));
    return {};
  }

  Status gather_coded(std::int64_t t) {
    GW_TRY(recv_from_all(job_.world, messages_, peers_, push_.front().most_bytes()));
    for (std::size_t w = 0; w < peers_.size(); ++w) {
      const Status decoded =
          push_[w].decode(messages_[w], static_cast<std::uint64_t>(t), w == 0 ? sum_ : theirs_);
      if (!decoded.ok()) return decoded.with_context(format("from rank %d", peers_[w]));
      if (w > 0) add(sum_, theirs_);
    }
    return {};
  }

  const PsSyncJob& job_;
  std::span<float> model_;
  std::vector<int> peers_;
  std::optional<MessageCoder> pull_;
  std::vector<MessageCoder> push_;  // by worker
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t optimizer_steps_ = 0;
  std::vector<float> copy_;  // what all workers have of the model, where pulls are coded
  std::vector<float> gathered_;
  std::vector<float> sum_;
  std::vector<float> theirs_;
  std::vector<Bytes> messages_;
};

class PsSyncWorker {
 public:
  PsSyncWorker(const PsSyncJob& job, GradientSource& source, std::span<float> copy)
      : job_(job), source_(source), copy_(copy), gradient_(copy.size()), decoded_(copy.size()) {
    if (job.options.momentum > 0 && job.sync.momentum_at_worker) direction_.resize(copy.size());
    for (int s = 0; s < job.layout.servers(); ++s) peers_.push_back(s);
  }

  Status open() {
    for (const int s : peers_) {
      const auto blocks = job_.layout.blocks(s);
      using End = BlockCoder::End;
      GW_ASSIGN(MessageCoder pull,
                MessageCoder::open(job_.registry, job_.pull(), blocks, End::kReceiver, false));
      pull_.push_back(std::move(pull));
      GW_ASSIGN(MessageCoder push,
                MessageCoder::open(job_.registry, job_.push(job_.layout.number()), blocks,
                                   End::kSender, true));
      push_.push_back(std::move(push));
    }
    return {};
  }

  // Returns the loss.
  Result<double> step(std::int64_t t) {
    GW_TRY(job_.codes_pull() ? recv_coded(t) : recv_exact());
    GW_ASSIGN(const double loss, source_.gradient(copy_, t, gradient_));
    std::span<float> out = gradient_;
    if (!direction_.empty()) {
      add_momentum(direction_, gradient_, static_cast<float>(job_.options.momentum));
      out = direction_;
    }
    GW_TRY(job_.codes_push() ? send_coded(out, t) : send_exact(out));
    return loss;
  }

  // Its copy of the model where pulls are differences to it, its momentum, and what coders keep.
  ModeParts parts() {
    const int rank = job_.world.rank();
    ModeParts parts;
    if (job_.codes_pull()) add_own(parts, rank, "copy", copy_);
    add_own(parts, rank, "direction", direction_);
    for (std::size_t s = 0; s < push_.size(); ++s) {
      add_own(parts, rank, "push-" + std::to_string(s) + "/", push_[s].state());
      add_own(parts, rank, "pull-" + std::to_string(s) + "/", pull_[s].state());
    }
    return parts;
  }

 private:
  Status recv_exact() {
    std::vector<OpCall> calls;
    for (const int s : peers_) {
      calls.push_back(OpCall::recv(view_of(job_.layout.part(copy_, s)), s));
    }
    return run_all(job_.world, calls);
  }
  Status recv_coded(std::int64_t t) {
    std::size_t most = 0;
    for (const MessageCoder& coder : pull_) most = std::max(most, coder.most_bytes());
    GW_TRY(recv_from_all(job_.world, messages_, peers_, most));
    for (const int s : peers_) {
      const auto at = static_cast<std::size_t>(s);
      const std::span<float> lacking = job_.layout.part(std::span(decoded_), s);
      const Status status = pull_[at].decode(messages_[at], static_cast<std::uint64_t>(t), lacking);
      if (!status.ok()) return status.with_context(format("from rank %d", s));
    }
    add(copy_, decoded_);
    return {};
  }
  Status send_exact(std::span<float> gradient) {
    std::vector<OpCall> calls;
    for (const int s : peers_) {
      calls.push_back(OpCall::send(view_of(job_.layout.part(gradient, s)), s));
    }
    return run_all(job_.world, calls);
  }
  Status send_coded(std::span<const float> gradient, std::int64_t t) {
    messages_.assign(peers_.size(), {});
    for (const int s : peers_) {
      const auto at = static_cast<std::size_t>(s);
      GW_TRY(push_[at].encode(job_.layout.part(gradient, s), static_cast<std::uint64_t>(t),
                              messages_[at]));
    }
    return send_to_all(job_.world, messages_, peers_);
  }

  const PsSyncJob& job_;
  GradientSource& source_;
  std::span<float> copy_;
  std::vector<int> peers_;
  std::vector<MessageCoder> pull_;  // by server
  std::vector<MessageCoder> push_;
  std::vector<float> gradient_;
  std::vector<float> direction_;
  std::vector<float> decoded_;
  std::vector<Bytes> messages_;
};

// The workers' mean, on all ranks.
Result<double> mean_loss(const PsSyncJob& job, double own) {
  double sum = own;
  const std::span<double> shared(&sum, job.options.losses ? 1 : 0);
  GW_TRY(average_over_ranks(job.world, shared, job.options.interruption));
  return job.options.losses ? sum * job.world.size() / job.layout.workers() : own;
}

Status serve(const PsSyncJob& job, const ParameterTable& table, GradientSource* source,
             std::span<float> params, const OnModeStep& on_step) {
  const int rank = job.world.rank();
  PsSyncServer server(job, job.layout.part(params, job.layout.number()));
  GW_TRY(server.open(table));
  const auto parts = [&] {
    ModeParts all = server.parts(table);
    add_running(all, rank, source);
    return all;
  };
  ModeCheckpoints checkpoints(job.options);
  GW_ASSIGN(std::int64_t t, checkpoints.restore(parts()));
  server.adopt();
  for (; t < job.options.steps; ++t) {
    GW_TRY(server.step(t));
    ModeStep step{.step = t, .loss = 0, .lr = job.options.rate(t)};
    GW_ASSIGN(step.loss, mean_loss(job, 0));
    GW_TRY(commit_together(job.world, source));
    if (job.layout.servers() == 1) step.params = params;
    if (on_step && rank == 0) GW_TRY(on_step(step));
    GW_TRY(check_loss("loss", t, step.loss));
    GW_TRY(checkpoints.after(t + 1, parts));
  }
  return {};
}

Status work(const PsSyncJob& job, GradientSource& source, std::span<float> params) {
  PsSyncWorker worker(job, source, params);
  GW_TRY(worker.open());
  const auto parts = [&] {
    ModeParts all = worker.parts();
    add_running(all, job.world.rank(), &source);
    return all;
  };
  ModeCheckpoints checkpoints(job.options);
  GW_ASSIGN(std::int64_t t, checkpoints.restore(parts()));
  for (; t < job.options.steps; ++t) {
    GW_ASSIGN(const double loss, worker.step(t));
    GW_ASSIGN(const double mean, mean_loss(job, loss));
    GW_TRY(check_loss("loss", t, mean));
    GW_TRY(commit_together(job.world, &source));
    GW_TRY(checkpoints.after(t + 1, parts));
  }
  return {};
}

}  // namespace

Status run_ps_sync(Communicator& world, const Registry& registry, GradientSource* source,
                   const ParameterTable& table, const ModeOptions& options,
                   const SyncServerOptions& sync, std::span<float> params,
                   const OnModeStep& on_step) {
  GW_ASSIGN(const ServerLayout layout, ServerLayout::create(world, table, sync.server));
  const PsSyncJob job{world, registry, options, sync, layout};
  if (layout.serves()) {
    GW_TRY(serve(job, table, source, params, on_step));
  } else {
    GW_CHECK(source != nullptr);
    GW_TRY(work(job, *source, params));
  }
  return share_parameters(world, layout, params);
}

}  // namespace gradwire
