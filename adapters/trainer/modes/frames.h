// Messages between one worker and one server: a header that says how long the body is, then the
// body.
//
// clang-format off
//   frame  := header body
//   header := kind step count bytes signal
//                                         five i64: what it is, the worker's last step in it, how
//                                         many steps are in it, the length of the body, the signal
//                                         that asked a rank to end, 0: none. Of a pull count is
//                                         the step at which all end, as far as that is known; 0:
//                                         another server says it
//   push   := loss{count} running* base{blocks} message
//                                         f64 losses; f32 running statistics of a model that has
//                                         such; i64 versions that the gradient was computed at
//   pull   := version{blocks} message     i64; message: block_coder.h, or the values themselves
//   ask    := loss{count} running*         of async_eamsgd.h: wants the centre, which comes as a
//                                         pull; one without a body where the end has come
//   done   := loss{count} running*         without versions; then a push that is a message alone
// clang-format on
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

enum class FrameKind : std::int64_t { kPull = 1, kPush = 2, kLastPush = 3, kAsk = 4, kDone = 5 };

struct FrameHeader {
  std::int64_t kind = 0;
  std::int64_t step = 0;
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  std::int64_t signal = 0;
};

// One end of a pair of ranks, over a communicator of theirs alone. Used from one thread.
class FrameLink {
 public:
  FrameLink(std::unique_ptr<Communicator> pair, double deadline_seconds)
      : pair_(std::move(pair)), deadline_seconds_(deadline_seconds) {}

  // The other's number in the job.
  int peer() const { return pair_->job_rank(1 - pair_->rank()); }

  // Starts to send; header and body are lent until the Work is done.
  Result<Work> start_send(FrameHeader& header, ConstByteSpan body);
  Status send(FrameHeader header, ConstByteSpan body);
  // `body` is resized to what came. kCorruptPayload for a header that makes no sense: another kind
  // than `kinds`, a count below 0, a body above `most_bytes`.
  Result<FrameHeader> recv(std::span<const FrameKind> kinds, std::size_t most_bytes,
                           std::vector<std::byte>& body);
  // Ends everything this rank has under way; the others learn the reason.
  void abort(const Status& reason);

 private:
  OpOptions timeout() const;

  std::unique_ptr<Communicator> pair_;
  double deadline_seconds_;
};

// Collective over `world`: a link between each of ranks 0 .. servers - 1 and each of the others. Of
// a server by worker, of a worker by server.
Result<std::vector<FrameLink>> link_up(Communicator& world, int servers, double deadline_seconds);

// Plain values at the front of a body, which shrinks by them; false where they do not fit.
template <typename T>
bool take_front(ConstByteSpan& body, std::span<T> values);
template <typename T>
void append(std::vector<std::byte>& body, std::span<const T> values);

}  // namespace gradwire
