#include "adapters/trainer/modes/server/async_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

class Worker final : public AsyncWorker {
 public:
  Worker(const AsyncJob& job, std::vector<FrameLink>& links, GradientSource& source,
         std::span<float> copy)
      : job_(job),
        links_(links),
        source_(source),
        copy_(copy),
        local_(copy.size()),
        gradient_(copy.size()),
        sum_(copy.size()),
        versions_(links.size()),
        frames_(links.size()),
        headers_(links.size()) {}

  Status open() {
    using End = BlockCoder::End;
    for (std::size_t s = 0; s < links_.size(); ++s) {
      const auto blocks = job_.layout.blocks(static_cast<int>(s));
      const int own = job_.layout.number();
      GW_ASSIGN(MessageCoder push,
                MessageCoder::open(job_.registry, job_.push(own), blocks, End::kSender, true));
      GW_ASSIGN(MessageCoder pull,
                MessageCoder::open(job_.registry, job_.pull(own), blocks, End::kReceiver, false));
      push_.push_back(std::move(push));
      pull_.push_back(std::move(pull));
      versions_[s].resize(blocks.size());
    }
    return {};
  }

  Result<std::int64_t> run(std::int64_t begin, std::int64_t steps) override {
    for (std::int64_t t = begin; t < steps;) {
      GW_ASSIGN(steps, pull(t, steps, t == begin));
      const std::int64_t end = std::min(t + job_.period(), steps);
      GW_TRY(compute(t, end));
      GW_TRY(push(end - 1, end == steps ? FrameKind::kLastPush : FrameKind::kPush));
      t = end;
    }
    return steps;
  }

  // What it has not pushed, and its running statistics. The model it pulls.
  ModeParts parts() override {
    const int rank = job_.layout.servers() + job_.layout.number();
    ModeParts parts;
    for (std::size_t s = 0; s < push_.size(); ++s) {
      add_own(parts, rank, "push-" + std::to_string(s) + "/", push_[s].state());
    }
    add_own(parts, rank, "running", source_.running());
    return parts;
  }

 private:
  // Returns where all workers end: `end`, or earlier.
  Result<std::int64_t> pull(std::int64_t t, std::int64_t end, bool first) {
    for (std::size_t s = 0; s < links_.size(); ++s) {
      const std::span<float> own = job_.layout.part(copy_, static_cast<int>(s));
      const std::size_t heads = versions_[s].size() * sizeof(std::int64_t);
      const std::size_t most = heads + std::max(own.size_bytes(), pull_[s].most_bytes());
      GW_ASSIGN(const FrameHeader header, links_[s].recv(kPulls, most, frames_[s]));
      ConstByteSpan rest(frames_[s]);
      Status taken;
      if (!take_front(rest, std::span(versions_[s]))) {
        taken = {Code::kCorruptPayload, "a pull without versions"};
      } else {
        taken = take(s, rest, header.step, own, first);
      }
      const bool says_end = header.count != 0;
      if (taken.ok() && says_end && (header.count <= t || header.count > end)) {
        taken = {Code::kCorruptPayload,
                 format("an end at step %lld (expected %lld to %lld)",
                        static_cast<long long>(header.count), static_cast<long long>(t + 1),
                        static_cast<long long>(end))};
      }
      if (!taken.ok()) return taken.with_context(format("rank %d", links_[s].peer()));
      if (says_end) end = header.count;
      if (signal_ == 0) signal_ = header.signal;
    }
    return end;
  }

  Status take(std::size_t server, ConstByteSpan body, std::int64_t step, std::span<float> own,
              bool first) {
    if (first || !job_.codes_pull()) {
      if (body.size() != own.size_bytes()) {
        return {Code::kCorruptPayload,
                format("a pull of %zu bytes (expected %zu)", body.size(), own.size_bytes())};
      }
      std::memcpy(own.data(), body.data(), body.size());
      return {};
    }
    const std::span<float> lacking =
        job_.layout.part(std::span(gradient_), static_cast<int>(server));
    GW_TRY(pull_[server].decode(body, static_cast<std::uint64_t>(step), lacking));
    for (std::size_t i = 0; i < own.size(); ++i) own[i] += lacking[i];
    return {};
  }

  // sum_: of the gradients of steps [begin, end).
  Status compute(std::int64_t begin, std::int64_t end) {
    losses_.clear();
    std::ranges::copy(copy_, local_.begin());
    for (std::int64_t t = begin; t < end; ++t) {
      GW_ASSIGN(const double loss, source_.gradient(local_, t, t == begin ? sum_ : gradient_));
      source_.commit();
      losses_.push_back(loss);
      if (t > begin) {
        for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += gradient_[i];
      }
      if (t + 1 < end) {
        descend(local_, t == begin ? sum_ : gradient_, static_cast<float>(job_.options.rate(t)));
      }
    }
    return {};
  }

  Status push(std::int64_t step, FrameKind kind) {
    std::vector<Work> sending;
    for (std::size_t s = 0; s < links_.size(); ++s) {
      frames_[s].clear();
      append(frames_[s], std::span<const double>(losses_));
      append(frames_[s], std::span<const float>(source_.running()));
      append(frames_[s], std::span<const std::int64_t>(versions_[s]));
      const std::span<const float> own =
          job_.layout.part(std::span<const float>(sum_), static_cast<int>(s));
      GW_TRY(push_[s].encode(own, static_cast<std::uint64_t>(step), frames_[s]));
      headers_[s] = {.kind = static_cast<std::int64_t>(kind),
                     .step = step,
                     .count = static_cast<std::int64_t>(losses_.size()),
                     .signal = signal_ != 0 ? signal_ : job_.asked()};
      GW_ASSIGN(Work work, links_[s].start_send(headers_[s], frames_[s]));
      sending.push_back(std::move(work));
    }
    for (Work& work : sending) GW_TRY(work.wait());
    return {};
  }

  const AsyncJob& job_;
  std::vector<FrameLink>& links_;  // by server
  GradientSource& source_;
  std::span<float> copy_;
  std::vector<float> local_;
  std::vector<float> gradient_;
  std::vector<float> sum_;
  std::vector<double> losses_;
  std::vector<MessageCoder> push_;  // by server
  std::vector<MessageCoder> pull_;
  std::vector<std::vector<std::int64_t>> versions_;
  std::vector<std::vector<std::byte>> frames_;
  std::vector<FrameHeader> headers_;
  std::int64_t signal_ = 0;  // that asked a server to end: the first one hears of it from here
};

}  // namespace

Result<std::unique_ptr<AsyncWorker>> AsyncWorker::create(const AsyncJob& job,
                                                         std::vector<FrameLink>& links,
                                                         GradientSource& source,
                                                         std::span<float> copy) {
  auto worker = std::make_unique<Worker>(job, links, source, copy);
  GW_TRY(worker->open());
  return std::unique_ptr<AsyncWorker>(std::move(worker));
}

}  // namespace gradwire
