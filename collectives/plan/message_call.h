// A call as messages serve it: its plan and the memory that it runs on.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/engine/executor.h"
#include "collectives/failure/flight_recorder.h"
#include "collectives/plan/lent_inputs.h"
#include "collectives/plan/plan_cache.h"
#include "collectives/schedules/op_traits.h"

namespace gradwire {

struct MessageCall {
  OpKind kind = OpKind::kBarrier;
  MessagePlan plan = {};
  Signature signature = {};
  DType dtype = DType::kU8;
  Operands operands = {};
  Operated operated = {};
  int peer = -1;  // of a send or recv
  int tag = 0;
  // Of an operation on a device: gets neutral elements of operands.op when all messages are done.
  TensorView fill = {};
  bool pair() const { return traits_of(kind).pair; }
};

}  // namespace gradwire
