// Ranks as threads of one process: tests, examples and a laptop's `--inproc N`.
#pragma once

#include <memory>
#include <vector>

#include "comm/inproc/virtual_clock.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

struct InprocOptions {
  // A rank that stop_rank() stopped counts as lost after this silence; real threads never do.
  double silence_seconds = 0.5;
  // Times every message; of as many ranks. Null: none does.
  std::shared_ptr<VirtualClock> clock = nullptr;
};

// Element r belongs to the thread that plays rank r and may be destroyed before or after the
// others. Message bodies are copied once, by the receiver's thread, from the sender's memory into
// the receiver's; so a send settles when its receiver has called progress() or wait().
// kInvalidArgument unless 1 <= size <= 65536.
Result<std::vector<std::unique_ptr<Transport>>> make_inproc_transports(
    int size, const InprocOptions& options = {});

}  // namespace gradwire
