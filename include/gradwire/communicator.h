// A group of ranks that issue the same operations in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/link_model.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"
#include "gradwire/transport.h"
#include "gradwire/work.h"

namespace gradwire {

// A communicator's operation as a value: whoever wraps, plans, records or batches operations
// handles this one type.
enum class OpKind : std::uint8_t {
  kBroadcast,
  kReduce,
  kAllReduce,
  kAllReduceFused,
  kReduceScatter,
  kReduceScatterV,
  kAllGather,
  kAllGatherV,
  kGather,
  kGatherV,
  kScatter,
  kScatterV,
  kAllToAll,
  kAllToAllV,
  kExclusiveScan,
  kBarrier,
  kSend,
  kRecv,
};

// "all_reduce", "reduce_scatter_v", ...: the names of Communicator's methods.
std::string_view to_string(OpKind kind);

// As the sender of a recv: whoever sends first.
inline constexpr int kAnySource = -1;
// Tags of sends and recvs are 0 to this.
inline constexpr int kMostTag = 32767;

// What Communicator's method of the same name says about each argument; what a kind does not name
// stays as it is here. Spans are read during the call, tensors are lent until the Work is done.
struct OpCall {
  OpKind kind = OpKind::kBarrier;
  ConstTensorView in = {};
  TensorView out = {};
  ReduceOp op = ReduceOp::kSum;  // reductions
  int peer = 0;                  // the root, the receiver of a send, the sender of a recv
  int tag = 0;                   // of a send or recv
  std::span<const std::int64_t> counts = {};       // *_v; all_to_all_v: of what is sent
  std::span<const std::int64_t> recv_counts = {};  // all_to_all_v
  std::span<const TensorView> tensors = {};        // all_reduce_fused

  // For batches: Communicator::start_all.
  static OpCall send(ConstTensorView tensor, int peer, int tag = 0) {
    return {.kind = OpKind::kSend, .in = tensor, .peer = peer, .tag = tag};
  }
  static OpCall recv(TensorView tensor, int peer, int tag = 0) {
    return {.kind = OpKind::kRecv, .out = tensor, .peer = peer, .tag = tag};
  }
};

struct OpOptions {
  std::string_view algorithm =
      "auto";  // "ring", "canonical", ...; an unknown name is kInvalidArgument
  std::optional<Deadline>
      deadline;  // default: the communicator's deadline_seconds from the call on
  Stream stream;
  double factor = 1;  // of this rank's elements, for ReduceOp::kPreMulSum
};

// What a rank does while it waits for others. On a processor of its own, spinning answers soonest;
// where ranks share processors it keeps the others from theirs (figures:
// docs/internals/threads.md).
enum class Waiting : std::uint8_t {
  kAdaptive,  // some microseconds of spinning, or of yielding where ranks share processors; then
              // sleep
  kSpin,      // never gives its processor away, however long it takes
  kYield,     // gives it to whoever else wants it, but never sleeps
  kSleep,     // sleeps at once
};

// "adaptive", "spin", "yield", "sleep".
std::string_view to_string(Waiting waiting);

// Writes `holder` as the holder of token `name`, unless it has one; returns who holds it then. Of
// all ranks that call, on any host, one is first. Bounded by `until`. Errors: of the store.
using TakeToken = std::function<Result<std::string>(const std::string& name,
                                                    const std::string& holder, Deadline until)>;

struct CommunicatorOptions {
  double deadline_seconds = 15;  // bounds every operation that names no deadline of its own
  // Every message carries an XXH3 checksum; one that does not fit is kCorruptPayload, naming the
  // message and both ranks. Alike on all ranks. What ranks read from each other's memory without a
  // message (arenas) has none.
  bool checksums = false;
  std::string algorithm = "auto";  // all_reduce and reduce_scatter calls that say "auto" take this
  // Which node each rank of the job is on, as any number: what two_level, blueconnect and "auto" go
  // by, in groups that are split off too. Equal on all ranks. Empty: where ranks meet by a
  // Rendezvous, ranks of one host are on one (`node`); else nobody knows, and every two ranks count
  // as equally far.
  std::vector<int> node_of = {};
  // What this rank's node is called, for nodes that are not hosts; empty: by its host, as
  // processes, networks and names see it. Ranks that say the same are on one.
  std::string node = {};
  // Bytes of the host's memory that its ranks share at most; 0: half of it.
  std::size_t shared_bytes = 0;
  // What "auto" chooses by; equal on all ranks. Fixed numbers unless said otherwise, so that sums
  // repeat bit for bit on every machine; calibrate() measures those of this one.
  LinkModel links = {};
  // Where a failure leaves what this rank did last, for `gradwire inspect flight`; empty: nowhere.
  std::string flight_folder = {};
  std::size_t flight_operations = 256;  // that are remembered
  // Told, from any thread, what no call can return: that a flight record could not be written.
  std::function<void(std::string_view)> warn = {};
  Waiting waiting = Waiting::kAdaptive;
  // Of shrink(): a rank that is alone, and of which nobody can tell it that the others have ended,
  // goes on all the same. It may then be one of several that do.
  bool allow_lone_survivor = false;
  // Of shrink(): in a store that outlives the ranks (their launcher's). Where ranks that may live
  // are out of reach, those go on that take the next token, however few; who cannot ask the store
  // does not. Empty: the majority goes on. On all ranks, or on none.
  TakeToken take_token = {};
};

// Calls come from one thread per communicator and return at once; tensors are lent until the Work
// is done. Communicators split from one another may be used from different threads at the same
// time. Every operation is exact up to the rounding of its dtype's arithmetic (f16 and bf16 are
// added and multiplied in f32 and rounded once per reduction step), and what all ranks get is
// bit-identical on all of them (but for which of several NaNs it is).
//
// Arguments that do not fit (sizes, types, a rank out of range, memory that overlaps otherwise than
// the operation allows) are kInvalidArgument with the operation, the value and the value wanted;
// nothing is sent then. Failure: within its deadline + 1 s every rank's Work ends, kPeerLost or
// kTimedOut naming the lost rank (or the ranks that were waited for), the operation and the elapsed
// time. After any operation's error but kInvalidArgument the communicator and all that were split
// from the same root are finished, and every call returns that error.
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

  // Zeroed memory for tensors of this communicator's operations, where they run best on it: shared
  // with the other ranks where these share memory, else the heap's. Not collective; any thread. It
  // may outlive the communicator. Errors as Buffer::allocate().
  virtual Result<Buffer> allocate(std::size_t bytes);
  // What such a call runs: `wanted`, or what "auto" stands for at this size, which is the algorithm
  // that takes least by the links' numbers. bytes: of the tensor, or of all ranks' rows together.
  virtual Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes,
                                                 std::string_view wanted = "auto") = 0;
  // By rank: its node, numbered from 0 on in the order of first ranks; empty where nobody knows.
  virtual std::vector<int> nodes() const = 0;
  // How many; size() where nobody knows.
  int node_count() const;
  virtual LinkModel links() const = 0;
  // Sets the link parameters by which "auto" chooses algorithms, in later calls and in
  // communicators split off later. Call it between operations, with the same values on all ranks.
  virtual void set_link_parameters(const LinkModel& links) = 0;
  [[deprecated("use set_link_parameters()")]] void use_links(const LinkModel& links) {
    set_link_parameters(links);
  }
  // Ends all operations of this rank with kCancelled; the others' end too, and say that this rank
  // gave `reason`. Nothing after a failure.
  virtual void abort(std::string_view reason) = 0;
  // Collective over the ranks of this communicator that are left after a failure, the first error
  // of status() (ranks that have not noticed are made to fail): a communicator of them, in the old
  // order, over the same transport. This one and its relatives stay finished, and cannot shrink
  // again: of several that were split from one another, all ranks shrink the same one, once.
  // Blocks, at most a second longer than the deadline (default: deadline_seconds from the call on),
  // at which ranks that live but have not called are left behind. No store and no rank in
  // particular is needed. kPeerLost: this rank is isolated (of a network that falls apart one side
  // goes on: take_token, or else its size, decides; docs/failure.md) or was left behind.
  // kInvalidArgument: nothing has failed. kUnsupported: not over this transport.
  virtual Result<std::unique_ptr<Communicator>> shrink(
      std::optional<Deadline> deadline = std::nullopt) = 0;

  // Collective. Ranks with equal `color` form a group ordered by `key`, then by old rank; a
  // negative color takes part and receives null.
  virtual Result<std::unique_ptr<Communicator>> split(int color, int key) = 0;

  // Waits until a peer (kAnySource: any) has sent something with that tag that no recv has taken:
  // that peer; or `until`: -1, and nothing has happened. Receives nothing. Errors as those of a
  // recv.
  virtual Result<int> probe(int peer, int tag, Deadline until);

  // Starts one operation. The methods below are spellings of this one.
  virtual Result<Work> start(const OpCall& call, const OpOptions& options = {}) = 0;
  // Starts several, all or none, in one Work that is done when all are. They are in flight together
  // and so cannot block one another: ranks may list the sends and receives of a batch in any order
  // (the k-th send to a peer still meets the k-th recv there), but collectives in the same.
  virtual Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options = {}) = 0;
  // Checks and plans an operation that will run many times on the same memory. Sends nothing; the
  // ranks agree on the order of the starts. options.deadline must be unset: each run has the
  // communicator's. The result must not outlive the communicator.
  virtual Result<PersistentWork> prepare(const OpCall& call, const OpOptions& options = {}) = 0;

  // Two-tensor forms work in place when `out` is `in`, or the row of it that the operation says;
  // any other overlap is refused. What is said of the root's `out` (`in`) alone: it is not looked
  // at on other ranks and may be {} there. n, size: elements, and of the group.

  // Every rank's `out` (n) becomes root's `in` (n; other ranks' is not looked at).
  Result<Work> broadcast(ConstTensorView in, TensorView out, int root,
                         const OpOptions& options = {});
  Result<Work> broadcast(TensorView tensor, int root, const OpOptions& options = {});
  // root's `out` (n): the reduction of all ranks' `in` (n).
  Result<Work> reduce(ConstTensorView in, TensorView out, ReduceOp op, int root,
                      const OpOptions& options = {});
  // Every rank's `out` (n): the reduction of all ranks' `in` (n).
  Result<Work> all_reduce(ConstTensorView in, TensorView out, ReduceOp op,
                          const OpOptions& options = {});
  Result<Work> all_reduce(TensorView tensor, ReduceOp op, const OpOptions& options = {});
  // In place over many small tensors of one type as if they were one: as many messages as for one.
  // An element's order of summation depends on its place among all, so results equal those of
  // tensors that are reduced apart bit for bit under "canonical" alone.
  Result<Work> all_reduce_fused(std::span<const TensorView> tensors, ReduceOp op,
                                const OpOptions& options = {});
  // in: (size, n) taken as elements; out: (n), the reduction of row rank(). In place: out is row
  // rank() of in.
  Result<Work> reduce_scatter(ConstTensorView in, TensorView out, ReduceOp op,
                              const OpOptions& options = {});
  // The same with rows of counts[r] elements.
  Result<Work> reduce_scatter_v(ConstTensorView in, TensorView out,
                                std::span<const std::int64_t> counts, ReduceOp op,
                                const OpOptions& options = {});
  // in: (n) on each rank; out: (size, n), rank r's block at row r. In place: in is row rank() of
  // out.
  Result<Work> all_gather(ConstTensorView in, TensorView out, const OpOptions& options = {});
  // Rank r contributes counts[r] elements (bytes in the second form), equal on all ranks and known
  // to all; out holds them one after another in rank order.
  Result<Work> all_gather_v(ConstTensorView in, TensorView out,
                            std::span<const std::int64_t> counts, const OpOptions& options = {});
  Result<Work> all_gather_v(ConstByteSpan in, ByteSpan out, std::span<const std::int64_t> bytes,
                            const OpOptions& options = {});
  // As all_gather_v for lengths that only their owners know: blocks while the lengths (8 bytes a
  // rank) travel, then returns the Work that fills `out` (resized) and `bytes`; both are lent until
  // it is done.
  Result<Work> all_gather_unsized(ConstByteSpan in, std::vector<std::byte>& out,
                                  std::vector<std::int64_t>& bytes, const OpOptions& options = {});
  // As all_gather(_v) for root's `out` alone.
  Result<Work> gather(ConstTensorView in, TensorView out, int root, const OpOptions& options = {});
  Result<Work> gather_v(ConstTensorView in, TensorView out, std::span<const std::int64_t> counts,
                        int root, const OpOptions& options = {});
  // root's `in`: (size, n); out: (n), row rank() of it. In place at root: out is row root of in.
  Result<Work> scatter(ConstTensorView in, TensorView out, int root, const OpOptions& options = {});
  // The same with rows of counts[r] elements, equal on all ranks and known to all.
  Result<Work> scatter_v(ConstTensorView in, TensorView out, std::span<const std::int64_t> counts,
                         int root, const OpOptions& options = {});
  // in and out: (size, n); row r of in goes to rank r, row r of out comes from rank r.
  Result<Work> all_to_all(ConstTensorView in, TensorView out, const OpOptions& options = {});
  // send_counts[r] elements (bytes in the second form) of `in` go to rank r, recv_counts[r] of
  // `out` come from it, both laid out in rank order. send_counts[r] here equals
  // recv_counts[rank()] there. In place where the two are equal.
  Result<Work> all_to_all_v(ConstTensorView in, std::span<const std::int64_t> send_counts,
                            TensorView out, std::span<const std::int64_t> recv_counts,
                            const OpOptions& options = {});
  Result<Work> all_to_all_v(ConstByteSpan in, std::span<const std::int64_t> send_bytes,
                            ByteSpan out, std::span<const std::int64_t> recv_bytes,
                            const OpOptions& options = {});
  // out (n) on rank r: the reduction of ranks 0 .. r - 1's `in` (n); on rank 0 what leaves every
  // other value as it is (0 for a sum, 1 for a product, the lowest value for a maximum). Not
  // kMean.
  Result<Work> exclusive_scan(ConstTensorView in, TensorView out, ReduceOp op,
                              const OpOptions& options = {});
  Result<Work> barrier(const OpOptions& options = {});
  // Point to point; the k-th send to a peer with a tag (start() and OpCall::send; 0 here) meets the
  // k-th recv with it from this rank there, and may overlap collectives. `peer` is a group rank,
  // not this one. A recv from kAnySource takes what a peer sends first that no other recv has
  // taken, and Work::source() says whom it came from; not in prepare(). Counts and types are the
  // sender's: another count is kRankMismatch, other types never meet. Messages may be received in
  // any order; a send stays open until its recv is posted where more than some MiB to that peer
  // wait for theirs.
  Result<Work> send(ConstTensorView tensor, int peer, const OpOptions& options = {});
  Result<Work> recv(TensorView tensor, int peer, const OpOptions& options = {});
};

// The communicator of all ranks over an own transport.
Result<std::unique_ptr<Communicator>> make_communicator(std::unique_ptr<Transport> transport,
                                                        const CommunicatorOptions& options = {});

// The same, but ranks of one host share memory if the system lets them: collectives that leave the
// algorithm open ("auto") then read and write the tensors of the host's other ranks and sum in rank
// order, and where there are several hosts send messages between these. describe() says what
// became of it. Collective.
Result<std::unique_ptr<Communicator>> make_sharing_communicator(
    std::unique_ptr<Transport> transport, const CommunicatorOptions& options = {});

// Rank 0's count.
struct LinkSettings {
  // A file that keeps measured numbers for a week, by host, transport and ranks; empty: none.
  std::string cache = {};
  bool measure = false;  // even where the file has them
};
// Collective: takes the parameters of the links between these ranks from rank 0's cache, or
// measures them (tens of milliseconds) and caches them; gives all ranks the same with
// set_link_parameters(), and returns them.
Result<LinkModel> calibrate(Communicator& communicator, const LinkSettings& settings = {});
[[deprecated("use calibrate()")]] inline Result<LinkModel> settle_links(
    Communicator& communicator, const LinkSettings& settings = {}) {
  return calibrate(communicator, settings);
}

// `options` with node_of, where it is empty, as the ranks' hosts say. Collective over the job,
// once.
Result<CommunicatorOptions> with_nodes(const Rendezvous& rendezvous,
                                       const CommunicatorOptions& options);

// By backend name: "ucx" or "tcp": messages alone; "auto": shared memory inside hosts beside those
// of UCX, or of TCP in a build without it; "nccl", "nccl:N": NCCL on the CUDA device of the rank's
// place in its host, or N, beside them. Collective. kUnsupported names the backends of this build.
Result<std::unique_ptr<Communicator>> make_communicator(std::string_view backend,
                                                        const Rendezvous& rendezvous,
                                                        const CommunicatorOptions& options = {});

// `size` ranks as threads of this process: element r belongs to the thread that plays rank r.
Result<std::vector<std::unique_ptr<Communicator>>> make_inproc_communicators(
    int size, const CommunicatorOptions& options = {});

}  // namespace gradwire
