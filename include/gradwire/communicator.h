// A group of ranks that issue the same operations in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/rendezvous.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"
#include "gradwire/transport.h"
#include "gradwire/work.h"

namespace gradwire {

struct OpOptions {
  std::string_view algorithm =
      "auto";  // "ring", "canonical", ...; an unknown name is kInvalidArgument
  std::optional<Deadline>
      deadline;  // default: the communicator's deadline_seconds from the call on
  Stream stream;
};

struct CommunicatorOptions {
  double deadline_seconds = 15;    // bounds every operation that names no deadline of its own
  std::string algorithm = "auto";  // all_reduce and reduce_scatter calls that say "auto" take this
};

// Calls come from one thread per communicator and return at once; tensors are lent until the Work
// is done. Communicators split from one another may be used from different threads at the same
// time. Every operation is exact up to the rounding of its dtype's additions (f16 and bf16 are
// added in f32 and rounded once per reduction step), and leaves bit-identical results on all ranks.
// Failure: within its deadline + 1 s every rank's Work ends, kPeerLost or kTimedOut naming the lost
// rank (or the ranks that were waited for), the operation and the elapsed time. After any
// operation's error but kInvalidArgument the communicator and all that were split from the same
// root are finished, and every call returns that error.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The job's rank of group rank r.
  virtual int job_rank(int r) const = 0;
  // The first error, or ok.
  virtual Status status() const = 0;
  // Of the transport below: all communicators of this rank together.
  virtual TransportStats transport_stats() const = 0;
  // Message bytes that operations of this communicator have sent; any thread may ask.
  virtual std::uint64_t bytes_sent() const = 0;
  virtual std::string describe() const = 0;

  // Collective. Ranks with equal `color` form a group ordered by `key`, then by old rank; a
  // negative color takes part and receives null.
  virtual Result<std::unique_ptr<Communicator>> split(int color, int key) = 0;

  // In place; all ranks end with bit-identical contents, whatever the algorithm.
  virtual Result<Work> all_reduce(TensorView tensor, ReduceOp op,
                                  const OpOptions& options = {}) = 0;
  // in: (size, n) taken as elements; out: (n), the reduction of row rank().
  virtual Result<Work> reduce_scatter(ConstTensorView in, TensorView out, ReduceOp op,
                                      const OpOptions& options = {}) = 0;
  // in: (n) on each rank; out: (size, n), rank r's block at row r.
  virtual Result<Work> all_gather(ConstTensorView in, TensorView out,
                                  const OpOptions& options = {}) = 0;
  // Rank r contributes bytes[r] bytes, equal on all ranks and known to all; out holds them one
  // after another in rank order. `bytes` is copied.
  virtual Result<Work> all_gather_v(ConstByteSpan in, ByteSpan out,
                                    std::span<const std::int64_t> bytes,
                                    const OpOptions& options = {}) = 0;
  // As all_gather_v for lengths that only their owners know: blocks while the lengths (8 bytes a
  // rank) travel, then returns the Work that fills `out` (resized) and `bytes`; both are lent until
  // it is done.
  virtual Result<Work> all_gather_unsized(ConstByteSpan in, std::vector<std::byte>& out,
                                          std::vector<std::int64_t>& bytes,
                                          const OpOptions& options = {}) = 0;
  // in and out: (size, n); row r of in goes to rank r, row r of out comes from rank r.
  virtual Result<Work> all_to_all(ConstTensorView in, TensorView out,
                                  const OpOptions& options = {}) = 0;
  // send_bytes[r] bytes of `in` go to rank r, recv_bytes[r] bytes of `out` come from it, both laid
  // out in rank order. send_bytes[r] here equals recv_bytes[rank()] there. Both are copied.
  virtual Result<Work> all_to_all_v(ConstByteSpan in, std::span<const std::int64_t> send_bytes,
                                    ByteSpan out, std::span<const std::int64_t> recv_bytes,
                                    const OpOptions& options = {}) = 0;
  virtual Result<Work> broadcast(TensorView tensor, int root, const OpOptions& options = {}) = 0;
  virtual Result<Work> barrier(const OpOptions& options = {}) = 0;
  // Point to point; the k-th send to a peer meets the k-th recv from this rank there, and may
  // overlap collectives. `peer` is a group rank.
  virtual Result<Work> send(ConstTensorView tensor, int peer, const OpOptions& options = {}) = 0;
  virtual Result<Work> recv(TensorView tensor, int peer, const OpOptions& options = {}) = 0;
};

// The communicator of all ranks over an own transport.
Result<std::unique_ptr<Communicator>> make_communicator(std::unique_ptr<Transport> transport,
                                                        const CommunicatorOptions& options = {});

// By backend name: "ucx" or "tcp". Collective. kUnsupported names the backends of this build.
Result<std::unique_ptr<Communicator>> make_communicator(std::string_view backend,
                                                        const Rendezvous& rendezvous,
                                                        const CommunicatorOptions& options = {});

// `size` ranks as threads of this process: element r belongs to the thread that plays rank r.
Result<std::vector<std::unique_ptr<Communicator>>> make_inproc_communicators(
    int size, const CommunicatorOptions& options = {});

}  // namespace gradwire
