// Moves bytes between the ranks of one job; knows no arithmetic and no collectives.
//
// The batch is the primitive, not the single send: UCX does not care, NCCL needs simultaneous sends
// and receives inside one group. Capability flags say what differs between backends.
//
// Threads: one at a time calls a Transport, the one that holds the progress lock
// (docs/internals/threads.md); wake() alone may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Names a message. 64 bits on the wire: epoch 8 | source rank 16 | communicator 12 | operation 20 |
// channel 8. Tag holds the last three; the transport adds its epoch (so that stale messages of an
// earlier life match nothing) and the source, since UCX matches by tag alone, never by sender.
// Operation numbers wrap: two operations share one only with 2^20 between them.
class Tag {
 public:
  // kInvalidArgument when communicator needs more than 12 bits or channel more than 8. Communicator
  // 0xfff is the transport's own (heartbeats, verdicts).
  static Result<Tag> make(std::uint32_t communicator, std::uint64_t operation,
                          std::uint32_t channel);
  std::uint64_t bits() const { return bits_; }

 private:
  explicit Tag(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_;
};

// One message. The memory is lent to the transport until the batch's ticket is settled.
struct Transfer {
  enum class Kind : std::uint8_t { kSend, kRecv } kind;
  int peer;  // rank of the job
  Tag tag;
  ByteSpan data;  // kRecv: capacity; kSend: contents, which the transport does not change
  Device device;
};

struct TransportCaps {
  bool host_memory = true;
  bool cuda_memory = false;
  bool matches_tags = true;   // false (NCCL): messages match in order per peer, tags are ignored
  bool short_receive = true;  // false (NCCL): sender and receiver must name the same byte count
  // How large tensors are best cut, equal on all ranks of a job: messages of `segment_bytes` at
  // most; shorter ones too are cut, for one part to travel while another is reduced, as long as no
  // part falls below `least_segment_bytes`.
  std::size_t segment_bytes = 512 << 10;
  std::size_t least_segment_bytes = 512 << 10;
  bool notes = false;  // tell(), take_notes() and what follows them work
};

// Bytes as they left and reached this rank since construction: payload of data messages plus every
// header this transport adds itself (heartbeats included). Framing below it (TCP/IP, shared-memory
// descriptors) is not visible here.
struct TransportStats {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  // Copied between devices and the host's memory, both ways together, for operations on tensors of
  // a device: of communicators, transports leave it as it is.
  std::uint64_t bytes_staged = 0;
};

// Why operations end: what programs decide by. Words are for people.
enum class LossCause : std::uint8_t {
  kUnsaid = 0,
  kConnection,    // the network refused it, or its connection ended
  kSilence,       // no heartbeat
  kClosed,        // it left in good order
  kNoPart,        // it did not come to an operation
  kLeftBehind,    // it did not come to a shrink
  kGaveUp,        // it is there, and ended its operations: abort(), an error of its own
  kDisagreement,  // ranks issued different operations
};
inline constexpr LossCause kLastLossCause = LossCause::kDisagreement;

// A rank of which the transport knows that it is gone, or which gave up.
struct LostPeer {
  int rank = -1;
  std::string reason;  // "no heartbeat for 5.0 s", "connection reset", "reported by rank 3: ..."
  // False: the rank is there, but has a reason to end the operations of all (abort, a mismatch).
  bool gone = true;
  // Of one that is gone: false where it may live on, and may go on with others. A connection that
  // ends proves nothing, nor does absence: true where the process table of a host says so, or where
  // it has closed.
  bool certain = false;
  LossCause cause = LossCause::kUnsaid;
  int reporter = -1;  // who found it out, where that was another rank
  // The operation in which it was found out, where there was one.
  std::optional<std::uint64_t> operation = {};
};

// A few bytes from another rank beside the data.
struct Note {
  int from = -1;
  std::vector<std::byte> bytes;
};

enum class Ticket : std::uint64_t {};

// Messages between two ranks with equal tags arrive in the order they were posted. A send may
// settle before its receive is posted, but what a receiver has to keep is bounded: where a sender
// runs further ahead, its sends stay open until their receives are posted, in whichever order.
//
// The loss of a peer settles every open ticket that names it with kPeerLost, and every later post
// that names it; the other peers stay reachable. Any other fatal error is sticky: every later call
// reports it. A rank may exit after its last operation without harm: a peer that closes in good
// order (its destructor says goodbye to all) is not lost until somebody needs it: then its open
// tickets settle with kPeerLost, "rank R closed".
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual TransportCaps caps() const = 0;
  virtual TransportStats stats() const = 0;
  // One line for people: backend, version, what carries host memory to whom.
  virtual std::string describe() const = 0;

  // Starts every transfer of `batch`; never blocks. Sends and receives of one batch cannot deadlock
  // against each other. A message may have peer == rank(). kInvalidArgument if a peer is out of
  // range or a device is not in caps(). A send of 0 bytes is a message like any other.
  virtual Result<Ticket> post(std::span<const Transfer> batch, const Stream& stream) = 0;

  // Advances outstanding work without blocking (heartbeats too); returns how many tickets settled.
  virtual Result<int> progress() = 0;

  // nullopt while in flight, else the batch's outcome. A settled ticket is forgotten after one
  // report. A message longer than its receive's capacity settles that ticket with kRankMismatch.
  virtual std::optional<Status> poll(Ticket ticket) = 0;
  // Bytes that arrived for transfer `index` of the batch; to be asked before poll() reports it.
  virtual std::size_t received(Ticket ticket, std::size_t index) const = 0;

  // Asks for an early end; the ticket still settles through poll(), after which its memory is free.
  virtual void cancel(Ticket ticket) = 0;

  // The first rank found lost among all of the job, by heartbeat, by the network's own error or by
  // another rank's verdict; nullopt while all live. The first one stays the answer: later losses
  // are often its consequences.
  virtual std::optional<LostPeer> lost() const = 0;
  // Tells every peer that `culprit` is why this rank gives up, so that nobody takes this rank for
  // the culprit when it goes. Best effort; never blocks.
  virtual void announce(const LostPeer& culprit) = 0;

  // Sleeps until something may have happened, `until` passes, or another thread calls wake().
  // Spurious returns are allowed.
  virtual Status wait(Deadline until) = 0;
  virtual void wake() = 0;

  // What ranks need when data does not flow any more; caps().notes says whether a backend has it.

  // Sends at most kMostNoteBytes, also while data is stuck. Best effort, never blocks; in order
  // where they arrive. Nothing to a rank that is lost, or from one.
  static constexpr std::size_t kMostNoteBytes = 4096;
  virtual void tell(int peer, ConstByteSpan note);
  // What has come since the last call; wait() returns when a note comes.
  virtual std::vector<Note> take_notes();
  // All ranks that this one cannot reach any more, lost or closed, ascending; after rebuild(), of
  // its survivors. With this rank itself among them: the others have given it up.
  virtual std::vector<LostPeer> all_lost() const;
  // Ends every open ticket before it returns, whatever the peers do: their memory is free then.
  // Until rebuild() every post fails; heartbeats and notes go on. False: cannot.
  virtual bool sever();
  // Collective over `survivors` (job ranks, ascending, this one among them), which have agreed on
  // them and on a `generation` that they have not used before. Ranks keep their numbers. Open
  // tickets end, lost() is empty again, and no message of an earlier generation matches a later
  // post. kPeerLost if one is lost meanwhile, kTimedOut at the deadline; it may then be called
  // again, with other survivors.
  virtual Status rebuild(std::span<const int> survivors, std::uint32_t generation, Deadline until);
};

}  // namespace gradwire
