// What the two ends of an asynchronous parameter server agree on.
#pragma once

#include <array>

#include "adapters/trainer/modes/block_coder.h"
#include "adapters/trainer/modes/frames.h"
#include "adapters/trainer/modes/server/ps_async.h"
#include "base/philox.h"

namespace gradwire {

struct AsyncJob {
  const Registry& registry;
  const ParameterTable& table;
  const ModeOptions& options;
  const AsyncServerOptions& async;
  const ServerLayout& layout;
  std::size_t running = 0;  // elements of a worker's running statistics

  BlockCoding push(int worker) const { return coding(async.server.push, 2 * worker); }
  BlockCoding pull(int worker) const { return coding(async.server.pull, 2 * worker + 1); }
  bool codes_pull() const { return async.server.pull != "none"; }
  std::int64_t period() const { return async.period; }
  // The signal that asked this rank to end, 0: none.
  int asked() const { return options.interruption == nullptr ? 0 : options.interruption->asked(); }

 private:
  BlockCoding coding(const std::string& spec, int way) const {
    return {spec, async.server.allow_unsafe,
            mix64(async.server.seed + static_cast<std::uint64_t>(way))};
  }
};

inline constexpr std::array kPushes{FrameKind::kPush, FrameKind::kLastPush};
inline constexpr std::array kPulls{FrameKind::kPull};

}  // namespace gradwire
