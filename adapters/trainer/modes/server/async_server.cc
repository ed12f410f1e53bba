#include "adapters/trainer/modes/server/async_server.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "adapters/trainer/modes/server/staleness_gate.h"
#include "adapters/trainer/modes/shared_end.h"
#include "adapters/trainer/modes/step_tally.h"
#include "base/text.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

// What the threads of one server share.
struct Shared {
  ParameterShard& shard;
  StepTally& tally;
  std::unique_ptr<StalenessGate> gate;  // of one run, and the next
  std::unique_ptr<SharedEnd> end;  // null but on the first server: others hear of it from workers
  std::atomic<std::int64_t> reached = 0;  // steps that the last of its pushes ended with
  std::mutex mutex;
  std::vector<float> running;  // statistics, worker after worker; guarded
};

// One worker's connection, on a thread of its own.
class Session {
 public:
  Session(const AsyncJob& job, Shared& shared, FrameLink& link, int worker, std::int64_t elems)
      : job_(job),
        shared_(shared),
        link_(link),
        worker_(worker),
        copy_(static_cast<std::size_t>(elems)),
        gradient_(copy_.size()),
        versions_(shared.shard.block_count()) {}

  Status open(const std::vector<KeyBlock>& blocks) {
    using End = BlockCoder::End;
    auto push = MessageCoder::open(job_.registry, job_.push(worker_), blocks, End::kReceiver, true);
    if (!push.has_value()) return push.error();
    push_ = std::move(push).value();
    GW_ASSIGN(pull_,
              MessageCoder::open(job_.registry, job_.pull(worker_), blocks, End::kSender, false));
    return {};
  }

  Status run(std::int64_t begin, std::int64_t end) {
    end_ = end;
    if (begin == end) return {};
    GW_TRY(answer(begin, true));
    for (;;) {
      GW_ASSIGN(const FrameHeader header, link_.recv(kPushes, most_bytes(), frame_));
      const Status taken = take(header);
      if (!taken.ok()) return taken.with_context(format("rank %d", link_.peer()));
      if (shared_.end) shared_.end->ask(static_cast<int>(header.signal));
      if (header.kind == static_cast<std::int64_t>(FrameKind::kLastPush)) {
        shared_.reached = header.step + 1;
        shared_.gate->leave(worker_);
        return {};
      }
      shared_.gate->advance(worker_, header.count);
      GW_ASSIGN(lead_, shared_.gate->enter(worker_, deadline_in(job_.options.deadline_seconds)));
      GW_TRY(answer(header.step + 1, false));
    }
  }

  // Of its pushes; between runs.
  std::vector<NamedTensor> state() { return push_.state(); }

 private:
  std::size_t most_bytes() const {
    return static_cast<std::size_t>(job_.period()) * sizeof(double) + job_.running * sizeof(float) +
           versions_.size() * sizeof(std::int64_t) + push_.most_bytes();
  }

  Status take(const FrameHeader& header) {
    Application push;
    push.worker = worker_;
    push.step = header.step;
    push.lead = lead_;
    push.base.resize(versions_.size());
    std::vector<double> losses(static_cast<std::size_t>(header.count));
    std::vector<float> running(job_.running);
    ConstByteSpan rest(frame_);
    const bool fits = header.count >= 1 && header.count <= job_.period() && header.step < end_ &&
                      take_front(rest, std::span(losses)) && take_front(rest, std::span(running)) &&
                      take_front(rest, std::span(push.base));
    // A worker knows no version but those that it was given.
    if (!fits || push.base != versions_) {
      return {Code::kCorruptPayload,
              format("a push of %lld steps up to step %lld that does not follow its pull",
                     static_cast<long long>(header.count), static_cast<long long>(header.step))};
    }
    {
      const std::lock_guard lock(shared_.mutex);
      std::ranges::copy(
          running, shared_.running.begin() + static_cast<std::ptrdiff_t>(job_.running) * worker_);
    }
    GW_TRY(push_.decode(rest, static_cast<std::uint64_t>(header.step), gradient_));
    GW_TRY(shared_.shard.apply(std::move(push), gradient_, job_.options.rate(header.step)));
    return shared_.tally.add(losses);
  }

  // The model, or what the worker's copy of it lacks.
  Status answer(std::int64_t step, bool first) {
    frame_.clear();
    if (first || !job_.codes_pull()) {
      shared_.shard.read(copy_, versions_);
      append(frame_, std::span<const std::int64_t>(versions_));
      const auto bytes = std::as_bytes(std::span<const float>(copy_));
      frame_.insert(frame_.end(), bytes.begin(), bytes.end());
    } else {
      shared_.shard.read(gradient_, versions_);
      append(frame_, std::span<const std::int64_t>(versions_));
      for (std::size_t i = 0; i < copy_.size(); ++i) gradient_[i] -= copy_[i];
      lacking_.resize(copy_.size());
      GW_TRY(pull_.encode(gradient_, static_cast<std::uint64_t>(step), frame_, lacking_));
      for (std::size_t i = 0; i < copy_.size(); ++i) copy_[i] += lacking_[i];
    }
    return link_.send({.kind = static_cast<std::int64_t>(FrameKind::kPull),
                       .step = step,
                       .count = shared_.end ? shared_.end->grant(step + job_.period()) : 0,
                       .signal = job_.asked()},
                      frame_);
  }

  const AsyncJob& job_;
  Shared& shared_;
  FrameLink& link_;
  const int worker_;
  MessageCoder push_;
  MessageCoder pull_;
  std::vector<float> copy_;  // the worker's
  std::vector<float> gradient_;
  std::vector<float> lacking_;
  std::vector<std::int64_t> versions_;
  std::vector<std::byte> frame_;
  std::int64_t lead_ = 0;
  std::int64_t end_ = 0;  // of the run's steps
};

// A first error ends the other sessions: those at the gate, and those that wait for messages.
void end_session(Shared& shared, FrameLink& link, const Status& status) {
  if (status.ok()) return;
  shared.tally.fail(status);
  shared.gate->stop(status);
  link.abort(status);
}

class Server final : public AsyncServer {
 public:
  Server(const AsyncJob& job, std::vector<FrameLink>& links, std::span<float> params,
         GradientSource* source, const OnModeStep& on_step)
      : job_(job),
        links_(links),
        own_(job.layout.part(params, job.layout.number())),
        source_(source),
        seen_(own_.size()),
        tally_(job.options, job.layout.workers(), job.layout.number() == 0 ? on_step : nobody_,
               job.layout.servers() == 1 ? std::function([this] { return model(); })
                                         : std::function<std::span<const float>()>()) {}

  Status open() {
    const std::vector<KeyBlock> blocks = job_.layout.blocks(job_.layout.number());
    versions_.resize(blocks.size());
    ShardOptions how{job_.async.server.optimizer, job_.async.damped, job_.async.log_most};
    how.optimizer.momentum = job_.options.momentum;
    GW_ASSIGN(shard_, ParameterShard::create(job_.table, blocks, own_, how));
    const auto workers = static_cast<std::size_t>(job_.layout.workers());
    shared_.reset(new Shared{*shard_, tally_, nullptr, nullptr, 0, {}, std::vector<float>()});
    for (std::size_t worker = 0; worker < workers; ++worker) {
      sessions_.push_back(std::make_unique<Session>(job_, *shared_, links_[worker],
                                                    static_cast<int>(worker),
                                                    static_cast<std::int64_t>(own_.size())));
      GW_TRY(sessions_.back()->open(blocks));
      if (source_ == nullptr) continue;
      const std::span<const float> start = source_->running();
      shared_->running.insert(shared_->running.end(), start.begin(), start.end());
    }
    return {};
  }

  Result<std::int64_t> run(std::int64_t begin, std::int64_t end) override {
    // A worker hears of the end with the pull that follows those that it has had.
    const std::int64_t begun = std::min(begin + job_.period(), end);
    if (job_.layout.number() == 0) {
      shared_->end =
          std::make_unique<SharedEnd>(job_.options.interruption, begun, end, job_.period());
    }
    shared_->reached = end;
    shared_->gate = std::make_unique<StalenessGate>(job_.layout.workers(), job_.async.staleness);
    {
      std::vector<std::jthread> threads;
      for (std::size_t w = 0; w < links_.size(); ++w) {
        threads.emplace_back(
            [&, w] { end_session(*shared_, links_[w], sessions_[w]->run(begin, end)); });
      }
    }
    follow();
    GW_TRY(tally_.error());
    return shared_->reached.load();
  }

  ModeParts parts() override {
    const int rank = job_.layout.number();
    ModeParts parts;
    add_model(parts, job_.table, own_, true, job_.layout.range(rank).first);
    add_own(parts, rank, "optimizer/", shard_->state());
    for (std::size_t w = 0; w < sessions_.size(); ++w) {
      add_own(parts, rank, "push-" + std::to_string(w) + "/", sessions_[w]->state());
    }
    add_own(parts, rank, "running", shared_->running);
    return parts;
  }

  void adopt(std::int64_t done) override {
    shard_->adopt_state();
    tally_.continue_from(done);
    follow();
  }

  AsyncOutcome outcome() const override {
    return {shard_->log(), shard_->counts(), shard_->overlaps()};
  }

 private:
  // As it is, from any session's thread, one at a time.
  std::span<const float> model() {
    shard_->read(seen_, versions_);
    follow();
    return seen_;
  }
  // The model's running statistics: the mean of what workers said last.
  void follow() {
    if (source_ == nullptr) return;
    const std::lock_guard lock(shared_->mutex);
    mean_of_rows(shared_->running, source_->running());
  }

  const AsyncJob& job_;
  std::vector<FrameLink>& links_;
  std::span<float> own_;
  GradientSource* source_;
  std::vector<float> seen_;
  std::vector<std::int64_t> versions_;
  const OnModeStep nobody_;
  StepTally tally_;
  std::unique_ptr<ParameterShard> shard_;
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

}  // namespace

Result<std::unique_ptr<AsyncServer>> AsyncServer::create(const AsyncJob& job,
                                                         std::vector<FrameLink>& links,
                                                         std::span<float> params,
                                                         GradientSource* source,
                                                         const OnModeStep& on_step) {
  auto server = std::make_unique<Server>(job, links, params, source, on_step);
  GW_TRY(server->open());
  return std::unique_ptr<AsyncServer>(std::move(server));
}

}  // namespace gradwire
