// Communicator: a group of ranks that start the same collective operations in the same order.
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

// The operations of a Communicator.
enum class OpKind : std::uint8_t {
  // Each stands for the method of the same name: kAllReduce for all_reduce().
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

// "all_reduce", "reduce_scatter_v", ...: the name of the method. Valid for the program's life.
std::string_view to_string(OpKind kind);

// The `peer` of a recv() that takes a message of any rank.
inline constexpr int kAnySource = -1;
// The largest tag number of a send() or recv(); the smallest is 0.
inline constexpr int kMostTag = 32767;

// An operation as a value, for start(), batches and prepared operations. The fields are the
// arguments of the method that `kind` names; fields that it does not take keep their defaults.
// Spans are read during the call; tensors are lent until the Work is done.
struct OpCall {
  OpKind kind = OpKind::kBarrier;  // which operation
  ConstTensorView in = {};         // the input
  TensorView out = {};             // the output
  ReduceOp op = ReduceOp::kSum;    // of reductions
  int peer = 0;                    // group rank: the root, a send's receiver, a recv's sender
  int tag = 0;                     // of a send or recv: a number from 0 to kMostTag
  std::span<const std::int64_t> counts = {};       // *_v: elements of each rank's block;
                                                   // all_to_all_v: elements sent to each rank
  std::span<const std::int64_t> recv_counts = {};  // all_to_all_v: elements received from each rank
  std::span<const TensorView> tensors = {};        // all_reduce_fused: the tensors

  // send(), recv(): an element of a batch for Communicator::start_all(), in which `tensor` is sent
  // to, or received from, group rank `peer`.
  static OpCall send(ConstTensorView tensor, int peer, int tag = 0) {
    return {.kind = OpKind::kSend, .in = tensor, .peer = peer, .tag = tag};
  }
  static OpCall recv(TensorView tensor, int peer, int tag = 0) {
    return {.kind = OpKind::kRecv, .out = tensor, .peer = peer, .tag = tag};
  }
};

// Options of one operation.
struct OpOptions {
  std::string_view algorithm =
      "auto";  // "ring", "canonical", ... (docs/algorithms.md); an unknown name is kInvalidArgument
  std::optional<Deadline> deadline;  // when it ends with kTimedOut; default: deadline_seconds from
                                     // the call, or from the end of sends and recvs before it
  Stream stream;      // for GPU tensors: the operation starts after the work on this stream
  double factor = 1;  // for ReduceOp::kPreMulSum: factor of this rank's elements, a ratio
  Queue queue = Queue::kAuto;  // how urgent it is among this rank's operations
};

// What a thread does while it waits for other ranks. Spinning has the shortest latency if each rank
// has a processor; if ranks share processors, it slows the others down (docs/internals/threads.md
// has figures).
enum class Waiting : std::uint8_t {
  kAdaptive,  // spins for some microseconds (yields if ranks share processors), then sleeps
  kSpin,      // keeps the processor for the whole wait
  kYield,     // yields the processor to other threads, but does not sleep
  kSleep,     // sleeps at once
};

// "adaptive", "spin", "yield" or "sleep". Valid for the program's life.
std::string_view to_string(Waiting waiting);

// Stores `holder` as the holder of the token `name` unless the token has a holder, and returns the
// holder. Of all ranks that call, on any host, exactly one becomes the holder. Returns at the
// latest at `until`. Errors: those of the store behind it.
using TakeToken = std::function<Result<std::string>(const std::string& name,
                                                    const std::string& holder, Deadline until)>;

// Options of a communicator.
struct CommunicatorOptions {
  double deadline_seconds = 15;  // time limit of operations that set no deadline, seconds; above 0
  // True: every message carries an XXH3 checksum, and a message whose checksum does not match ends
  // with kCorruptPayload, naming the message and both ranks. Equal on all ranks. Memory that ranks
  // of a host read from each other without a message (shared-memory segments) has no checksum.
  bool checksums = false;
  // Of all_reduce calls that name none, and of reduce_scatter calls if they have it.
  std::string algorithm = "auto";  // over NCCL, "two_level" sums GPU tensors by nodes (docs/gpu.md)
  // The node number of each rank of the job, used by two_level, blueconnect and "auto", also in
  // split groups. Equal on all ranks. Empty: if the ranks meet by a Rendezvous, the ranks of a host
  // (see `node`) form a node; otherwise nodes are unknown, and all ranks count as equally far.
  std::vector<int> node_of = {};
  // The name of this rank's node: ranks with the same name form a node. Empty: the host, as told
  // apart by process, network and host name spaces.
  std::string node = {};
  // Bytes of host memory that the ranks of a host may share; 0: half of the host's memory.
  std::size_t shared_bytes = 0;
  // The link parameters by which "auto" selects algorithms; equal on all ranks. The defaults are
  // constants, so that sums repeat bit for bit on every machine; calibrate() measures this
  // machine's.
  LinkModel links = {};
  // The folder to which a failed rank's last operations are written (`gradwire inspect flight`
  // reads them); empty: none.
  std::string flight_folder = {};
  std::size_t flight_operations = 256;  // number of operations that are remembered
  // Called from any thread for errors that no API call can return, e.g. a flight record that cannot
  // be written. Must be short and must not call the communicator. May be empty.
  std::function<void(std::string_view)> warn = {};
  Waiting waiting = Waiting::kAdaptive;  // how threads wait
  // Number of threads that share the reductions of large operations on host memory, the one that
  // drives them included; at least 1. Results do not depend on it.
  int reduction_threads = 1;
  // For shrink(): true lets a single rank continue even if it cannot know that the others have
  // ended. Several ranks may then continue separately.
  bool allow_lone_survivor = false;
  // For shrink(): takes tokens in a store that outlives the ranks (the launcher's). If ranks that
  // may still run are out of reach, the side that takes the next token continues, however few ranks
  // it has; a rank that cannot reach the store does not continue. Empty: the majority continues.
  // Set on all ranks or on none.
  TakeToken take_token = {};
};

// Which ranks of a communicator share memory, through which collectives with the algorithm "auto"
// go.
enum class SharedMemory : std::uint8_t {
  kNone,         // none
  kInsideHosts,  // there are several hosts; the ranks of a host share memory
  kAllRanks,     // all ranks are on one host
};

// Options of a group that is split off.
struct GroupOptions {
  // True: all its operations are messages, also where the communicator that it is split from uses
  // shared memory, or NCCL for GPU tensors. Equal on all ranks.
  bool messages_only = false;
  // True: the group goes on when ranks are lost that are not among its members, though all other
  // groups of the job have failed; until its members abort(), or shrink() another group. Equal on
  // all ranks. Not for groups of a group that has NCCL. Other failures (a time limit without a lost
  // rank, a mismatch, abort()) end the operations of all groups.
  bool fails_alone = false;
};

// A group of ranks and its collective operations.
//
// Threads: one at a time per communicator; any thread where a method says so. Communicators that
// were split from one another may be used by different threads at the same time.
//
// Operations return at once with a Work; tensors are lent until it is done. Results are exact up to
// the rounding of the element type (f16 and bf16 are added and multiplied in f32 and rounded once
// per reduction step) and bit-identical on all ranks, except for the payload bits of NaNs.
//
// Errors of every operation: kInvalidArgument for wrong sizes, types or ranks, or for memory that
// overlaps in a way that the operation does not allow; it names the operation, the value and the
// expected value, and nothing is sent. kUnsupported for an element type or device that the
// communicator cannot serve. kPeerLost if a rank failed, and kTimedOut if a rank did not take part
// before the deadline: both end the Work of every rank within 1 second after the deadline, and name
// the failed rank (or the ranks that are missing), the operation and the elapsed time.
// kRankMismatch, kCorruptPayload and kCancelled as status.h says. After any error except
// kInvalidArgument and kUnsupported, the communicator and all that were split from the same root
// (GroupOptions::fails_alone names the exception) are unusable: every later call returns the error.
//
// n below: elements of one rank's block, or of the whole tensor where all ranks have all of it.
// size: the number of ranks of the group.
class Communicator {
 public:
  virtual ~Communicator() = default;
  // This rank in the group, 0 to size() - 1.
  virtual int rank() const = 0;
  // The number of ranks of the group.
  virtual int size() const = 0;
  // The rank in the job of the group's rank r.
  virtual int job_rank(int r) const = 0;
  // The error that made the communicator unusable, or success. Never fails itself. Any thread.
  virtual Status status() const = 0;
  // Counters of the transport, for all communicators of this rank together.
  virtual TransportStats transport_stats() const = 0;
  // Bytes of messages that operations of this communicator have sent. Any thread.
  virtual std::uint64_t bytes_sent() const = 0;
  // One line for people: ranks, transport, versions.
  virtual std::string describe() const = 0;
  // The time limit of operations that set no deadline, seconds.
  virtual double deadline_seconds() const { return CommunicatorOptions().deadline_seconds; }
  // Which ranks share memory.
  virtual SharedMemory shared_memory() const { return SharedMemory::kNone; }

  // Allocates `bytes` zeroed bytes for tensors of this communicator's operations: in memory that
  // the host's ranks share, if they do, else on the heap. Operations on shared memory need fewer
  // copies. Not collective. Any thread. The Buffer may outlive the communicator. Errors: those of
  // Buffer::allocate().
  virtual Result<Buffer> allocate(std::size_t bytes);
  // The algorithm that a call with the algorithm `wanted` runs: `wanted` itself, or for "auto" the
  // one with the least predicted time by the link parameters. bytes: of the tensor, or of all
  // ranks' blocks together. Errors: kInvalidArgument for an unknown algorithm, or one that the
  // operation does not have.
  virtual Result<std::string_view> algorithm_for(OpKind kind, std::int64_t bytes,
                                                 std::string_view wanted = "auto") = 0;
  // The node number of each rank: nodes count from 0 in the order of their first ranks. Empty if
  // nodes are unknown.
  virtual std::vector<int> nodes() const = 0;
  // The number of nodes; size() if they are unknown.
  int node_count() const;
  // The link parameters in use.
  virtual LinkModel links() const = 0;
  // Sets the link parameters by which "auto" chooses algorithms, in later calls and in
  // communicators split off later. Call it between operations, with the same values on all ranks.
  virtual void set_link_parameters(const LinkModel& links) = 0;
  // The earlier name of set_link_parameters().
  [[deprecated("use set_link_parameters()")]] void use_links(const LinkModel& links) {
    set_link_parameters(links);
  }
  // Ends all operations of this rank with kCancelled. Those of the other ranks end, too, with an
  // error that names this rank and `reason`. Does nothing after a failure. Any thread.
  virtual void abort(std::string_view reason) = 0;
  // After a failure: a new communicator of the surviving ranks, in the old order, over the same
  // transport. Collective over the survivors; ranks that have not noticed the failure are informed.
  // This communicator, and all that were split from the same root, stay unusable. If several were
  // split from one another, all ranks shrink the same one, once. Needs no store and no particular
  // rank. Blocks until the survivors agree, at most 1 second longer than the deadline (default:
  // deadline_seconds from the call); ranks that have not called by then are excluded. Errors:
  // kPeerLost if this rank was excluded or is isolated (when a network is partitioned, one side
  // continues: the one that take_token or else the majority decides; docs/failure.md);
  // kInvalidArgument if nothing has failed; kUnsupported if the transport cannot recover.
  virtual Result<std::unique_ptr<Communicator>> shrink(
      std::optional<Deadline> deadline = std::nullopt) = 0;

  // Divides the group: ranks with equal `color` form a communicator, ordered by `key`, then by old
  // rank. Collective. A rank with a negative color takes part and receives null. Errors: those of
  // every operation; kInternal if the job has too many communicators at a time (4,095).
  virtual Result<std::unique_ptr<Communicator>> split(int color, int key,
                                                      const GroupOptions& options) = 0;
  Result<std::unique_ptr<Communicator>> split(int color, int key) { return split(color, key, {}); }

  // A communicator of `ranks`: group ranks of this one in the order of the new ranks, this rank
  // among them. Collective over those alone, with the same list; the others need not know. Two
  // members make their groups in the same order. Errors: those of every operation; kRankMismatch if
  // a member has another list; kInternal as split(); kUnsupported for an implementation without it.
  virtual Result<std::unique_ptr<Communicator>> create_group(std::span<const int> ranks,
                                                             const GroupOptions& options);
  Result<std::unique_ptr<Communicator>> create_group(std::span<const int> ranks) {
    return create_group(ranks, {});
  }

  // Waits until group rank `peer` (kAnySource: any rank) has sent a message with that tag that no
  // recv() has taken, and returns the sender; -1 if there is none before `until`. Receives nothing.
  // Errors: those of recv(); kUnsupported for an implementation without it.
  virtual Result<int> probe(int peer, int tag, Deadline until);

  // Starts one operation; the methods below call it. Errors: those of every operation.
  virtual Result<Work> start(const OpCall& call, const OpOptions& options = {}) = 0;
  // Starts all operations, or none if one is refused, as one Work that is done when all are. They
  // run at the same time, so they cannot block each other: ranks may list the sends and recvs of a
  // batch in any order (the k-th send to a peer meets the k-th recv there), but collectives in the
  // same order. Errors: those of every operation.
  virtual Result<Work> start_all(std::span<const OpCall> calls, const OpOptions& options = {}) = 0;
  // Checks and plans an operation that runs many times on the same memory. Sends nothing: ranks
  // need only start the runs in the same order. Each run has the communicator's deadline;
  // options.deadline must be unset. The result must not outlive the communicator. Errors:
  // kInvalidArgument, as every operation, or for a recv from kAnySource.
  virtual Result<PersistentWork> prepare(const OpCall& call, const OpOptions& options = {}) = 0;

  // The operations. Two-tensor forms work in place if `out` is `in`, or the block of it that the
  // operation names; other overlaps are refused. Arguments that an operation describes for the root
  // only are ignored on other ranks, and may be {} there.

  // Copies the root's `in` (n) to every rank's `out` (n). The second form works in place.
  Result<Work> broadcast(ConstTensorView in, TensorView out, int root,
                         const OpOptions& options = {});
  Result<Work> broadcast(TensorView tensor, int root, const OpOptions& options = {});
  // The root's `out` (n) receives the reduction of all ranks' `in` (n).
  Result<Work> reduce(ConstTensorView in, TensorView out, ReduceOp op, int root,
                      const OpOptions& options = {});
  // Every rank's `out` (n) receives the reduction of all ranks' `in` (n). The second form works in
  // place.
  Result<Work> all_reduce(ConstTensorView in, TensorView out, ReduceOp op,
                          const OpOptions& options = {});
  Result<Work> all_reduce(TensorView tensor, ReduceOp op, const OpOptions& options = {});
  // all_reduce() in place over several tensors of one element type, as if they were one tensor:
  // with the messages of one. The order of summation of an element depends on its place among all,
  // so results equal those of separate calls bit for bit only with the algorithm "canonical".
  Result<Work> all_reduce_fused(std::span<const TensorView> tensors, ReduceOp op,
                                const OpOptions& options = {});
  // in: (size, n), one block per rank. out: (n), the reduction over ranks of block rank(). In
  // place: out is block rank() of in.
  Result<Work> reduce_scatter(ConstTensorView in, TensorView out, ReduceOp op,
                              const OpOptions& options = {});
  // The same with blocks of counts[r] elements; counts are equal on all ranks.
  Result<Work> reduce_scatter_v(ConstTensorView in, TensorView out,
                                std::span<const std::int64_t> counts, ReduceOp op,
                                const OpOptions& options = {});
  // in: (n). out: (size, n), whose block r is rank r's `in`. In place: in is block rank() of out.
  Result<Work> all_gather(ConstTensorView in, TensorView out, const OpOptions& options = {});
  // The same with counts[r] elements (second form: bytes[r] bytes) of rank r, one block after
  // another in rank order. The counts are equal on all ranks.
  Result<Work> all_gather_v(ConstTensorView in, TensorView out,
                            std::span<const std::int64_t> counts, const OpOptions& options = {});
  Result<Work> all_gather_v(ConstByteSpan in, ByteSpan out, std::span<const std::int64_t> bytes,
                            const OpOptions& options = {});
  // all_gather_v() for lengths that other ranks do not know. Blocks while the lengths (8 bytes per
  // rank) are exchanged, then starts the Work that fills `out`. `out` is resized to all ranks'
  // bytes, and `bytes` to each rank's number of bytes; both are lent until the Work is done.
  // Errors: also kOutOfMemory if the received lengths exceed this rank's memory.
  Result<Work> all_gather_unsized(ConstByteSpan in, std::vector<std::byte>& out,
                                  std::vector<std::int64_t>& bytes, const OpOptions& options = {});
  // gather() and gather_v(): all_gather() and all_gather_v() for the root's `out` only.
  Result<Work> gather(ConstTensorView in, TensorView out, int root, const OpOptions& options = {});
  Result<Work> gather_v(ConstTensorView in, TensorView out, std::span<const std::int64_t> counts,
                        int root, const OpOptions& options = {});
  // The root's in: (size, n). out: (n), block rank() of it. In place at the root: out is block
  // `root` of in.
  Result<Work> scatter(ConstTensorView in, TensorView out, int root, const OpOptions& options = {});
  // The same with blocks of counts[r] elements; counts are equal on all ranks.
  Result<Work> scatter_v(ConstTensorView in, TensorView out, std::span<const std::int64_t> counts,
                         int root, const OpOptions& options = {});
  // in and out: (size, n). Block r of in is sent to rank r; block r of out comes from rank r.
  Result<Work> all_to_all(ConstTensorView in, TensorView out, const OpOptions& options = {});
  // The same with blocks in rank order: send_counts[r] elements of `in` (second form: send_bytes[r]
  // bytes) are sent to rank r, recv_counts[r] elements of `out` come from it. send_counts[r] equals
  // rank r's recv_counts[rank()]. May work in place if both are equal.
  Result<Work> all_to_all_v(ConstTensorView in, std::span<const std::int64_t> send_counts,
                            TensorView out, std::span<const std::int64_t> recv_counts,
                            const OpOptions& options = {});
  Result<Work> all_to_all_v(ConstByteSpan in, std::span<const std::int64_t> send_bytes,
                            ByteSpan out, std::span<const std::int64_t> recv_bytes,
                            const OpOptions& options = {});
  // out (n) on rank r receives the reduction of `in` (n) of ranks 0 to r - 1; on rank 0 the neutral
  // element (0 for a sum, 1 for a product, the lowest value for a maximum). Not for kMean.
  Result<Work> exclusive_scan(ConstTensorView in, TensorView out, ReduceOp op,
                              const OpOptions& options = {});
  // Is done once all ranks have started it.
  Result<Work> barrier(const OpOptions& options = {});
  // Send `tensor` to, or receive it from, group rank `peer` (another rank than this one). The k-th
  // send to a peer with a tag meets the k-th recv there with that tag and this rank; the tag is 0
  // here, OpCall::send() takes others. Both may run beside collectives. A recv from kAnySource
  // takes the first message that no other recv has taken, and Work::source() is its sender; it
  // cannot be prepared. A recv must have the sender's element type and count. A send may be done
  // before its recv is started; when several MiB to a peer wait for their recvs, further sends stay
  // open. Errors: also kRankMismatch for another count; a recv of another element type does not
  // meet the send, and both end with kTimedOut.
  Result<Work> send(ConstTensorView tensor, int peer, const OpOptions& options = {});
  Result<Work> recv(TensorView tensor, int peer, const OpOptions& options = {});
};

// A communicator of all ranks over `transport`, which it owns. Collective. Errors: kInvalidArgument
// for a null transport, a deadline that is not above 0, or a node_of of a wrong length.
Result<std::unique_ptr<Communicator>> make_communicator(std::unique_ptr<Transport> transport,
                                                        const CommunicatorOptions& options = {});

// The same, with shared memory between the ranks of a host if the system allows it. Collectives
// with the algorithm "auto" then read and write the tensors of the host's other ranks and sum in
// rank order; between hosts they send messages. describe() says which memory is shared. Collective.
// Errors: as make_communicator(); those of every operation, since ranks agree on the segments.
Result<std::unique_ptr<Communicator>> make_sharing_communicator(
    std::unique_ptr<Transport> transport, const CommunicatorOptions& options = {});

// The arguments of calibrate(). Those of rank 0 apply.
struct LinkSettings {
  // A file that keeps measured parameters for a week, by hosts, transport and ranks; empty: none.
  std::string cache = {};
  bool measure = false;  // true: measure even if the file has parameters
};
// Collective: takes the parameters of the links between these ranks from rank 0's cache, or
// measures them (tens of milliseconds) and caches them; gives all ranks the same with
// set_link_parameters(), and returns them. Errors: those of every operation of a Communicator.
Result<LinkModel> calibrate(Communicator& communicator, const LinkSettings& settings = {});
// The earlier name of calibrate(). Errors: those of calibrate().
[[deprecated("use calibrate()")]] inline Result<LinkModel> settle_links(
    Communicator& communicator, const LinkSettings& settings = {}) {
  return calibrate(communicator, settings);
}

// A copy of `options` whose node_of, if empty, is filled in from the ranks' hosts (or `node`).
// Collective over the job, and called once per job. Errors: those of the rendezvous's store;
// kCorruptPayload if a rank published something else.
Result<CommunicatorOptions> with_nodes(const Rendezvous& rendezvous,
                                       const CommunicatorOptions& options);

// A communicator of all ranks of `rendezvous`, by the backend's name. Collective.
//   "ucx", "tcp"      messages by UCX or TCP
//   "auto"            shared memory inside a host, messages between hosts (UCX, or TCP in a build
//                     without UCX)
//   "nccl", "nccl:N"  NCCL for GPU tensors, on the GPU whose number is the rank's place in its
//                     host, or on GPU N; messages for host tensors
// Errors: kUnsupported for an unknown backend, or one that this build or machine lacks (the message
// lists those of this build); kInvalidArgument for an option out of range; kRankMismatch if ranks
// differ in `checksums`; kTimedOut or kPeerLost if a rank does not appear in time.
Result<std::unique_ptr<Communicator>> make_communicator(std::string_view backend,
                                                        const Rendezvous& rendezvous,
                                                        const CommunicatorOptions& options = {});

// `size` communicators for ranks that are threads of this process: element r is for the thread of
// rank r. For tests and small experiments. Errors: kInvalidArgument for a size or an option out of
// range.
Result<std::vector<std::unique_ptr<Communicator>>> make_inproc_communicators(
    int size, const CommunicatorOptions& options = {});

}  // namespace gradwire
