#include "adapters/trainer/modes/server/async_eamsgd.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "adapters/trainer/modes/block_coder.h"
#include "adapters/trainer/modes/frames.h"
#include "adapters/trainer/modes/last_entries.h"
#include "adapters/trainer/modes/mode_state.h"
#include "adapters/trainer/modes/server/server_layout.h"
#include "adapters/trainer/modes/shared_end.h"
#include "adapters/trainer/modes/step_tally.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/text.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

constexpr std::array kAsks{FrameKind::kAsk, FrameKind::kDone};
constexpr std::array kCentres{FrameKind::kPull};
constexpr std::array kModels{FrameKind::kPush};

struct EamsgdJob {
  const ModeOptions& options;
  const ElasticOptions& elastic;
  const ServerLayout& layout;
  std::size_t running;  // elements of a worker's running statistics

  Result<MessageCoder> coder(const Registry& registry, int worker, BlockCoder::End end) const {
    const BlockCoding coding{elastic.compressor, elastic.allow_unsafe,
                             mix64(elastic.seed + static_cast<std::uint64_t>(worker))};
    return MessageCoder::open(registry, coding, layout.blocks(0), end, true);
  }
};

// The centre, and all that the master's threads share.
struct Centre {
  std::mutex mutex;
  std::span<float> values;   // guarded, and the next three
  std::int64_t version = 0;  // how many e were applied
  std::deque<ElasticExchange> log;
  std::vector<float> running;  // statistics, worker after worker
  StepTally& tally;
  std::unique_ptr<SharedEnd> end;  // of one run
};

// The first step from `done` on at which a worker asks for the centre.
std::int64_t next_exchange(std::int64_t done, std::int64_t period) {
  return (done + period - 1) / period * period;
}

// One worker's connection, on a thread of its own.
class EamsgdSession {
 public:
  EamsgdSession(const EamsgdJob& job, Centre& centre, FrameLink& link, int worker,
                MessageCoder coder)
      : job_(job),
        centre_(centre),
        link_(link),
        worker_(worker),
        coder_(std::move(coder)),
        values_(centre.values.size()) {}

  Status run() {
    for (;;) {
      GW_ASSIGN(const FrameHeader header, link_.recv(kAsks, most_told(), frame_));
      const Status heard = listen(header);
      if (!heard.ok()) return heard.with_context(format("rank %d", link_.peer()));
      centre_.end->ask(static_cast<int>(header.signal));
      if (header.kind == static_cast<std::int64_t>(FrameKind::kDone)) return {};
      GW_TRY(exchange(header.step));
    }
  }
  std::vector<NamedTensor> state() { return coder_.state(); }

 private:
  std::size_t most_told() const {
    return static_cast<std::size_t>(job_.elastic.period) * sizeof(double) +
           job_.running * sizeof(float);
  }

  // What came with it: the losses of the steps since the last one, and running statistics.
  Status listen(const FrameHeader& header) {
    ConstByteSpan rest(frame_);
    std::vector<double> losses(
        static_cast<std::size_t>(std::min<std::int64_t>(header.count, job_.elastic.period)));
    std::vector<float> running(job_.running);
    const bool fits = header.count <= job_.elastic.period && header.step <= job_.options.steps &&
                      take_front(rest, std::span(losses)) && take_front(rest, std::span(running));
    if (!fits || !rest.empty()) {
      return {Code::kCorruptPayload,
              format("word of %lld steps up to step %lld that has no end",
                     static_cast<long long>(header.count), static_cast<long long>(header.step))};
    }
    {
      const std::lock_guard lock(centre_.mutex);
      std::ranges::copy(
          running, centre_.running.begin() + static_cast<std::ptrdiff_t>(job_.running) * worker_);
    }
    return centre_.tally.add(losses);
  }

  Status exchange(std::int64_t step) {
    const std::int64_t end = centre_.end->grant(next_exchange(step + 1, job_.elastic.period));
    const FrameHeader answer{
        .kind = static_cast<std::int64_t>(FrameKind::kPull), .step = step, .count = end};
    if (end <= step) return link_.send(answer, {});
    ElasticExchange done{worker_, step, 0};
    {
      const std::lock_guard lock(centre_.mutex);
      std::ranges::copy(centre_.values, values_.begin());
      done.version = centre_.version;
    }
    GW_TRY(link_.send(answer, std::as_bytes(std::span<const float>(values_))));
    GW_ASSIGN(const FrameHeader header, link_.recv(kModels, coder_.most_bytes(), frame_));
    const Status decoded = header.step == step
                               ? coder_.decode(frame_, static_cast<std::uint64_t>(step), values_)
                               : Status(Code::kCorruptPayload, "a pull of another step");
    if (!decoded.ok()) return decoded.with_context(format("rank %d", link_.peer()));
    const std::lock_guard lock(centre_.mutex);
    elastic_attract(centre_.values, values_, job_.elastic.elasticity(),
                    static_cast<float>(job_.options.rate(step)));
    ++centre_.version;
    keep_last(centre_.log, job_.elastic.log_most, done);
    return {};
  }

  const EamsgdJob& job_;
  Centre& centre_;
  FrameLink& link_;
  const int worker_;
  MessageCoder coder_;
  std::vector<float> values_;
  std::vector<std::byte> frame_;
};

class Master {
 public:
  Master(const EamsgdJob& job, std::vector<FrameLink>& links, std::span<float> centre,
         GradientSource* source, const OnModeStep& on_step)
      : job_(job),
        links_(links),
        source_(source),
        copy_(centre.size()),
        tally_(job.options, job.layout.workers(), on_step, [this] { return model(); }),
        centre_{{}, centre, 0, {}, {}, tally_, nullptr} {}

  Status open(const Registry& registry) {
    for (std::size_t worker = 0; worker < links_.size(); ++worker) {
      const int number = static_cast<int>(worker);
      GW_ASSIGN(MessageCoder coder, job_.coder(registry, number, BlockCoder::End::kReceiver));
      sessions_.push_back(
          std::make_unique<EamsgdSession>(job_, centre_, links_[worker], number, std::move(coder)));
      if (job_.running == 0) continue;
      const std::span<const float> start = source_->running();
      centre_.running.insert(centre_.running.end(), start.begin(), start.end());
    }
    return {};
  }

  // Until every worker has said that it is done.
  Result<std::int64_t> run(std::int64_t begin, std::int64_t end) {
    // At least a step is made.
    const std::int64_t begun = std::min(next_exchange(begin + 1, job_.elastic.period), end);
    centre_.end = std::make_unique<SharedEnd>(job_.options.interruption, begun, end, 0);
    {
      std::vector<std::jthread> threads;
      for (std::size_t w = 0; w < links_.size(); ++w) {
        threads.emplace_back([&, w] {
          const Status status = sessions_[w]->run();
          if (status.ok()) return;
          // The others' waits end with it.
          tally_.fail(status);
          for (FrameLink& link : links_) link.abort(status);
        });
      }
    }
    follow();
    GW_TRY(tally_.error());
    return centre_.end->end();
  }

  ModeParts parts() {
    ModeParts parts;
    if (source_ != nullptr) add_model(parts, source_->parameters(), centre_.values, true);
    for (std::size_t w = 0; w < sessions_.size(); ++w) {
      add_own(parts, 0, "pull-" + std::to_string(w) + "/", sessions_[w]->state());
    }
    add_own(parts, 0, "running", centre_.running);
    return parts;
  }
  void adopt(std::int64_t done) {
    tally_.continue_from(done);
    follow();
  }
  std::vector<ElasticExchange> log() const { return {centre_.log.begin(), centre_.log.end()}; }

 private:
  std::span<const float> model() {
    {
      const std::lock_guard lock(centre_.mutex);
      std::ranges::copy(centre_.values, copy_.begin());
    }
    follow();
    return copy_;
  }
  void follow() {
    if (job_.running == 0) return;
    const std::lock_guard lock(centre_.mutex);
    mean_of_rows(centre_.running, source_->running());
  }

  const EamsgdJob& job_;
  std::vector<FrameLink>& links_;
  GradientSource* source_;
  std::vector<float> copy_;
  StepTally tally_;
  Centre centre_;
  std::vector<std::unique_ptr<EamsgdSession>> sessions_;
};

class EamsgdWorker {
 public:
  EamsgdWorker(const EamsgdJob& job, FrameLink& link, GradientSource& source, std::span<float> w)
      : job_(job),
        link_(link),
        source_(source),
        w_(w),
        centre_(w.size()),
        pull_(w.size()),
        gradient_(w.size()),
        direction_(job.options.momentum > 0 ? w.size() : 0),
        ahead_(direction_.size()) {}

  Status open(const Registry& registry) {
    GW_ASSIGN(coder_, job_.coder(registry, job_.layout.number(), BlockCoder::End::kSender));
    return {};
  }

  Result<std::int64_t> run(std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const bool exchanges = t % job_.elastic.period == 0;
      if (exchanges) {
        GW_ASSIGN(end, exchange(t, end));
      }
      if (t < end) GW_TRY(step(t, exchanges));
    }
    GW_TRY(tell(FrameKind::kDone, end));
    return end;
  }

  ModeParts parts() {
    const int rank = 1 + job_.layout.number();
    ModeParts parts;
    add_own(parts, rank, "w", w_);
    add_own(parts, rank, "direction", direction_);
    add_own(parts, rank, "pull/", coder_.state());
    add_own(parts, rank, "running", source_.running());
    return parts;
  }
  void adopt(std::int64_t) {}

 private:
  Status tell(FrameKind kind, std::int64_t step) {
    frame_.clear();
    append(frame_, std::span<const double>(losses_));
    append(frame_, std::span<const float>(source_.running()));
    const auto count = static_cast<std::int64_t>(losses_.size());
    losses_.clear();
    return link_.send(
        {.kind = static_cast<std::int64_t>(kind),
         .step = step,
         .count = count,
         .signal = job_.options.interruption == nullptr ? 0 : job_.options.interruption->asked()},
        frame_);
  }

  // pull_ = e, as the master decodes it. Returns where all workers end: t, and no exchange, where
  // that is now.
  Result<std::int64_t> exchange(std::int64_t t, std::int64_t end) {
    GW_TRY(tell(FrameKind::kAsk, t));
    GW_ASSIGN(const FrameHeader header,
              link_.recv(kCentres, centre_.size() * sizeof(float), frame_));
    if (header.count < t || header.count > end) {
      return Status(Code::kCorruptPayload,
                    format("an end at step %lld from rank 0 (expected %lld to %lld)",
                           static_cast<long long>(header.count), static_cast<long long>(t),
                           static_cast<long long>(end)));
    }
    end = header.count;
    if (end == t) return end;
    ConstByteSpan rest(frame_);
    if (!take_front(rest, std::span(centre_)) || !rest.empty()) {
      return Status(Code::kCorruptPayload,
                    format("a centre of %zu bytes from rank 0 (expected %zu)", frame_.size(),
                           centre_.size() * sizeof(float)));
    }
    elastic_pull(w_, centre_, job_.elastic.elasticity(), pull_);
    frame_.clear();
    GW_TRY(coder_.encode(pull_, static_cast<std::uint64_t>(t), frame_, centre_));
    std::swap(pull_, centre_);
    GW_TRY(link_.send({.kind = static_cast<std::int64_t>(FrameKind::kPush), .step = t}, frame_));
    return end;
  }

  Status step(std::int64_t t, bool exchanged) {
    const auto lr = static_cast<float>(job_.options.rate(t));
    std::span<const float> point = w_;
    if (!direction_.empty()) {
      std::ranges::copy(w_, ahead_.begin());
      descend(ahead_, direction_, static_cast<float>(job_.options.rate(t) * job_.options.momentum));
      point = ahead_;
    }
    GW_ASSIGN(const double loss, source_.gradient(point, t, gradient_));
    source_.commit();
    losses_.push_back(loss);
    if (!direction_.empty()) {
      add_momentum(direction_, gradient_, static_cast<float>(job_.options.momentum));
    }
    const std::span<const float> along = direction_.empty() ? gradient_ : direction_;
    if (exchanged) {
      elastic_descend(w_, along, pull_, job_.elastic.elasticity(), lr);
    } else {
      descend(w_, along, lr);
    }
    return {};
  }

  const EamsgdJob& job_;
  FrameLink& link_;
  GradientSource& source_;
  std::span<float> w_;
  std::vector<float> centre_;
  std::vector<float> pull_;  // e
  std::vector<float> gradient_;
  std::vector<float> direction_;  // u
  std::vector<float> ahead_;      // W - lr momentum u
  MessageCoder coder_;
  std::vector<double> losses_;  // since the last exchange
  std::vector<std::byte> frame_;
};

}  // namespace

Result<std::vector<ElasticExchange>> run_async_eamsgd(
    Communicator& world, const Registry& registry, GradientSource* source,
    const ParameterTable& table, const ModeOptions& options, const ElasticOptions& elastic,
    std::span<float> w, std::span<float> centre, const OnModeStep& on_step) {
  GW_TRY(check_elastic(options, elastic));
  GW_ASSIGN(const ServerLayout layout, ServerLayout::create(world, table, {}));
  GW_ASSIGN(std::vector<FrameLink> links, link_up(world, 1, options.deadline_seconds));
  const std::size_t running = source == nullptr ? 0 : source->running().size();
  const EamsgdJob job{options, elastic, layout, running};
  std::vector<ElasticExchange> log;
  if (layout.serves()) {
    GW_CHECK(source != nullptr || options.saver == nullptr);
    Master master(job, links, centre, source, on_step);
    GW_TRY(master.open(registry));
    GW_TRY(run_between_checkpoints(master, world, options));
    log = master.log();
  } else {
    GW_CHECK(source != nullptr);
    EamsgdWorker worker(job, links.front(), *source, w);
    GW_TRY(worker.open(registry));
    GW_TRY(run_between_checkpoints(worker, world, options));
  }
  GW_TRY(share_parameters(world, layout, centre));
  GW_TRY(share_running(world, source, options.deadline_seconds));
  return log;
}

}  // namespace gradwire
