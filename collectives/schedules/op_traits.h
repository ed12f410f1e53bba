// What is true of each operation of a Communicator, whatever serves it.
#pragma once

#include <cstdint>
#include <string_view>

#include "gradwire/communicator.h"

namespace gradwire {

// Which of the two tensors has one block for each rank, one after another.
enum class Blocks : std::uint8_t { kNone, kIn, kOut, kBoth };

struct OpTraits {
  std::string_view name;  // of the Communicator's method
  // The operation of the same meaning for one tensor and equal blocks, which has schedules:
  // kAllReduce of kAllReduceFused, kAllGather of kAllGatherV. Sends and receives have one schedule,
  // kSend's "direct": to the next rank and from the one before, at the same time.
  OpKind base;
  Blocks blocks = Blocks::kNone;
  bool reduces = false;
  bool rooted = false;   // OpCall::peer is the root
  bool counted = false;  // OpCall::counts are read
  bool pair = false;     // a send or a recv
};

constexpr OpTraits traits_of(OpKind kind) {
  using K = OpKind;
  switch (kind) {
    case K::kBroadcast: return {.name = "broadcast", .base = kind, .rooted = true};
    case K::kReduce: return {.name = "reduce", .base = kind, .reduces = true, .rooted = true};
    case K::kAllReduce: return {.name = "all_reduce", .base = kind, .reduces = true};
    case K::kAllReduceFused:
      return {.name = "all_reduce_fused", .base = K::kAllReduce, .reduces = true};
    case K::kReduceScatter:
      return {.name = "reduce_scatter", .base = kind, .blocks = Blocks::kIn, .reduces = true};
    case K::kReduceScatterV:
      return {.name = "reduce_scatter_v",
              .base = K::kReduceScatter,
              .blocks = Blocks::kIn,
              .reduces = true,
              .counted = true};
    case K::kAllGather: return {.name = "all_gather", .base = kind, .blocks = Blocks::kOut};
    case K::kAllGatherV:
      return {
          .name = "all_gather_v", .base = K::kAllGather, .blocks = Blocks::kOut, .counted = true};
    case K::kGather:
      return {.name = "gather", .base = kind, .blocks = Blocks::kOut, .rooted = true};
    case K::kGatherV:
      return {.name = "gather_v",
              .base = K::kGather,
              .blocks = Blocks::kOut,
              .rooted = true,
              .counted = true};
    case K::kScatter:
      return {.name = "scatter", .base = kind, .blocks = Blocks::kIn, .rooted = true};
    case K::kScatterV:
      return {.name = "scatter_v",
              .base = K::kScatter,
              .blocks = Blocks::kIn,
              .rooted = true,
              .counted = true};
    case K::kAllToAll: return {.name = "all_to_all", .base = kind, .blocks = Blocks::kBoth};
    case K::kAllToAllV:
      return {
          .name = "all_to_all_v", .base = K::kAllToAll, .blocks = Blocks::kBoth, .counted = true};
    case K::kExclusiveScan: return {.name = "exclusive_scan", .base = kind, .reduces = true};
    case K::kBarrier: return {.name = "barrier", .base = kind};
    case K::kSend: return {.name = "send", .base = K::kSend, .pair = true};
    case K::kRecv: return {.name = "recv", .base = K::kSend, .pair = true};
  }
  return {.name = "?", .base = kind};
}

}  // namespace gradwire
