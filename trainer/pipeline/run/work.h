// What the operations of one rank do, as the executor sees it.
#pragma once

#include <cstddef>
#include <span>

#include "gradwire/status.h"
#include "trainer/pipeline/op.h"

namespace gradwire {

// One rank's stages. From the thread that executes, one call at a time, in the order of the rank's
// list; an error ends the execution with that error.
class PipelineWork {
 public:
  virtual ~PipelineWork() = default;

  // Does an operation that is no transfer. On return it is done; RG alone is under way until
  // finish() of the same operation.
  virtual Status run(const PipelineOp& op) = 0;
  virtual Status finish(const PipelineOp& reduction) = 0;

  // RF, RB: memory for the message, lent until the computation that reads it has returned.
  virtual Result<std::span<std::byte>> room_for(const PipelineOp& receive) = 0;
  // SF, SB: what the computation of the same stage and micro-batch has made, unchanged until
  // sent().
  virtual Result<std::span<const std::byte>> message(const PipelineOp& send) = 0;
  virtual void sent(const PipelineOp& send) = 0;
};

}  // namespace gradwire
