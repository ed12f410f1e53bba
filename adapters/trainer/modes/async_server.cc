#include "adapters/trainer/modes/async_server.h"

#include <thread>
#include <utility>

#include "adapters/trainer/modes/staleness_gate.h"
#include "adapters/trainer/modes/step_tally.h"
#include "base/text.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

// What the threads of one server share.
struct Shared {
  ParameterShard& shard;
  StalenessGate gate;
  StepTally tally;
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

  Status run() {
    if (job_.options.steps == 0) return {};
    GW_TRY(answer(0, true));
    for (;;) {
      GW_ASSIGN(const FrameHeader header, link_.recv(kPushes, most_bytes(), frame_));
      const Status taken = take(header);
      if (!taken.ok()) return taken.with_context(format("rank %d", link_.peer()));
      if (header.kind == static_cast<std::int64_t>(FrameKind::kLastPush)) {
        shared_.gate.leave(worker_);
        return {};
      }
      shared_.gate.advance(worker_, header.count);
      GW_ASSIGN(lead_, shared_.gate.enter(worker_, deadline_in(job_.options.deadline_seconds)));
      GW_TRY(answer(header.step + 1, false));
    }
  }

 private:
  std::size_t most_bytes() const {
    return static_cast<std::size_t>(job_.period()) * sizeof(double) +
           versions_.size() * sizeof(std::int64_t) + push_.most_bytes();
  }

  Status take(const FrameHeader& header) {
    Application push;
    push.worker = worker_;
    push.step = header.step;
    push.lead = lead_;
    push.base.resize(versions_.size());
    std::vector<double> losses(static_cast<std::size_t>(header.count));
    ConstByteSpan rest(frame_);
    const bool fits = header.count >= 1 && header.count <= job_.period() &&
                      header.step < job_.options.steps && take_front(rest, std::span(losses)) &&
                      take_front(rest, std::span(push.base));
    // A worker knows no version but those that it was given.
    if (!fits || push.base != versions_) {
      return {Code::kCorruptPayload,
              format("a push of %lld steps up to step %lld that does not follow its pull",
                     static_cast<long long>(header.count), static_cast<long long>(header.step))};
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
    return link_.send({static_cast<std::int64_t>(FrameKind::kPull), step, 0, 0}, frame_);
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
};

// A first error ends the other sessions: those at the gate, and those that wait for messages.
void end_session(Shared& shared, FrameLink& link, const Status& status) {
  if (status.ok()) return;
  shared.tally.fail(status);
  shared.gate.stop(status);
  link.abort(status);
}

}  // namespace

Status serve_workers(const AsyncJob& job, std::vector<FrameLink>& links, std::span<float> params,
                     const OnModeStep& on_step, AsyncOutcome& outcome) {
  const int server = job.layout.number();
  const std::vector<KeyBlock> blocks = job.layout.blocks(server);
  const std::span<float> own = job.layout.part(params, server);
  std::vector<float> seen(own.size());
  std::vector<std::int64_t> versions(blocks.size());
  ShardOptions how{job.async.server.optimizer, job.async.damped};
  how.optimizer.momentum = job.options.momentum;
  GW_ASSIGN(const auto shard, ParameterShard::create(job.table, blocks, own, how));
  std::function<std::span<const float>()> model;
  if (job.layout.servers() == 1) {
    model = [&] {
      shard->read(seen, versions);
      return std::span<const float>(seen);
    };
  }
  const OnModeStep nobody;
  Shared shared{.shard = *shard,
                .gate = {job.layout.workers(), job.async.staleness},
                .tally = {job.options, job.layout.workers(), server == 0 ? on_step : nobody,
                          std::move(model)}};

  std::vector<std::unique_ptr<Session>> sessions;
  for (int worker = 0; worker < job.layout.workers(); ++worker) {
    sessions.push_back(std::make_unique<Session>(job, shared,
                                                 links[static_cast<std::size_t>(worker)], worker,
                                                 static_cast<std::int64_t>(own.size())));
    GW_TRY(sessions.back()->open(blocks));
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t w = 0; w < links.size(); ++w) {
      threads.emplace_back([&, w] { end_session(shared, links[w], sessions[w]->run()); });
    }
  }
  GW_TRY(shared.tally.error());
  outcome.log = shard->log();
  outcome.overlaps = shard->overlaps();
  return {};
}

}  // namespace gradwire
