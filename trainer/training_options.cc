#include "trainer/training_options.h"

#include <cmath>
#include <string>

#include "base/counted.h"
#include "base/text.h"

namespace gradwire {
namespace {

Status bad_option(const char* what, long long seen, const char* wanted) {
  return Status(Code::kInvalidArgument, format("%s %lld (expected %s)", what, seen, wanted));
}

Status check_batch(const TrainingOptions& options, const DataSet& data) {
  const std::int64_t parts = options.shares().micro_batches();
  if (options.batch < 1 || options.batch % parts != 0) {
    return Status(Code::kInvalidArgument,
                  format("batch %lld (expected a positive multiple of %lld (%s x %s))",
                         static_cast<long long>(options.batch), static_cast<long long>(parts),
                         counted(options.ranks, "rank").c_str(),
                         counted(options.accumulate, "micro-batch", "es").c_str()));
  }
  if (options.batch > data.epoch_samples() && options.steps.value_or(1) > 0) {
    return Status(Code::kInvalidArgument,
                  format("batch %lld (expected at most %lld, the samples of %s)",
                         static_cast<long long>(options.batch),
                         static_cast<long long>(data.epoch_samples()), data.name().c_str()));
  }
  return {};
}

Status check_norm(const char* what, double seen) {
  if (seen >= 0 && std::isfinite(seen)) return {};
  return Status(Code::kInvalidArgument,
                format("%s %g (expected a finite number >= 0)", what, seen));
}

// What happens to gradients on this rank: pairs that contradict one another.
Status check_gradients(const TrainingOptions& options, const Demands& demands) {
  GW_TRY(check_norm("clip", options.clip));
  GW_TRY(check_norm("clip-worker", options.clip_worker));
  if (options.clip > 0 && demands.own_optimizer && !demands.clips) {
    return Status(Code::kInvalidArgument,
                  format("clip %g with an optimizer that exchanges something else than gradients "
                         "(expected 0, or clip-worker)",
                         options.clip));
  }
  if (options.momentum_at == MomentumAt::kServer || options.momentum == 0) return {};
  if (demands.own_optimizer || options.optimizer.name != "sgd") {
    return Status(Code::kInvalidArgument,
                  (demands.own_optimizer ? "a strategy's own optimizer"
                                         : "optimizer " + options.optimizer.name) +
                      " with momentum at the worker (expected sgd, or momentum at the server)");
  }
  // Its momenta would have taken in what a skipped step throws away.
  if (options.loss_scale.active()) {
    return Status(Code::kInvalidArgument,
                  "a loss scale with momentum at the worker (expected momentum at the server)");
  }
  return {};
}

// What leaves nothing but 16 bits of gradients.
Status check_stored_gradients(const TrainingOptions& options, const Demands& demands) {
  if (options.main_gradients) return {};
  const auto refuse = [](const std::string& what) {
    return Status(Code::kInvalidArgument, "no main gradients with " + what);
  };
  if (options.precision == Precision::kF32) return refuse("precision fp32 (expected bf16 or fp16)");
  if (!demands.takes_narrow) {
    return refuse(
        "an optimizer that exchanges something else (expected sgd, nesterov, adamw or lamb)");
  }
  if (options.clip_worker > 0) {
    return refuse(
        format("clip-worker %g, of sums in fp32 (expected 0, or clip)", options.clip_worker));
  }
  if (options.momentum_at == MomentumAt::kWorker && options.momentum > 0) {
    return refuse("momentum at the worker (expected momentum at the server)");
  }
  if (demands.each_micro_batch && options.accumulate > 1) {
    return refuse("an exchange of each micro-batch (expected one of their sum)");
  }
  return {};
}

// Norms of a worker are added up in a micro-batch, in which ranks that share tensors are together,
// and stages are not.
Status check_share_of_model(const TrainingOptions& options) {
  if (options.share == nullptr) return {};
  const auto refuse = [](const std::string& what) {
    return Status(Code::kUnsupported, "a model of which every rank holds a part, with " + what);
  };
  const int peers = options.peers == nullptr ? 1 : options.peers->ranks();
  const bool together = !options.share->tensors.empty() &&
                        static_cast<int>(options.share->tensors.front().held.size()) == peers;
  const bool there = options.places.device.device().space == MemorySpace::kCuda;
  if (options.clip_worker > 0 && (!together || there)) {
    return refuse(format("clip-worker %g (expected 0, or clip)", options.clip_worker));
  }
  return {};
}

// What training on a device does not do.
Status check_device(const TrainingOptions& options) {
  if (options.places.device.device().space != MemorySpace::kCuda) return {};
  const auto refuse = [](const std::string& seen, const std::string& wanted) {
    return Status(Code::kUnsupported, "training on a CUDA device with " + seen +
                                          " is not served yet (expected " + wanted + ")");
  };
  if (options.offload != Offload::kNone && !options.main_gradients) {
    return refuse("offload " + std::string(to_string(options.offload)) + " and no main gradients",
                  "main gradients");
  }
  return {};
}

}  // namespace

Status check_training_options(const TrainingOptions& options, const Demands& demands,
                              const DataSet& data) {
  if (options.ranks < 1) return bad_option("ranks", options.ranks, "at least 1");
  if (options.rank < 0 || options.rank >= options.ranks) {
    return bad_option("rank", options.rank, format("0 to %d", options.ranks - 1).c_str());
  }
  if (options.accumulate < 1) return bad_option("accumulate", options.accumulate, "at least 1");
  if (options.steps.value_or(0) < 0) return bad_option("steps", *options.steps, "at least 0");
  if (options.epochs < 0) return bad_option("epochs", options.epochs, "at least 0");
  if (options.eval_every < 0) return bad_option("eval-every", options.eval_every, "at least 0");
  if (!(options.lr >= 0) || !std::isfinite(options.lr)) {
    return Status(Code::kInvalidArgument,
                  format("lr %g (expected a finite number >= 0)", options.lr));
  }
  if (!(options.momentum >= 0 && options.momentum < 1)) {
    return Status(Code::kInvalidArgument,
                  format("momentum %g (expected 0 <= momentum < 1)", options.momentum));
  }
  GW_TRY(check_gradients(options, demands));
  GW_TRY(check_stored_gradients(options, demands));
  GW_TRY(check_share_of_model(options));
  GW_TRY(check_device(options));
  if (options.offload != Offload::kNone && !demands.own_optimizer &&
      options.optimizer.name == "lamb") {
    return Status(
        Code::kInvalidArgument,
        "lamb, which needs whole tensors, is offloaded (expected sgd, nesterov or adamw)");
  }
  return check_batch(options, data);
}

}  // namespace gradwire
