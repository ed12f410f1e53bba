// Transport: moves bytes between the ranks of one job. It knows no arithmetic and no collectives.
//
// Its primitive is a batch of sends and receives, since NCCL needs those that run at the same time
// in one group. TransportCaps says where backends differ.
//
// Threads: one at a time, the one that holds the progress lock (docs/internals/threads.md). wake()
// may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Identifies a message. On the wire a tag has 64 bits: epoch 8, source rank 16, communicator 12,
// operation 20, channel 8. A Tag holds the last three. The transport adds its epoch, so that
// messages from before a failure match nothing, and the source rank, since UCX matches by tag
// alone. Operation numbers wrap after 2^20 operations.
class Tag {
 public:
  // Errors: kInvalidArgument if `communicator` needs more than 12 bits or `channel` more than 8.
  // Communicator 0xfff is reserved for the transport's heartbeats and failure reports.
  static Result<Tag> make(std::uint32_t communicator, std::uint64_t operation,
                          std::uint32_t channel);
  // The 40 bits of communicator, operation and channel.
  std::uint64_t bits() const { return bits_; }

 private:
  explicit Tag(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_;
};

// How urgent an operation is among those of this rank that are under way. What waits in a queue
// does not wait for the operations of a queue behind it, but for the piece of one (some 50 us of
// arithmetic, 64 KiB of a message) that is being worked on. Ranks may differ in it.
enum class Queue : std::uint8_t {
  kAuto,      // by the size of the operation: kLatency for at most 64 KiB, else kBulk
  kLatency,   // first
  kPipeline,  // second; all sends and recvs, whatever they ask for
  kBulk,      // last
};

// One message of a batch. The memory is lent to the transport until the batch's ticket is complete.
struct Transfer {
  // The direction, as seen from this rank: kSend or kRecv.
  enum class Kind : std::uint8_t { kSend, kRecv } kind;
  int peer;                    // the other side, a rank of the job
  Tag tag;                     // matches the tag of the other side
  ByteSpan data;               // kSend: the contents, not changed; kRecv: room for the message
  Device device;               // where `data` is
  Queue queue = Queue::kBulk;  // not kAuto: what a backend may send before what
};

// The abilities of a backend.
struct TransportCaps {
  bool host_memory = true;   // sends and receives host memory
  bool cuda_memory = false;  // sends and receives GPU memory
  // The recommended message sizes, in bytes, equal on all ranks of a job. Large tensors are sent in
  // chunks of at most segment_bytes. Shorter ones are split, too, so that one chunk travels while
  // another is reduced, as long as no chunk has fewer than least_segment_bytes.
  std::size_t segment_bytes = 512 << 10;
  std::size_t least_segment_bytes = 512 << 10;
  bool notes = false;  // control messages and recovery: tell(), take_notes(), all_lost(), sever()
                       // and rebuild() work
};

// Counters of this rank since construction: data messages with all headers that the transport adds,
// and heartbeats. The framing below (TCP/IP headers, shared-memory descriptors) is not included.
struct TransportStats {
  std::uint64_t bytes_sent = 0;         // bytes
  std::uint64_t bytes_received = 0;     // bytes
  std::uint64_t messages_sent = 0;      // number of messages
  std::uint64_t messages_received = 0;  // number of messages
  // Bytes copied between GPU and host memory, in both directions, for operations on GPU tensors. A
  // Communicator counts them; transports leave 0.
  std::uint64_t bytes_staged = 0;
};

// Why a rank failed or ended its operations: for programs; LostPeer::reason is for people.
enum class LossCause : std::uint8_t {
  kUnsaid = 0,    // not known
  kConnection,    // its connection ended or was refused
  kSilence,       // no heartbeat from it
  kClosed,        // it closed its communicator
  kNoPart,        // it did not take part in an operation before the deadline
  kLeftBehind,    // it did not take part in a shrink() before the deadline
  kGaveUp,        // it runs, but ended its operations: abort(), or an error of its own
  kDisagreement,  // ranks started different operations
};
// The last enumerator, for range checks.
inline constexpr LossCause kLastLossCause = LossCause::kDisagreement;

// The failure report of one rank.
struct LostPeer {
  int rank = -1;       // the failed rank, a rank of the job
  std::string reason;  // "no heartbeat for 5.0 s", "connection reset", "reported by rank 3: ..."
  // True: the rank is out of reach. False: it runs, but ended the operations of all (abort(), a
  // mismatch).
  bool gone = true;
  // True if the rank has certainly ended: the host's process table says so, or it closed. False if
  // it may still run, and may continue with other ranks: an ended connection or missing heartbeats
  // prove nothing.
  bool certain = false;
  LossCause cause = LossCause::kUnsaid;  // the kind of failure
  int reporter = -1;                     // the rank that detected it; -1: this rank
  // The number of the operation in which it was detected, if any.
  std::optional<std::uint64_t> operation = {};
};

// A control message: a few bytes beside the data.
struct Note {
  int from = -1;                 // the sender, a rank of the job
  std::vector<std::byte> bytes;  // at most Transport::kMostNoteBytes bytes
};

// Identifies a posted batch until poll() has reported its outcome. A ticket is "complete" from then
// on.
enum class Ticket : std::uint64_t {};

// The interface of a backend. Implementations: UCX, TCP, and threads of one process.
//
// Order: messages between two ranks with equal tags arrive in the order in which they were posted.
// A send may complete before its receive is posted, but a receiver buffers a bounded number of
// bytes: beyond it, sends stay open until their receives are posted, in any order.
//
// Failures: when a peer is lost, all open tickets that involve it complete with kPeerLost, and so
// do later posts to it; other peers stay reachable. Any other fatal error is permanent: all later
// calls return it. A rank may exit after its last operation: a peer that closes (its destructor
// informs the others) counts as lost only when a message to or from it is needed; such tickets
// complete with kPeerLost, "rank R closed".
class Transport {
 public:
  virtual ~Transport() = default;
  // rank(): this rank in the job; size(): the number of ranks of the job.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What the backend can do.
  virtual TransportCaps caps() const = 0;
  // Whether this machine has more ranks of the job, as far as they are left, than processors for
  // them: then who waits gives way.
  virtual bool is_crowded() const { return false; }
  // Bytes and messages so far.
  virtual TransportStats stats() const = 0;
  // One line for people: backend, version, and what carries host memory to which ranks.
  virtual std::string describe() const = 0;

  // Starts all transfers of `batch`, and never blocks. No stream is waited for: memory of a device
  // holds by then what is to be sent, and is free for what comes. Sends and receives of one batch
  // cannot block each other. A rank may send to itself, and a message may have 0 bytes. Errors:
  // kInvalidArgument for a peer out of range or a device that is not in caps(); a permanent error,
  // as above.
  virtual Result<Ticket> post(std::span<const Transfer> batch) = 0;
  // True: what is posted from now on may wait for more of it, so that it leaves together. False: it
  // leaves. Never true during progress() and wait(). The default: nothing.
  virtual void gather(bool more);

  // Advances open transfers and heartbeats without blocking; returns the number of tickets that
  // completed. Errors: a permanent error only.
  virtual Result<int> progress() = 0;

  // The outcome of a batch, once; nullopt while it is in flight. Errors in the outcome: kPeerLost;
  // kRankMismatch if a message is longer than its receive's room; kCancelled after cancel().
  virtual std::optional<Status> poll(Ticket ticket) = 0;
  // The number of bytes that arrived for transfer `index` of the batch. To be called before poll()
  // returns the outcome.
  virtual std::size_t received(Ticket ticket, std::size_t index) const = 0;

  // Whether a message from `peer` has come or has been announced, that no receive has met and whose
  // tag is `tag` but for the bits of `any`. After a call that says no, wait() returns when a
  // message comes. The default, of a backend that cannot know: false.
  virtual bool has_message(int peer, Tag tag, std::uint64_t any);

  // Asks for an early end of a batch. The memory stays lent until poll() returns the outcome.
  virtual void cancel(Ticket ticket) = 0;

  // The first failed rank of the job, detected by missing heartbeats, by a network error, or in a
  // failure report of another rank; nullopt if there is none. Later failures do not replace it,
  // since they are often its consequences.
  virtual std::optional<LostPeer> lost() const = 0;
  // Sends all peers a failure report, the reason for which this rank ends its operations. Peers
  // then do not report this rank as failed when it exits. Best effort, never blocks.
  virtual void announce(const LostPeer& failed) = 0;

  // Sleeps until something may have happened, until `until`, or until another thread calls wake().
  // May return early. Errors: a permanent error only; `until` is none.
  virtual Status wait(Deadline until) = 0;
  // Ends a wait() of another thread. From any thread.
  virtual void wake() = 0;

  // The rest serves recovery after a failure, for backends with caps().notes. The defaults
  // are for backends without it.

  // The largest control message, in bytes.
  static constexpr std::size_t kMostNoteBytes = 4096;
  // Sends a control message of at most kMostNoteBytes bytes, also while data transfers are blocked.
  // Best effort, never blocks. Messages to a peer arrive in order. Those to or from a lost rank are
  // dropped.
  virtual void tell(int peer, ConstByteSpan note);
  // The control messages received since the last call. wait() returns when one arrives.
  virtual std::vector<Note> take_notes();
  // All ranks that this rank cannot reach, lost or closed, in ascending order; after rebuild(),
  // only survivors. If this rank is among them, the others have excluded it.
  virtual std::vector<LostPeer> all_lost() const;
  // Goes on without the ranks that are lost, which stay so: lost() is empty again, and names the
  // next rank that is lost. Returns false if the backend cannot do it.
  virtual bool accept_losses();
  // Ends all open tickets before it returns, whatever the peers do; their memory is the caller's
  // again. Until rebuild() all posts fail, while heartbeats and control messages continue. Returns
  // false if the backend cannot do it.
  virtual bool sever();
  // Continues with `survivors`: ranks of the job in ascending order, this rank included. Collective
  // over them; they have agreed on the list and on a `generation`, a number not used before. Ranks
  // keep their numbers. Open tickets end, lost() is empty again, and messages of earlier
  // generations match no later post. Errors: kPeerLost if a survivor is lost meanwhile; kTimedOut
  // at `until`; both allow another call with other survivors. kUnsupported if the backend cannot do
  // it.
  virtual Status rebuild(std::span<const int> survivors, std::uint32_t generation, Deadline until);
};

}  // namespace gradwire
