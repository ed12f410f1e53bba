#include "adapters/trainer/modes/server/ps_async.h"

#include <cmath>

#include "adapters/trainer/modes/server/async_server.h"
#include "adapters/trainer/modes/server/async_worker.h"
#include "base/check.h"
#include "base/text.h"

namespace gradwire {
namespace {

Status check(const ModeOptions& options, const AsyncServerOptions& async) {
  if (async.period < 1) {
    return {Code::kInvalidArgument, format("parameter server: period %lld (expected at least 1)",
                                           static_cast<long long>(async.period))};
  }
  if (async.staleness.value_or(0) < 0) {
    return {Code::kInvalidArgument,
            format("parameter server: staleness %lld (expected at least 0 steps)",
                   static_cast<long long>(*async.staleness))};
  }
  if (options.momentum >= 0 && options.momentum < 1) return {};
  return {Code::kInvalidArgument,
          format("parameter server: momentum %g (expected 0 <= momentum < 1)", options.momentum)};
}

}  // namespace

double AsyncOutcome::mean_staleness() const {
  return counts.pushes == 0 ? 0 : counts.staleness / static_cast<double>(counts.pushes);
}

Result<AsyncOutcome> run_ps_async(Communicator& world, const Registry& registry,
                                  GradientSource* source, const ParameterTable& table,
                                  const ModeOptions& options, const AsyncServerOptions& async,
                                  std::span<float> params, const OnModeStep& on_step) {
  GW_TRY(check(options, async));
  GW_ASSIGN(const ServerLayout layout, ServerLayout::create(world, table, async.server));
  GW_ASSIGN(std::vector<FrameLink> links,
            link_up(world, layout.servers(), options.deadline_seconds));
  const std::size_t running = source == nullptr ? 0 : source->running().size();
  const AsyncJob job{registry, table, options, async, layout, running};
  AsyncOutcome outcome;
  if (layout.serves()) {
    GW_ASSIGN(const auto server,
              AsyncServer::create(job, links, params, running > 0 ? source : nullptr, on_step));
    GW_TRY(run_between_checkpoints(*server, world, options));
    outcome = server->outcome();
  } else {
    GW_CHECK(source != nullptr);
    GW_ASSIGN(const auto worker, AsyncWorker::create(job, links, *source, params));
    GW_TRY(run_between_checkpoints(*worker, world, options));
  }
  GW_TRY(share_parameters(world, layout, params));
  GW_TRY(share_running(world, source, options.deadline_seconds));
  return outcome;
}

}  // namespace gradwire
