// What callers may hand to a Communicator: checks that every rank makes on its own side.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// What a call means on this rank, in elements. Counts of a tensor that this rank has no part in
// (root's `out` elsewhere) are 0.
struct Extent {
  DType dtype = DType::kU8;
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t agreed = -1;  // the count that all ranks must agree on; -1 where there is none
  // In place: in's elements [in_begin, in_begin + shared) are out's from out_begin on.
  std::int64_t shared = 0;
  std::int64_t in_begin = 0;
  std::int64_t out_begin = 0;
  auto operator<=>(const Extent&) const = default;
};

// A call whose arguments fit. Lent: used during the call alone.
struct CheckedCall {
  const OpCall& call;
  const OpOptions& options;
  Extent extent;
};

// A call that lasts, with a copy of what it lends; its algorithm is left to the path that has it.
struct KeptCall {
  explicit KeptCall(const CheckedCall& checked);
  KeptCall(const KeptCall&) = delete;
  KeptCall& operator=(const KeptCall&) = delete;

  OpCall call;
  OpOptions options;
  Extent extent;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> recv_counts;
  std::vector<TensorView> tensors;
};

// kInvalidArgument naming the operation, the value seen and the value wanted. Tensors are on the
// host, or any of them on one CUDA device, which is that of the stream then if the stream has one;
// where `device` is given, on that.
Result<Extent> check_call(const OpCall& call, const OpOptions& options, int rank, int size,
                          std::optional<Device> device = std::nullopt);

// The same for the most frequent calls of all, of which nothing can be wrong: fills the call's
// extent, or says false: then check_call() says all, and nothing that is in it counts.
bool check_quickly(CheckedCall& checked, int rank, int size);

// Whether a tensor of the call, used or not, or its stream is on a CUDA device.
bool names_device(const OpCall& call, const OpOptions& options);

// The CUDA device of a sound call's stream, or of the tensors that this rank uses in it; else the
// host.
Device device_of(const OpCall& call, const Extent& extent, const OpOptions& options);

// Whom it waits for: what the call asks for, else by its kind and size. Not kAuto.
Queue queue_of(const CheckedCall& call);

}  // namespace gradwire
